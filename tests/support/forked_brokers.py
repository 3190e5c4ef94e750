"""Brokers of tests are forks of a process that has imported what a start imports: that is most of what a start costs.
So are workers of brokers that run in the process of the tests, see `forked_workers.py`.

`fork` is what `fixture/process.py` launches brokers with under pytest. A test that measures a start from exec on asks
for `executed()`. A broker whose environment says something to Python or to the dynamic linker is executed too.
"""

import atexit
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import IO, Final, NoReturn

from pqbroker.fixture import process
from pqbroker.fixture.process import Launched

_EXECUTED_FOR: Final = ("PYTHON", "LD_", "MALLOC_")
"""Variables that are read once, before any of our lines runs, begin so."""
_REQUEST_BYTES_MAX: Final = 1 << 20
_FILES_MAX: Final = 3
"""Files that come with a request."""
_BEFORE: Final = ["pqbroker", "serve"]
BROKERS: Final = "brokers"
WORKERS: Final = "workers"


class Forked:
    """A process that the parent process forked; what `subprocess.Popen` has of it."""

    def __init__(self, parent: "Parent", pid: int, stdout: IO[bytes] | None = None) -> None:
        self._parent = parent
        self.pid = pid
        self.stdout = stdout

    @property
    def returncode(self) -> int | None:
        return self.poll()

    def poll(self) -> int | None:
        return self._parent.status(self.pid, 0)

    def wait(self, timeout: float | None = None) -> int:
        found = self._parent.status(self.pid, timeout)
        if found is None:
            raise subprocess.TimeoutExpired(_BEFORE, timeout or 0)
        return found

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def terminate(self) -> None:
        self._send(signal.SIGTERM)

    def _send(self, number: signal.Signals) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(self.pid, number)


@dataclass(slots=True)
class Parent:
    """The process that forks, and the ends of its children as it reports them."""

    process: "subprocess.Popen[bytes]"
    connection: socket.socket
    environment: Mapping[str, str]
    ends: dict[int, int] = field(default_factory=dict)
    guard: threading.RLock = field(default_factory=threading.RLock)

    def fork(self, command: Sequence[str], files: Sequence[int], environment: Mapping[str, str]) -> int:
        """Have a process forked that has these files; its id."""
        request = json.dumps({"command": list(command), "environment": dict(environment), "directory": os.getcwd()})
        with self.guard:
            socket.send_fds(self.connection, [request.encode()], files)
            while (pid := self._take()) is None:
                pass
        return pid

    def status(self, pid: int, timeout_s: float | None) -> int | None:
        """Return how a child ended, as `subprocess` says it; None if it runs still when the time is over."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            with self.guard:
                while pid not in self.ends and _is_readable(self.connection, 0):
                    self._take()
                if pid in self.ends:
                    return self.ends[pid]
            left_s = None if deadline is None else deadline - time.monotonic()
            if left_s is not None and left_s <= 0:
                return None
            _is_readable(self.connection, 0.05 if left_s is None else min(left_s, 0.05))  # or another thread takes it

    def _take(self) -> int | None:
        """Take one report; return the process id if it is of a start."""
        report = self.connection.recv(100)
        if not report:
            raise AssertionError("the process that forks others has ended")
        kind, pid, status = report.split()
        if kind == b"ended":
            self.ends[int(pid)] = int(status)
            return None
        self.ends.pop(int(pid), None)
        return int(pid)

    def end(self) -> None:
        self.connection.close()
        self.process.wait()


_parents: dict[str, Parent] = {}
_guard = threading.Lock()


def launch_forks() -> None:
    """Have brokers of this process forked, where the system can."""
    if hasattr(os, "pidfd_open"):
        process.launch = fork


@contextmanager
def executed() -> Iterator[None]:
    """Brokers that start within the block are executed."""
    before, process.launch = process.launch, process.execute
    try:
        yield
    finally:
        process.launch = before


def fork(command: Sequence[str], log: IO[bytes], environment: Mapping[str, str]) -> Launched:
    """Start a broker, by exec if its environment calls for that."""
    parent = started_parent(BROKERS, os.environ)
    if "serve" not in command or differ_early(environment, parent.environment):
        return process.execute(command, log, environment)
    place = command.index("serve")
    reading, writing = os.pipe()
    try:
        pid = parent.fork(command[place:], [writing, log.fileno()], environment)
    finally:
        os.close(writing)
    return Forked(parent, pid, open(reading, "rb", buffering=0))


def differ_early(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Return True if environments differ in what is read once, before any of our lines runs."""
    return _read_early(one) != _read_early(other)


def _read_early(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in environment.items() if name.startswith(_EXECUTED_FOR)}


def started_parent(of: str, environment: Mapping[str, str]) -> Parent:
    """Return the process that forks BROKERS or WORKERS, and start it if there is none."""
    with _guard:
        known = _parents.get(of)
        if known is None or known.process.poll() is not None:
            ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with its:
                command = [sys.executable, "-P", __file__, str(its.fileno()), of]
                running = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, pass_fds=[its.fileno()], env=environment
                )
            known = _parents[of] = Parent(running, ours, dict(environment))
            atexit.register(known.end)
        return known


def _is_readable(connection: socket.socket, timeout_s: float) -> bool:
    return bool(select.select([connection], [], [], timeout_s)[0])


def _fork_as_asked(connection: socket.socket) -> tuple[list[str], list[int]]:
    """Fork a child for each request until the connection ends; return in each child, with its arguments and files."""
    asked, children = connection.fileno(), dict[int, int]()
    while True:
        readable, _, _ = select.select([asked, *children], [], [])
        for ended in set(readable) - {asked}:
            pid, status = os.waitpid(children.pop(ended), 0)
            os.close(ended)
            connection.send(b"ended %d %d" % (pid, os.waitstatus_to_exitcode(status)))
        if asked in readable:
            request, files, _, _ = socket.recv_fds(connection, _REQUEST_BYTES_MAX, _FILES_MAX)
            if not request:
                os._exit(0)
            pid = os.fork()
            if not pid:
                return _begin(json.loads(request), [connection.detach(), *children]), list(files)
            for file in files:
                os.close(file)
            children[os.pidfd_open(pid)] = pid
            connection.send(b"started %d 0" % pid)


def _begin(request: dict[str, object], others: Sequence[int]) -> list[str]:
    """Become what the request says, as a process that was executed would be."""
    for file in others:
        os.close(file)
    os.chdir(str(request["directory"]))
    environment, command = request["environment"], request["command"]
    assert isinstance(environment, dict)
    assert isinstance(command, list)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return command


def _take_outputs(files: Sequence[int]) -> None:
    """Make files the standard output and the standard error of this process."""
    for number, file in enumerate(files, 1):
        os.dup2(file, number)
        os.close(file)


def main() -> NoReturn:
    """Fork brokers or workers; this is the process that does, and each of its children."""
    connection = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for pytest, which closes the connection
    if sys.argv[2] == BROKERS:
        _fork_brokers(connection)
    else:
        _fork_workers(connection)
    sys.exit()


def _fork_brokers(connection: socket.socket) -> None:
    import pqbroker.broker.node.server
    import pqbroker.broker.web.endpoints
    import pqbroker.storage.disk.preview
    import pqbroker.storage.disk.rocks
    import pqbroker.storage.tablets.start_check  # noqa: F401 (what a start loads)
    from pqbroker.__main__ import main as run_command
    from pqbroker.broker.node.serve import loop_factory

    loop_factory()
    assert threading.active_count() == 1
    sys.argv[1:], files = _fork_as_asked(connection)
    _take_outputs(files)
    sys.argv[0] = "pqbroker"
    sys.exit(run_command())


def _fork_workers(connection: socket.socket) -> None:
    from pqbroker.tables.work.unwanted import refuse_unwanted

    refuse_unwanted()
    import pqbroker.tables.work.arrow_rows
    import pqbroker.tables.work.log_cleaning
    import pqbroker.tables.work.query
    import pqbroker.tables.work.searching
    import pqbroker.tables.work.sorted.merging
    import pqbroker.tables.work.sorted.row_packing
    import pqbroker.tables.work.sorted.scanning  # noqa: F401 (what workers load)
    from pqbroker.tables.work.__main__ import main as work

    gc.freeze()
    _, (number, *outputs) = _fork_as_asked(connection)
    os.setsid()
    _take_outputs(outputs)
    work(number)


if __name__ == "__main__":
    main()
