"""Rules of CollectGarbage: barriers that only move forward, and the flags that keep a blob below one (spec B.3)."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from struct import Struct

from pqbroker.storage.blobs.blob_id import after_step, channel_bounds
from pqbroker.storage.engine import BlobKey
from pqbroker.storage.ids import TabletId
from pqbroker.storage.unreadable import check_version

Position = tuple[int, int]
"""Generation and step."""

_FORMAT = 1
_ROW = Struct(">BIIIIII16s")


class GarbageRefused(ValueError):
    """A collection that is older than what was done already, or names blobs that are not its channel's."""


@dataclass(frozen=True, slots=True)
class Collection:
    """One CollectGarbage: blobs of the channel at or before `barrier` go, but those that are kept.

    (`generation`, `counter`) grows from one collection of a tablet's channel to the next. A `hard` barrier heeds no
    flag. `do_not_keep` takes back an earlier `keep`, for good.
    """

    tablet: TabletId
    channel: int
    generation: int
    counter: int
    barrier: Position | None = None
    keep: tuple[BlobKey, ...] = ()
    do_not_keep: tuple[BlobKey, ...] = ()
    hard: bool = False

    def digest(self) -> bytes:
        """Tells an exact repetition from another collection under the same counter."""
        return blake2b(repr(self).encode(), digest_size=16).digest()

    def check(self) -> None:
        """Raise GarbageRefused when a flag is for another channel's blob."""
        lo, hi = channel_bounds(self.tablet, self.channel)
        foreign = [blob for blob in (*self.keep, *self.do_not_keep) if not lo <= blob < hi]
        if foreign:
            raise GarbageRefused(f"blob {foreign[0].hex()} is not of tablet {self.tablet}, channel {self.channel}")


@dataclass(frozen=True, slots=True)
class Barriers:
    """Barriers of a channel, and the collection that moved them last."""

    generation: int = 0
    counter: int = 0
    soft: Position = (0, 0)
    hard: Position = (0, 0)
    digest: bytes = field(default=b"\0" * 16)

    def repeats(self, collection: Collection) -> bool:
        """Return True if this very collection was the last one."""
        return (self.generation, self.counter, self.digest) == (
            collection.generation,
            collection.counter,
            collection.digest(),
        )

    def moved(self, collection: Collection) -> "Barriers":
        """The barriers after the collection. GarbageRefused when it comes too late."""
        if (collection.generation, collection.counter) <= (self.generation, self.counter):
            raise GarbageRefused(f"{collection} comes after counter {self.generation}:{self.counter}")
        stamped = replace(
            self, generation=collection.generation, counter=collection.counter, digest=collection.digest()
        )
        if collection.barrier is None:
            return stamped
        if collection.barrier < (self.hard if collection.hard else self.soft):
            raise GarbageRefused(f"{collection} would move a barrier back: {self}")
        if collection.hard:
            return replace(stamped, hard=collection.barrier)
        return replace(stamped, soft=collection.barrier)

    def end(self, tablet: TabletId, channel: int) -> BlobKey:
        """The first blob key behind both barriers."""
        return after_step(tablet, channel, *max(self.soft, self.hard))

    def condemned(
        self, tablet: TabletId, channel: int, blobs: Iterable[BlobKey], kept: frozenset[BlobKey]
    ) -> list[BlobKey]:
        """Return those of the blobs that are garbage."""
        soft = after_step(tablet, channel, *self.soft)
        hard = after_step(tablet, channel, *self.hard)
        return [blob for blob in blobs if blob < hard or (blob < soft and blob not in kept)]

    def encode(self) -> bytes:
        return _ROW.pack(_FORMAT, self.generation, self.counter, *self.soft, *self.hard, self.digest)

    @classmethod
    def decode(cls, row: bytes | None) -> "Barriers":
        """ValueError for a row of another form."""
        if row is None:
            return cls()
        check_version(row, _FORMAT)
        if len(row) != _ROW.size:
            raise ValueError(f"it has {len(row)} bytes, not {_ROW.size}")
        _, generation, counter, soft_generation, soft_step, hard_generation, hard_step, digest = _ROW.unpack(row)
        return cls(generation, counter, (soft_generation, soft_step), (hard_generation, hard_step), digest)
