"""Frames on a byte stream: a 4-byte length and a request or response. No I/O; made for `asyncio.BufferedProtocol`.

| state    | bytes go to                             | leaves when                                                     |
|----------|-----------------------------------------|-----------------------------------------------------------------|
| between  | a buffer that readers of a thread share | 16 KiB of a frame of 32 KiB or more are received: large;        |
|          |                                         | claiming where it is over `FREE_FRAME_BYTES`, and not granted   |
| claiming | nowhere: nothing may be received        | `begin_claimed` is called: large                                |
| large    | the frame's own memory, no copy         | the frame is whole: between                                     |

What a reader holds between two calls is `held_bytes`: the start of an unfinished frame, or the memory of a large one.
A peer's claim alone takes nothing: large frames begin once a part has arrived, and memory beyond 2 MiB is not touched
before the bytes for it come (an anonymous mapping; one bytearray of 64 MiB takes 40 ms to be zeroed).
"""

import mmap
from collections.abc import Callable, Sequence, Sized
from struct import Struct
from typing import Final, TypeVar

from pqbroker.protocol.errors import ForeignProtocol, ProtocolError

P = TypeVar("P", bound=Sized)
LARGE_FRAME_BYTES: Final = 32 << 10
"""Smallest frame that is received straight into memory of its own."""
FREE_FRAME_BYTES: Final = (64 << 10) - 1
"""Up to this size a frame needs no leave for its memory."""
HELD_STEP_BYTES: Final = 2 << 20
"""A frame up to this size has its memory at once; that of a larger one counts in such steps as its bytes arrive."""

_PREFIX: Final = Struct(">i")
_RECEIVED_AT_ONCE: Final = FREE_FRAME_BYTES + 1 + _PREFIX.size
_BEGUN_BYTES: Final = LARGE_FRAME_BYTES // 2


_HTTP_STARTS: Final = frozenset((b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"PATC", b"OPTI", b"CONN", b"PRI "))
_TLS_START: Final = b"\x16\x03"
"""First bytes of the record that a TLS client sends first."""


def receive_buffer() -> memoryview:
    """A buffer for all readers of one thread: it holds nothing between `get_buffer` and the `received` after it."""
    return memoryview(bytearray(_RECEIVED_AT_ONCE))


class FrameReader:
    """Cuts what is received into frames. Each frame is writable and stays valid as long as it is held."""

    __slots__ = (
        "_buffer", "_filled", "_frame_bytes_max", "_grant", "_large", "_start", "claimed_bytes", "held_bytes",
    )  # fmt: skip

    def __init__(
        self, frame_bytes_max: int, buffer: memoryview | None = None, grant: Callable[[int], bool] | None = None
    ) -> None:
        """`grant` says whether a frame of that size may have its memory now; None: always."""
        self._frame_bytes_max = frame_bytes_max
        self._buffer = receive_buffer() if buffer is None else buffer
        self._grant = grant
        self._start = b""
        """Bytes received of an unfinished frame that has no memory of its own, its length included."""
        self._large: memoryview | None = None
        self._filled = 0
        self.claimed_bytes = 0
        """Size of a frame that waits for `begin_claimed`."""
        self.held_bytes = 0

    def get_buffer(self, size_hint: int) -> memoryview:
        """Return the buffer in which the next bytes are to be received; never empty. `size_hint` is asyncio's and has
        no effect."""
        if self._large is not None:
            return self._large[self._filled :]
        start = self._start
        if not start:
            return self._buffer
        self._buffer[: len(start)] = start
        return self._buffer[len(start) :]

    def received(self, count: int) -> list[memoryview]:
        """Take `count` bytes that were put where `get_buffer` said; returns the frames now whole, without lengths.

        ProtocolError when a length is negative or above the limit: nothing after it can be read.
        """
        if self._large is not None:
            return self._received_large(self._large, count)
        buffer = self._buffer
        position, end = 0, len(self._start) + count
        frames: list[memoryview] = []
        while end - position >= _PREFIX.size:
            (size,) = _PREFIX.unpack_from(buffer, position)
            if not 0 <= size <= self._frame_bytes_max:
                if name := _foreign(bytes(buffer[position : position + _PREFIX.size])):
                    raise ForeignProtocol(name)
                raise ProtocolError(f"a frame of {size} bytes; the most allowed is {self._frame_bytes_max}")
            stop = position + _PREFIX.size + size
            if stop > end:
                break
            frames.append(memoryview(bytearray(buffer[position + _PREFIX.size : stop])))
            position = stop
        if position < end or self._start:
            self._keep(buffer[position:end])
        return frames

    def allow(self, frame_bytes_max: int) -> None:
        """Take frames of another size from now on."""
        self._frame_bytes_max = frame_bytes_max

    def begin_claimed(self) -> None:
        """Give the claimed frame its memory."""
        size, self.claimed_bytes = self.claimed_bytes, 0
        self._begin_large(size, memoryview(self._start))

    def drop(self) -> None:
        """Forget what has arrived of an unfinished frame; nothing more can be read."""
        self._start, self._large, self._grant = b"", None, None
        self.held_bytes = self.claimed_bytes = 0

    def _keep(self, start: memoryview) -> None:
        """Hold the start of an unfinished frame; enough of a large one gets it memory of its own."""
        if len(start) >= _BEGUN_BYTES:
            (size,) = _PREFIX.unpack_from(start)
            if size > FREE_FRAME_BYTES and self._grant is not None and not self._grant(size):
                self.claimed_bytes = size
            elif size >= LARGE_FRAME_BYTES:
                self._begin_large(size, start)
                return
        self._start = bytes(start)
        self.held_bytes = len(start)

    def _begin_large(self, size: int, start: memoryview) -> None:
        """Move what has arrived of a large frame into memory of its own."""
        begun = start[_PREFIX.size :]
        at_once = size <= HELD_STEP_BYTES
        self._large = memoryview(
            bytearray(size) if at_once else mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        )
        self._large[: len(begun)] = begun
        self._filled = len(begun)
        self._start = b""
        self.held_bytes = min(size, HELD_STEP_BYTES)

    def _received_large(self, large: memoryview, count: int) -> list[memoryview]:
        self._filled += count
        if self._filled == len(large):
            self._large = None
            self.held_bytes = 0
            return [large]
        if self._filled > self.held_bytes:
            steps = (self._filled + HELD_STEP_BYTES - 1) // HELD_STEP_BYTES
            self.held_bytes = min(steps * HELD_STEP_BYTES, len(large))
        return []


def frame(parts: Sequence[P]) -> list[P | bytes]:
    """The parts, buffers or what stands for bytes elsewhere, as one frame, its length before them."""
    return [_PREFIX.pack(sum(map(len, parts))), *parts]


def _foreign(start: bytes) -> str:
    """The protocol of a peer whose first bytes are no length; empty where nothing is known of it."""
    if start in _HTTP_STARTS:
        return "HTTP"
    return "TLS" if start.startswith(_TLS_START) else ""
