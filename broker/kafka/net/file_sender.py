"""Answers that hold parts of files, sent past the transport: the kernel moves pages of files to the socket (sendfile).

A part is sent by the loop thread soon after it was verified, when its pages are in memory; one that waited is read
again by a thread before. The transport has nothing unsent when `send` is called, and gets nothing while `is_busy`.
"""

import asyncio
import logging
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from pqbroker.broker.ground.seldom_log import SeldomLog
from pqbroker.storage.engine import Buffer
from pqbroker.storage.file_regions import FileRegion

seldom = SeldomLog(logging.getLogger(__name__))

_WARM_S = 1.0
"""Time after its verification in which a page is taken to be in memory."""
_TURN_BYTES = 2 << 20
"""Sent in one turn of the loop: a peer that takes all at once does not keep the others waiting."""
_MORE = getattr(socket, "MSG_MORE", 0)
_BUFFERS_MAX = 64
"""Given to the socket in one call; the system's limit is 1024."""


def memory_of(parts: Iterable[Buffer | FileRegion]) -> int:
    """Bytes of the parts that do not lie in files."""
    return sum(len(part) for part in parts if not isinstance(part, FileRegion))


class FileSender:
    """Sends over one connection's socket. States: idle -> busy, by `send`; -> idle, when the socket has taken all."""

    __slots__ = ("_loop", "_parts", "_sent", "_socket", "_transport", "_warming", "is_busy")

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport) -> None:
        self._loop = loop
        self._transport = transport
        self._sent: Callable[[], None] | None = None
        """Only while busy: a connection that is closed is freed at once, not by the collector."""
        self._socket: socket.socket | None = None
        """The transport's socket once more while busy, so that the loop can watch it for us too."""
        self._parts: deque[Buffer | FileRegion] = deque()
        self._warming: asyncio.Future[None] | None = None
        self.is_busy = False

    def send(self, parts: Sequence[Buffer | FileRegion], sent: Callable[[], None]) -> None:
        """Send the parts in order. `is_busy` says whether some are left; `sent` is called when none are any more."""
        if self._transport.is_closing():
            return
        ours = self._transport.get_extra_info("socket")
        try:
            self._socket = socket.socket(ours.family, ours.type, ours.proto, os.dup(ours.fileno()))
        except OSError as error:
            seldom.warning("an answer could not be sent, its connection is closed: %s", error)
            self._transport.abort()
            return
        self._parts.extend(parts)
        self.is_busy = not self._push()
        if not self.is_busy:
            self._let_go()
            return
        self._sent = sent
        self._watch()

    def unsent(self) -> int:
        """Bytes that the socket has not taken."""
        return sum(map(len, self._parts))

    def unsent_memory(self) -> int:
        """Return the bytes in memory that the socket has not taken."""
        return memory_of(self._parts)

    def close(self) -> None:
        """Forget what is unsent. The connection ends when its transport closes as well."""
        self._parts.clear()
        self._sent = None
        if self._warming is not None:
            self._warming.cancel()
        if self._socket is not None:
            self._loop.remove_writer(self._socket)
            self._let_go()

    def _let_go(self) -> None:
        assert self._socket is not None
        self._socket.close()
        self._socket = None

    def _go_on(self) -> None:
        """The socket takes more, or a part is warm."""
        if self._socket is None:
            return
        if not self._push():
            self._watch()
            return
        self._loop.remove_writer(self._socket)
        self._let_go()
        self.is_busy = False
        sent, self._sent = self._sent, None
        assert sent is not None
        sent()

    def _watch(self) -> None:
        """Continue when the socket takes more, unless a part is being read again, or the connection has failed."""
        if self._socket is None or self._transport.is_closing():
            return
        if self._warming is None:
            self._loop.add_writer(self._socket, self._go_on)
        else:
            self._loop.remove_writer(self._socket)

    def _push(self) -> bool:
        """Give the socket what it takes in a turn; False when something is left. A failed connection is aborted."""
        assert self._socket is not None
        left = _TURN_BYTES
        try:
            while self._parts:
                if left <= 0:
                    return False
                part = self._parts[0]
                if not isinstance(part, FileRegion):
                    left -= self._push_buffers()
                elif self._loop.time() - part.verified_s > _WARM_S:
                    self._warm(part)
                    return False
                else:
                    left -= self._push_region(part)
        except BlockingIOError:
            return False
        except OSError as error:
            seldom.info("an answer could not be sent: %s", error)
            self._loop.remove_writer(self._socket)
            self._transport.abort()
            return False
        return True

    def _push_region(self, region: FileRegion) -> int:
        assert self._socket is not None
        sent = region.send(self._socket.fileno())
        if not region.size:
            self._parts.popleft()
        return sent

    def _push_buffers(self) -> int:
        """Send the buffers before the next region, which goes out with the last of them."""
        assert self._socket is not None
        parts = self._parts
        buffers: list[Buffer] = []
        for part in parts:
            if isinstance(part, FileRegion) or len(buffers) == _BUFFERS_MAX:
                break
            buffers.append(part)
        sent = self._socket.sendmsg(buffers, (), _MORE if len(parts) > len(buffers) else 0)
        left = sent
        while buffers and left >= len(parts[0]):
            left -= len(parts.popleft())
            buffers.pop()
        if left:
            parts[0] = memoryview(parts[0])[left:]  # type: ignore[arg-type]
        return sent

    def _warm(self, region: FileRegion) -> None:
        """Read a part again beside the loop, then continue."""
        self._warming = self._loop.run_in_executor(None, region.warm)
        self._warming.add_done_callback(lambda done: self._warmed(region, done))

    def _warmed(self, region: FileRegion, done: "asyncio.Future[None]") -> None:
        self._warming = None
        if done.cancelled() or self._socket is None:
            return
        if done.exception() is not None:
            seldom.warning("an answer could not be read again: %s", done.exception())
            self._transport.abort()
            return
        region.verified_s = self._loop.time()
        self._go_on()
