"""Workers of brokers in this process are forks of a process that has imported what a worker imports: three quarters of
what a test with one costs.

A worker of another command is executed, and so is one whose environment says something to Python or to the linker.
"""

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, cast

from pqbroker.tables.work import process
from tests.support.forked_brokers import WORKERS, Forked, differ_early, started_parent

_EXECUTE: Final = process.spawn
_COMMAND: Final = process.COMMAND


def fork_workers() -> None:
    """Have workers of this process forked, where the system can."""
    if hasattr(os, "pidfd_open"):
        process.spawn = _fork


@contextmanager
def executed_workers() -> Iterator[None]:
    """Workers that start within the block are executed: children of this process, with a command line of their own."""
    before, process.spawn = process.spawn, _EXECUTE
    try:
        yield
    finally:
        process.spawn = before


def _fork(connection: socket.socket) -> "subprocess.Popen[bytes]":
    environment = process.environment()
    parent = started_parent(WORKERS, environment)
    if process.COMMAND is not _COMMAND or differ_early(environment, parent.environment):
        return _EXECUTE(connection)
    pid = parent.fork(["worker"], [connection.fileno(), 1, 2], environment)
    return cast("subprocess.Popen[bytes]", Forked(parent, pid))
