"""Watch that ends a worker from within: more memory than it may take, or a broker that has gone. A thread looks for
both, for the one that works is deep in a library most of the time."""

import os
import resource
import select
import socket
import sys
import threading
from collections.abc import Callable

from pqbroker.tables.work.process import MEMORY_EXIT

LOOK_MS = 20
_PAGE_BYTES = resource.getpagesize()
_GONE = select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)


class Watch:
    """`memory_bytes_max` may change: each query brings its own."""

    def __init__(self, connection: socket.socket) -> None:
        self.memory_bytes_max = sys.maxsize
        self._poll = select.poll()
        self._poll.register(connection, _GONE)
        self.look: Callable[[], None] | None = None
        """Called every now and then, while there is a query that can be stopped."""

    def start(self) -> None:
        threading.Thread(target=self._run, name="watch", daemon=True).start()

    def _run(self) -> None:
        while not self._poll.poll(LOOK_MS):
            if resident_bytes() > self.memory_bytes_max:
                os._exit(MEMORY_EXIT)
            if look := self.look:
                look()
        os._exit(0)


def resident_bytes() -> int:
    """Memory of this process; where the system does not say, the most that it ever was."""
    try:
        with open("/proc/self/statm", "rb") as statm:
            return int(statm.read().split()[1]) * _PAGE_BYTES
    except FileNotFoundError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
