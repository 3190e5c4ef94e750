"""The last cleaning of a partition: the row beside its log (semantics G.3)."""

from struct import Struct
from typing import NamedTuple

from pqbroker.pq.log.keys import OFFSET_MAX
from pqbroker.storage.unreadable import check_version

_ROW = Struct(">Bqqq")
_VERSION = 1
_NEVER = -1


class CleanedLog(NamedTuple):
    """The last cleaning that ended, of a log of which a part may have been deleted since."""

    end: int
    """All records before were cleaned, by the keys that there were then before it."""
    ended_ms: int
    """Time of its end, in milliseconds since 1970."""
    due_ms: int | None = None
    """Time when the first tombstone that it left may go; None: none waits for its time alone."""

    def encode(self) -> bytes:
        return _ROW.pack(_VERSION, self.end, self.ended_ms, _NEVER if self.due_ms is None else self.due_ms)

    @classmethod
    def decode(cls, stored: bytes) -> "CleanedLog":
        """ValueError for what no `encode` of this version writes."""
        check_version(stored, _VERSION)
        if len(stored) != _ROW.size:
            raise ValueError(f"it has {len(stored)} bytes, not {_ROW.size}")
        _, end, ended_ms, due_ms = _ROW.unpack(stored)
        if not 0 <= end <= OFFSET_MAX or ended_ms < 0 or due_ms < _NEVER:
            raise ValueError(f"it was cleaned up to offset {end} at {ended_ms}, and is due at {due_ms}")
        return cls(end, ended_ms, None if due_ms == _NEVER else due_ms)


NEVER_CLEANED = CleanedLog(0, 0)
