"""What a process has used, from /proc: processor seconds of all its threads, resident memory. Linux only."""

import os
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident memory in MiB: now, and the most there was."""

    now_mib: float
    peak_mib: float


def cpu_seconds(pid: int) -> float:
    """User and system time of the process so far, in seconds, steps of a clock tick (10 ms)."""
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / _TICKS_PER_S


def memory(pid: int) -> Memory:
    """Resident memory of the process."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return Memory(now_mib=_mib(lines["VmRSS"]), peak_mib=_mib(lines["VmHWM"]))


def _mib(text: str) -> float:
    kib, unit = text.split()
    assert unit == "kB"
    return int(kib) / 1024
