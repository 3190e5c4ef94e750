"""Frames of the peer link: their form and the reader that cuts a stream into them. No I/O.

    length      u32   bytes that follow it
    kind        u8
    request id  u64   0 for what is no request, answer or refusal
    payload           what is left

A length beyond the limit breaks the link before anything is kept of the frame; what is kept grows with the bytes that
arrive, never with what a length claims.
"""

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

_HEAD: Final = Struct(">IBQ")
_LENGTH: Final = Struct(">I")
_BEHIND_LENGTH: Final = _HEAD.size - _LENGTH.size
PEER_FRAME_HEAD_BYTES: Final = _HEAD.size


class LinkBroken(Exception):
    """The other end of a peer link broke its rules, or is gone; the text says how. The link closes."""


class FrameKind(IntEnum):
    """Kinds of frames, by the number that stands in them."""

    HELLO = 1
    CHALLENGE = 2
    PROOF = 3
    ACCEPTANCE = 4
    HEARTBEAT = 5
    NOTE = 6
    """Something that is not answered."""
    REQUEST = 7
    ANSWER = 8
    REFUSAL = 9
    """Answer to a request that failed; its payload is a text."""


class PeerFrame(NamedTuple):
    """One frame."""

    kind: FrameKind
    request_id: int
    payload: bytes


def encode_peer_frame(frame: PeerFrame) -> bytes:
    """Return the bytes of a frame."""
    return _HEAD.pack(_BEHIND_LENGTH + len(frame.payload), frame.kind, frame.request_id) + frame.payload


class PeerFrameReader:
    """Cuts bytes into frames, each of at most `frame_bytes_max` bytes, which may be raised."""

    def __init__(self, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._kept = bytearray()

    @property
    def kept_bytes(self) -> int:
        """Return the bytes of a frame that is not whole yet."""
        return len(self._kept)

    def received(self, data: bytes) -> Iterator[PeerFrame]:
        """Yield the frames that are whole now; the limit is looked at again for each. Raises LinkBroken."""
        self._kept += data
        while len(self._kept) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._kept)
            if not _BEHIND_LENGTH <= length <= self.frame_bytes_max:
                raise LinkBroken(
                    f"a frame says that it has {length} bytes; {_BEHIND_LENGTH} to {self.frame_bytes_max} are allowed"
                )
            end = _LENGTH.size + length
            if len(self._kept) < end:
                return
            _, kind, request_id = _HEAD.unpack_from(self._kept)
            payload = bytes(memoryview(self._kept)[_HEAD.size : end])
            del self._kept[:end]
            yield PeerFrame(_kind(kind), request_id, payload)


def _kind(number: int) -> FrameKind:
    try:
        return FrameKind(number)
    except ValueError:
        raise LinkBroken(f"a frame has the kind {number}, which this version does not know") from None
