"""Metrics of the process: what the system has counted for it, read at scrape time."""

import os
import platform
import resource
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

from pqbroker import __version__
from pqbroker.broker.ground.metrics import Sample

_STAT = Path("/proc/self/stat")
_FILES = Path("/proc/self/fd") if _STAT.exists() else Path("/dev/fd")
_THREADS, _VIRTUAL_BYTES, _RESIDENT_PAGES = 17, 20, 21
"""Fields behind the process's name."""


class Use(NamedTuple):
    """The process's use of the machine."""

    threads: int
    resident_bytes: int
    virtual_bytes: int
    """0 where the system does not say."""


def process_samples(started_ms: int) -> list[Sample]:
    """`started_ms`: in ms since 1970."""
    use = read_use()
    return [
        Sample("build_info", 1, (__version__, platform.python_version())),
        Sample("process_start_time_seconds", started_ms / 1000),
        Sample("process_cpu_seconds", time.process_time()),
        Sample("process_resident_memory_bytes", use.resident_bytes),
        Sample("process_virtual_memory_bytes", use.virtual_bytes),
        Sample("process_open_fds", len(os.listdir(_FILES))),
        Sample("process_max_fds", resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
        Sample("process_threads", use.threads),
    ]


def read_use() -> Use:
    """Return the use as the system counts; where it has no /proc, Python's threads and the most memory so far."""
    try:
        fields = _STAT.read_bytes().rpartition(b")")[2].split()
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return Use(threading.active_count(), peak if sys.platform == "darwin" else peak * 1024, 0)
    resident_bytes = int(fields[_RESIDENT_PAGES]) * resource.getpagesize()
    return Use(int(fields[_THREADS]), resident_bytes, int(fields[_VIRTUAL_BYTES]))
