"""A broker of several node processes, for tests: started by its parent, its nodes found by their process ids."""

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

START_S = 110.0


class SeveralNodes:
    """One parent and its nodes. Their log is kept in `log_file`."""

    def __init__(self, directory: Path, nodes: int, settings: Mapping[str, str], log_file: Path) -> None:
        self._log_file = log_file
        self.command = [
            sys.executable, "-P", "-m", "pqbroker", "serve", "--nodes", str(nodes), "--data", str(directory),
            "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0",
        ]  # fmt: skip
        for name, text in settings.items():
            self.command += ["--set", f"{name}={text}"]
        self.kafka = self.http = ""
        self.directory = directory
        self._parent: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        return self._log_file.read_text(encoding="utf-8", errors="replace")

    @property
    def parent(self) -> "subprocess.Popen[bytes]":
        assert self._parent is not None
        return self._parent

    def pids(self) -> dict[int, int]:
        """Return the process ids of the nodes, by number, as they were started last."""
        return {int(node): int(pid) for node, pid in re.findall(r"node (\d+) is process (\d+)", self.log)}

    def answers(self, timeout_s: float) -> bool:
        """Return True if HTTP answers at its address of the start."""
        try:
            with urllib.request.urlopen(f"http://{self.http}/health", timeout=timeout_s):
                return True
        except OSError:
            return False

    def start(self) -> None:
        """Start the parent; return when all nodes serve."""
        self._forget()
        with self._log_file.open("ab") as log:
            self._parent = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=log)
        assert self._parent.stdout is not None
        readable, _, _ = select.select([self._parent.stdout], [], [], START_S)
        line = self._parent.stdout.readline().decode() if readable else ""
        assert line.startswith("ready "), f"{line!r}; the log ends:\n{self.log[-4000:]}"
        self.kafka, self.http = (word.partition("=")[2] for word in line.split()[1:3])

    def keep_addresses(self) -> None:
        """Have later starts listen where this one does."""
        for option, address in (("--kafka", self.kafka), ("--http", self.http)):
            self.command[self.command.index(option) + 1] = address

    def kill_parent(self) -> None:
        """Kill the parent; return when its nodes are gone too, which stop by themselves."""
        self.parent.kill()
        self._forget()
        deadline = time.monotonic() + START_S
        while any(map(is_running, self.pids().values())):
            assert time.monotonic() < deadline, "a node runs without its parent"

    def stop(self) -> int:
        """End the parent as SIGTERM does; return its exit status."""
        self.parent.terminate()
        self._forget()
        return self.parent.returncode

    def end(self) -> None:
        """Kill what is left of it."""
        if self._parent is not None:
            self._parent.kill()
            self._forget()
        for pid in self.pids().values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _forget(self) -> None:
        """Wait for a parent that was killed, if there was one."""
        if self._parent is not None:
            assert self._parent.stdout is not None
            self._parent.stdout.close()
            self._parent.wait(START_S)


@contextlib.contextmanager
def several_nodes(place: Path, settings: Mapping[str, str], count: int = 2) -> Iterator[SeveralNodes]:
    """Nodes that serve, with their data and log in a directory, until the block ends."""
    several = SeveralNodes(place / "data", count, settings, place / "log")
    try:
        several.start()
        yield several
    finally:
        several.end()


def is_running(pid: int) -> bool:
    """Return True while a process that is no child of this one runs, after a short while: asking takes its time."""
    time.sleep(0.02)
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False
