"""One choice of chunks for a task: those it takes, the reason, and what keeps each other chunk out."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from pqbroker.tables.sorted.picking.due_times import is_due, is_forced
from pqbroker.tables.sorted.picking.facts import ChunkStore, TabletStores


class PickReason(StrEnum):
    """Reasons of a task, as they are shown."""

    WHOLE_PARTITION = "periodic, the whole partition"
    FORCED = "forced"
    OUT_OF_RANGE = "outside the tablet's range"
    PERIODIC = "periodic"
    CRITICAL = "too many chunks over one key"
    REGULAR = "regular"
    EXPIRED = "all versions are older than max_data_ttl"


class LeftOut(StrEnum):
    """Reasons that keep a chunk out of a task, as they are shown."""

    DAMAGED = "is damaged"
    BUSY = "another task reads it"
    BACKING_OFF = "its last task failed a short time ago"
    LARGE = "has the size to be partitioned"
    WAITING = "waits until the whole partition can be compacted"
    NOT_CALLED_FOR = "the reason does not concern it"
    OVER_MAXIMUM = "the task has as many chunks as are allowed"
    SIZE = "its size does not fit to the others"


@dataclass(frozen=True, slots=True)
class Choice:
    """Chunks for one task; without a reason it takes none."""

    reason: PickReason | None
    inputs: tuple[ChunkStore, ...]
    left_out: Mapping[int, LeftOut]
    """Reasons of the others, by the number of the chunk."""

    @property
    def numbers(self) -> tuple[int, ...]:
        """Return the numbers of the chunks it takes."""
        return tuple(chunk.number for chunk in self.inputs)

    @property
    def compressed_bytes(self) -> int:
        """Return the bytes that the task reads."""
        return sum(chunk.compressed_bytes for chunk in self.inputs)


@dataclass(frozen=True, slots=True)
class Candidates:
    """Chunks of one place that a task may take, and those it may not."""

    chunks: tuple[ChunkStore, ...]
    left_out: Mapping[int, LeftOut]

    def taking(self, reason: PickReason, inputs: Iterable[ChunkStore], others: LeftOut) -> Choice:
        """Return the choice of some; `others` is what keeps the rest out."""
        taken = tuple(inputs)
        return self._choice(reason, taken, others)

    def taking_none(self, others: LeftOut) -> Choice:
        """Return the choice of none of them."""
        return self._choice(None, (), others)

    def _choice(self, reason: PickReason | None, taken: tuple[ChunkStore, ...], others: LeftOut) -> Choice:
        numbers = {chunk.number for chunk in taken}
        rest = {chunk.number: others for chunk in self.chunks if chunk.number not in numbers}
        return Choice(reason, taken, {**self.left_out, **rest})


def candidates(chunks: Iterable[ChunkStore], now_ms: int, elsewhere: Collection[int] = ()) -> Candidates:
    """Return the chunks that a task may read now; `elsewhere`: numbers of those that a task was just given."""
    found, left_out = [], {}
    for chunk in chunks:
        if chunk.is_damaged:
            left_out[chunk.number] = LeftOut.DAMAGED
        elif chunk.is_busy or chunk.number in elsewhere:
            left_out[chunk.number] = LeftOut.BUSY
        elif now_ms < chunk.backoff_until_ms:
            left_out[chunk.number] = LeftOut.BACKING_OFF
        else:
            found.append(chunk)
    return Candidates(tuple(found), left_out)


def out_of_order(tablet: TabletStores, chunk: ChunkStore, now_ms: int) -> PickReason | None:
    """Return what has this chunk rewritten whatever its size: it is forced, out of range or due (C.5, C.6)."""
    if is_forced(chunk, tablet.attributes):
        return PickReason.FORCED
    if not chunk.lies_within(tablet.pivot, tablet.end):
        return PickReason.OUT_OF_RANGE
    return PickReason.PERIODIC if is_due(tablet.tablet_id, chunk, tablet.attributes, now_ms) else None


_URGENCY = (PickReason.FORCED, PickReason.OUT_OF_RANGE, PickReason.PERIODIC)


def by_urgency(
    reasons: Mapping[int, PickReason], chunks: Iterable[ChunkStore]
) -> tuple[PickReason, tuple[ChunkStore, ...]]:
    """Return the first reason and the chunks that have one: by reason, the oldest first. At least one chunk has one."""
    having = sorted(
        (chunk for chunk in chunks if chunk.number in reasons),
        key=lambda chunk: (_URGENCY.index(reasons[chunk.number]), *age_order(chunk)),
    )
    return reasons[having[0].number], tuple(having)


def age_order(chunk: ChunkStore) -> tuple[int, int]:
    """Return the place of a chunk among others, the oldest first."""
    return chunk.created_ms, chunk.number


def size_order(chunk: ChunkStore) -> tuple[int, int, int]:
    """Return the place of a chunk among others, the smallest first, then the oldest."""
    return chunk.compressed_bytes, chunk.created_ms, chunk.number
