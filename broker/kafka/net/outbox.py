"""Answers of a connection that are due, in their order: those of one turn of the loop leave together."""

import asyncio
from collections.abc import Callable

from pqbroker.broker.kafka.net.connection_states import SENDING, SendEvent, Sending
from pqbroker.broker.kafka.net.file_sender import FileSender, memory_of
from pqbroker.storage.engine import Buffer
from pqbroker.storage.file_regions import FileRegion

_UNSENT_BYTES_MAX = 64 << 10
"""Answers that are due wait for others of the same turn of the loop only up to this size."""


class Outbox:
    """`state` is that of table `SENDING`.

    Parts of files go past the transport (`FileSender`) when that has sent all before them. Then the outbox is full, as
    the transport is above its limit: `when_full` is called, and `when_eased` once the socket has taken them.
    """

    __slots__ = (
        "_files", "_loop", "_size", "_takes_files", "_transport", "_when_eased", "_when_full", "parts", "state",
    )  # fmt: skip

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: asyncio.Transport,
        when_full: Callable[[], None],
        when_eased: Callable[[], None],
        *,
        takes_files: bool,
    ) -> None:
        self._loop = loop
        self._transport = transport
        self._when_full = when_full
        self._when_eased = when_eased
        self._takes_files = takes_files
        self._files = FileSender(loop, transport)
        self._size = 0
        self.parts: list[Buffer | FileRegion] = []
        self.state = Sending.IDLE

    @property
    def holds_files(self) -> bool:
        """Return True if what lies in files is still to be sent, so that the transport must not be closed."""
        return self.state in (Sending.WAITING, Sending.BUSY)

    def unsent(self) -> tuple[int, int]:
        """Bytes in memory that the socket has not taken, and all bytes, those that lie in files among them."""
        buffered = self._transport.get_write_buffer_size()
        memory = buffered + self._files.unsent_memory() + memory_of(self.parts)
        return memory, buffered + self._files.unsent() + self._size

    def put(self, parts: list[Buffer | FileRegion], size: int) -> None:
        """Add an answer of `size` bytes; sent at once when there is much."""
        self.parts += parts
        self._size += size
        if self._size > _UNSENT_BYTES_MAX:
            self.send()

    def plan(self) -> None:
        """Send what is due at the end of this turn of the loop."""
        self.state = SENDING[self.state, SendEvent.PLAN]
        self._loop.call_soon(self.send)

    def send(self) -> None:
        """Give the transport all that is due, in one system call."""
        if self.state is Sending.BUSY:
            return
        if self._takes_files and FileRegion in map(type, self.parts):
            self._send_files()
            return
        self.state = SENDING[self.state, SendEvent.SEND]
        if self.parts:
            parts, self.parts = self.parts, []
            self._size = 0
            self._transport.writelines(parts)  # type: ignore[arg-type] # none is a part of a file

    def ease(self) -> None:
        """The transport takes more; one that files wait for has sent all."""
        if self.state is Sending.WAITING:
            self.send()

    def discard(self) -> None:
        """Send and report nothing more: a connection is freed at once, not by the collector."""
        self.parts.clear()
        self._files.close()
        self._when_full = self._when_eased = _nobody

    def _send_files(self) -> None:
        if self._transport.get_write_buffer_size():
            self.state = SENDING[self.state, SendEvent.WAIT]
            self._transport.set_write_buffer_limits(0)  # it reports when it has sent all before
            return
        self._transport.set_write_buffer_limits()
        parts, self.parts = self.parts, []
        self._size = 0
        self._files.send(parts, self._sent)
        self.state = SENDING[self.state, SendEvent.SEND_FILES if self._files.is_busy else SendEvent.SEND]
        if self._files.is_busy:
            self._when_full()

    def _sent(self) -> None:
        """The socket has taken all parts of files."""
        self.state = SENDING[self.state, SendEvent.FILES_SENT]
        self.send()
        if self.state is not Sending.BUSY and not self._is_transport_full():
            self._when_eased()

    def _is_transport_full(self) -> bool:
        """Return True if the transport itself reports when it takes more."""
        _, full = self._transport.get_write_buffer_limits()
        return self._transport.get_write_buffer_size() > full


def _nobody() -> None:
    """Stands for the connection when it is closed."""
