"""The 192-bit id of a blob: whose it is, where in the owner's history it was written, and how big it is (spec B.2)."""

from struct import Struct
from typing import NamedTuple

from pqbroker.storage.engine import BlobKey
from pqbroker.storage.ids import TabletId

CHANNEL_MAX = 255
GENERATION_MAX = (1 << 32) - 1
STEP_MAX = (1 << 32) - 1
COOKIE_MAX = (1 << 24) - 1
CRC_MODE_MAX = 3
SIZE_MAX = (1 << 26) - 1
PART_MAX = 15

_WORDS = Struct(">QQQ")
_TABLET_AND_CHANNEL = Struct(">QB")
_POSITION = Struct(">QBII")


class BlobId(NamedTuple):
    """`size` is in bytes; a tablet's own blobs have part 0. Keys sort by the fields in order, `crc_mode` before `size`.

    The first five fields make a blob: no two differ only in what follows.
    """

    tablet: TabletId
    channel: int
    generation: int
    step: int
    cookie: int
    size: int
    crc_mode: int = 0
    part: int = 0

    def key(self) -> BlobKey:
        """The 24 bytes that sort as the id does. ValueError when a field does not fit."""
        tablet, channel, generation, step, cookie, size, crc_mode, part = self
        if (
            channel >> 8
            or generation >> 32
            or step >> 32
            or cookie >> 24
            or size >> 26
            or crc_mode >> 2
            or part >> 4
            or tablet >> 64
        ):
            raise ValueError(f"{self!r} does not fit 192 bits")
        return BlobKey(
            _WORDS.pack(
                tablet,
                channel << 56 | generation << 24 | step >> 8,
                (step & 0xFF) << 56 | cookie << 32 | crc_mode << 30 | size << 4 | part,
            )
        )

    @classmethod
    def from_key(cls, key: bytes) -> "BlobId":
        """The id that `key` stands for."""
        tablet, high, low = _WORDS.unpack(key)
        return cls(
            tablet=tablet,
            channel=high >> 56,
            generation=high >> 24 & 0xFFFFFFFF,
            step=(high & 0xFFFFFF) << 8 | low >> 56,
            cookie=low >> 32 & 0xFFFFFF,
            size=low >> 4 & 0x3FFFFFF,
            crc_mode=low >> 30 & 3,
            part=low & 15,
        )

    def __str__(self) -> str:
        return (
            f"[{self.tablet}:{self.generation}:{self.step}:{self.channel}:{self.cookie}:{self.size}:{self.part}]"
        )

    @classmethod
    def parse(cls, text: str) -> "BlobId":
        """The id written as `[tablet:generation:step:channel:cookie:size:part]`. ValueError when it is none."""
        fields = text[1:-1].split(":")
        if text[:1] + text[-1:] != "[]" or len(fields) != 7 or not all(map(_is_number, fields)):
            raise ValueError(f"{text!r} is no blob id; one looks like [12345:1:1:0:0:1000:0]")
        tablet, generation, step, channel, cookie, size, part = map(int, fields)
        blob = cls(TabletId(tablet), channel, generation, step, cookie, size, part=part)
        blob.key()
        return blob


def blob_size(key: bytes, position: int = 0) -> int:
    """Bytes of the blob whose key starts at `position`; the id carries them."""
    return int.from_bytes(key[position + 20 : position + 24], "big") >> 4 & SIZE_MAX


def channel_bounds(tablet: TabletId, channel: int) -> tuple[BlobKey, BlobKey]:
    """Keys [lo, hi) that hold every blob of a tablet's channel."""
    lo = _TABLET_AND_CHANNEL.pack(tablet, channel).ljust(24, b"\0")
    if channel < CHANNEL_MAX:
        return BlobKey(lo), BlobKey(_TABLET_AND_CHANNEL.pack(tablet, channel + 1).ljust(24, b"\0"))
    return BlobKey(lo), tablet_bounds(tablet)[1]


def tablet_bounds(tablet: TabletId) -> tuple[BlobKey, BlobKey]:
    """Keys [lo, hi) that hold every blob of a tablet. The last tablet id of all is never given out."""
    lo, hi = (number.to_bytes(8, "big").ljust(24, b"\0") for number in (tablet, tablet + 1))
    return BlobKey(lo), BlobKey(hi)


def after_step(tablet: TabletId, channel: int, generation: int, step: int) -> BlobKey:
    """The first key behind every blob of the channel at or before (generation, step)."""
    if step == STEP_MAX:
        generation, step = generation + 1, -1
    if generation > GENERATION_MAX:
        return channel_bounds(tablet, channel)[1]
    return BlobKey(_POSITION.pack(tablet, channel, generation, step + 1).ljust(24, b"\0"))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()
