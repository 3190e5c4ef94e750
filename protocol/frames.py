"""Frames on a byte stream: a 4-byte length and a request or response. No I/O; made for `asyncio.BufferedProtocol`.

| state | bytes go to                        | leaves when                                                           |
|-------|------------------------------------|-----------------------------------------------------------------------|
| small | one buffer, used again and again   | an unfinished frame says it is 32 KiB or larger: large                |
| large | the frame's own bytearray, no copy | the frame is whole: small                                             |
"""

from collections.abc import Sequence, Sized
from struct import Struct
from typing import Final, TypeVar

from pqbroker.protocol.errors import ProtocolError

P = TypeVar("P", bound=Sized)
LARGE_FRAME_BYTES: Final = 32 << 10
"""From this size on a frame is received straight into a bytearray of its own."""

_BUFFER_BYTES: Final = 64 << 10
_ALLOCATED_AT_ONCE: Final = 2 << 20
"""A larger frame's memory grows as its bytes arrive: a peer's claim alone takes no more than this."""

_PREFIX: Final = Struct(">i")


class FrameReader:
    """Cuts what is received into frames. Each frame is writable and stays valid as long as it is held."""

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._start = 0
        self._end = 0
        self._large: bytearray | None = None
        self._large_bytes = 0
        self._filled = 0

    def get_buffer(self, size_hint: int) -> memoryview:
        """Where the next bytes are to be received; never empty. `size_hint` is asyncio's and has no effect."""
        if self._large is not None:
            return memoryview(self._large)[self._filled :]
        return self._buffer[self._end :]

    def received(self, count: int) -> list[memoryview]:
        """Take `count` bytes that were put where `get_buffer` said; returns the frames now whole, without lengths.

        ProtocolError when a length is negative or above the limit: nothing after it can be read.
        """
        if self._large is not None:
            return self._received_large(self._large, count)
        self._end += count
        frames: list[memoryview] = []
        while self._end - self._start >= _PREFIX.size:
            (size,) = _PREFIX.unpack_from(self._buffer, self._start)
            if not 0 <= size <= self._frame_bytes_max:
                raise ProtocolError(f"a frame of {size} bytes; the most allowed is {self._frame_bytes_max}")
            stop = self._start + _PREFIX.size + size
            if stop > self._end:
                if size >= LARGE_FRAME_BYTES:
                    self._begin_large(size)
                break
            frames.append(memoryview(bytearray(self._buffer[self._start + _PREFIX.size : stop])))
            self._start = stop
        self._make_room()
        return frames

    def _begin_large(self, size: int) -> None:
        """Move what has arrived of a large frame into a bytearray of its own."""
        begun = self._buffer[self._start + _PREFIX.size : self._end]
        self._large = bytearray(min(size, _ALLOCATED_AT_ONCE))
        self._large[: len(begun)] = begun
        self._large_bytes = size
        self._filled = len(begun)
        self._start = self._end

    def _received_large(self, large: bytearray, count: int) -> list[memoryview]:
        self._filled += count
        if self._filled == self._large_bytes:
            self._large = None
            return [memoryview(large)]
        if self._filled == len(large):
            self._large = bytearray(min(2 * len(large), self._large_bytes))
            self._large[: len(large)] = large
        return []

    def _make_room(self) -> None:
        """Move an unfinished small frame to the front when the rest of it might not fit behind it."""
        if self._start == self._end:
            self._start = self._end = 0
        elif self._start and _BUFFER_BYTES - self._start < LARGE_FRAME_BYTES + _PREFIX.size:
            rest = bytes(self._buffer[self._start : self._end])
            self._buffer[: len(rest)] = rest
            self._start, self._end = 0, len(rest)


def frame(parts: Sequence[P]) -> list[P | bytes]:
    """The parts, buffers or what stands for bytes elsewhere, as one frame, its length before them."""
    return [_PREFIX.pack(sum(map(len, parts))), *parts]
