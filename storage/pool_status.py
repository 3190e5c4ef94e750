"""Fullness of a pool, as a colour: what the floors above may still write (spec B.3, A.12)."""

from dataclasses import dataclass
from enum import IntEnum

_MIB = 1 << 20
_YELLOW_PART = 10
_LIGHT_YELLOW_PART = 5


class Colour(IntEnum):
    """Grows with how full a pool is. The numbers are those of the KV tablet's public status."""

    GREEN = 10
    LIGHT_YELLOW_MOVE = 15
    """Move channels elsewhere; everything continues."""
    YELLOW_STOP = 20
    """Users stop writing; deletes, and rewriting what is stored, continue."""
    ORANGE_OUT_SPACE = 30
    """The engine refuses blobs: what is left is for deletes."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Bytes free beyond the reserve below which a pool has each colour; a part of the disk, where that is less."""

    light_yellow_bytes: int = 1024 * _MIB
    yellow_bytes: int = 256 * _MIB

    def colour(self, spare_bytes: int, total_bytes: int) -> Colour:
        """`spare_bytes`: free beyond the reserve; below zero when that is touched."""
        if spare_bytes <= 0:
            return Colour.ORANGE_OUT_SPACE
        if spare_bytes < min(self.yellow_bytes, total_bytes // _YELLOW_PART):
            return Colour.YELLOW_STOP
        if spare_bytes < min(self.light_yellow_bytes, total_bytes // _LIGHT_YELLOW_PART):
            return Colour.LIGHT_YELLOW_MOVE
        return Colour.GREEN


DEFAULT_THRESHOLDS = Thresholds()
