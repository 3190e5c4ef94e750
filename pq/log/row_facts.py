"""Facts of rows that a write cycle knows and their records do not say: commit timestamps and weights (E.8).

It is kept for the tables that ask for it, beside each blob, in a row of its own that the blob's request writes: a head
blob that is merged takes its row along. Weights count from row 0 of the tablet on, trimmed rows included; what was
written before the table asked counts with its stored bytes.
"""

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from struct import Struct
from typing import NamedTuple, Union

from pqbroker.pq.log.body import Bodies
from pqbroker.pq.log.commit_timestamps import CommitTimestamps
from pqbroker.pq.log.head import Head, HeadBlob, first_kept
from pqbroker.pq.log.keys import OFFSET_MAX, facts_key, facts_range, facts_start
from pqbroker.storage.kv.commands import DeleteRange
from pqbroker.storage.kv.owned_keys import Put
from pqbroker.storage.unreadable import check_version

TIMESTAMP = "$timestamp"
CUMULATIVE_WEIGHT = "$cumulative_data_weight"
FACT_COLUMNS = (TIMESTAMP, CUMULATIVE_WEIGHT)
"""The columns of a schema that are made of facts."""
RowWeights = Sequence[int]
"""Bytes of each row of a batch, in order."""
Weighed = Union[RowWeights, "RowFacts", None]
"""None: nobody has weighed them. Facts: they are known already."""
_VERSION = 1
_HEADER = Struct(">BII")


class RowFact(NamedTuple):
    """One row's facts: its commit timestamp, and the weight of the tablet's rows up to it."""

    row_index: int
    timestamp: int
    cumulative_weight: int


class RowFacts:
    """The facts of rows in their order. Columns: for each commit its first row, its timestamp and its count of rows;
    the weight of each row."""

    __slots__ = ("_counts", "_firsts", "_timestamps", "_weights", "weight_after", "weight_before")

    def __init__(self, weight_before: int) -> None:
        self.weight_before = self.weight_after = weight_before
        self._firsts = array("Q")
        self._timestamps = array("Q")
        self._counts = array("I")
        self._weights = array("I")

    def __len__(self) -> int:
        return len(self._weights)

    def __iter__(self) -> Iterator[RowFact]:
        weights = accumulate(self._weights, initial=self.weight_before)
        next(weights)
        for first, timestamp, count in zip(self._firsts, self._timestamps, self._counts, strict=True):
            for row_index in range(first, first + count):
                yield RowFact(row_index, timestamp, next(weights))

    @property
    def greatest_timestamp(self) -> int:
        """The greatest timestamp of a commit; 0 without rows. Glued rows may have lesser ones than the rows before."""
        return max(self._timestamps, default=0)

    def stamp(self, first_row: int, timestamp: int) -> bool:
        """Give the commits of the rows from `first_row` on another timestamp; False if there are none."""
        first = bisect_left(self._firsts, first_row)
        for number in range(first, len(self._firsts)):
            self._timestamps[number] = timestamp
        return first < len(self._firsts)

    def may_have_timestamp(self, least: int, most: int) -> bool:
        """Return True if a timestamp from `least` to `most` is between those of the commits."""
        timestamps = self._timestamps
        return bool(timestamps) and min(timestamps) <= most and max(timestamps) >= least

    def append(self, first_row: int, timestamp: int, weights: RowWeights) -> None:
        """The rows of one commit, behind the others."""
        self._firsts.append(first_row)
        self._timestamps.append(timestamp)
        self._counts.append(len(weights))
        self._weights.extend(weights)
        self.weight_after += sum(weights)

    def extend(self, others: "RowFacts") -> None:
        """The rows that come next."""
        self._firsts.extend(others._firsts)
        self._timestamps.extend(others._timestamps)
        self._counts.extend(others._counts)
        self._weights.extend(others._weights)
        self.weight_after += others.weight_after - others.weight_before

    def take_over(self, others: "RowFacts", end: int) -> None:
        """The facts of rows that came from elsewhere and end before `end` here."""
        at = 0
        for timestamp, count in zip(others._timestamps, others._counts, strict=True):
            self.append(end - len(others) + at, timestamp, others._weights[at : at + count])
            at += count

    def between(self, start: int, end: int) -> "RowFacts":
        """Return the facts of the rows [start, end)."""
        firsts, counts = self._firsts, self._counts
        low, high = max(bisect_right(firsts, start) - 1, 0), bisect_left(firsts, end)
        if low < high and start >= firsts[low] + counts[low]:
            low += 1
        at = sum(counts[:low])
        found = RowFacts(self.weight_before)
        if low >= high or start >= end:
            return found
        found._firsts, found._timestamps = firsts[low:high], self._timestamps[low:high]
        found._counts = counts[low:high]
        before, after = max(start - firsts[low], 0), max(firsts[high - 1] + counts[high - 1] - end, 0)
        found._firsts[0] += before
        found._counts[0] -= before
        found._counts[-1] -= after
        found._weights = self._weights[at + before : at + sum(counts[low:high]) - after]
        found.weight_before += sum(self._weights[: at + before])
        found.weight_after = found.weight_before + sum(found._weights)
        return found

    def encode(self) -> bytes:
        """Return the facts as they are stored; `weight_before` is in the key."""
        header = _HEADER.pack(_VERSION, len(self._counts), len(self._weights))
        columns = (self._firsts, self._timestamps, self._counts, self._weights)
        return b"".join((header, *(_little(column).tobytes() for column in columns)))

    @classmethod
    def decode(cls, weight_before: int, stored: bytes) -> "RowFacts":
        """ValueError for what no `encode` of this version writes."""
        check_version(stored, _VERSION)
        if len(stored) < _HEADER.size:
            raise ValueError(f"it has {len(stored)} bytes")
        _, commits, rows = _HEADER.unpack_from(stored)
        if len(stored) != _HEADER.size + 20 * commits + 4 * rows:
            raise ValueError(f"it has {len(stored)} bytes and counts {commits} commits of {rows} rows")
        found = cls(weight_before)
        at = _HEADER.size
        for column, size in (
            (found._firsts, 8 * commits), (found._timestamps, 8 * commits), (found._counts, 4 * commits),
            (found._weights, 4 * rows),
        ):  # fmt: skip
            column.frombytes(stored[at : at + size])
            at += size
            if sys.byteorder != "little":
                column.byteswap()
        if sum(found._counts) != rows:
            raise ValueError(f"its commits have {sum(found._counts)} rows, and it has {rows}")
        found.weight_after += sum(found._weights)
        return found


class BlobFacts(NamedTuple):
    """The facts in a blob's key: the blob's first offset, and the weight of all rows before it and with it."""

    offset: int
    weight_before: int
    weight_after: int

    def key(self, partition: int) -> bytes:
        return facts_key(partition, *self)


class FactsChange(NamedTuple):
    """The changes that a cycle makes to the facts."""

    puts: list[Put]
    gone: list[bytes]
    replaced: Sequence[int]
    """First offsets of the head blobs that are no more as they were."""
    made: list[tuple[BlobFacts, RowFacts]]
    """Facts of the blobs that replace them."""


class PartitionFacts:
    """The facts of one partition: of its head in memory, of its bodies where they are."""

    __slots__ = ("_head", "_index", "_timestamps", "blobs")

    def __init__(
        self, index: int, stored: Iterable[tuple[BlobFacts, RowFacts | None]], timestamps: CommitTimestamps
    ) -> None:
        """`stored`: of each blob in order, with the facts of those of the head; of the last one always. `timestamps`
        gives commits theirs."""
        self._index = index
        self._timestamps = timestamps
        self._head: dict[int, RowFacts] = {}
        """Facts of the head's blobs, by first offset."""
        self.blobs: list[BlobFacts] = []
        """Facts of bodies and head blobs, oldest first."""
        for blob, facts in stored:
            self.blobs.append(blob)
            if facts is not None:
                self._head[blob.offset] = facts
                timestamps.saw(facts.greatest_timestamp)

    @property
    def weight(self) -> int:
        """Return the weight of all rows from row 0 on; 0 when nothing was kept so far."""
        return self.blobs[-1].weight_after if self.blobs else 0

    def begin(self, size_bytes: int) -> RowFacts:
        """Return the facts that a cycle's rows are added to; `size_bytes`: the size of the rows that are stored."""
        return RowFacts(self.weight if self.blobs else size_bytes)

    def of_head(self, blob: BlobFacts) -> RowFacts | None:
        """Return the facts of a blob that are in memory."""
        found = self._head.get(blob.offset)
        return found if found is not None and found.weight_after == blob.weight_after else None

    def take(self, rows: RowFacts, end_offset: int, weights: RowWeights | RowFacts, now_ms: int) -> None:
        """Add the commit of the rows before `end_offset`."""
        if isinstance(weights, RowFacts):
            rows.take_over(weights, end_offset)
            return
        rows.append(end_offset - len(weights), self._timestamps.give(now_ms), weights)

    def unstamped(self, weight: int) -> RowFacts:
        """Return the facts of one row that shares the last timestamp given: none has to be reserved for it."""
        facts = RowFacts(0)
        facts.append(0, self._timestamps.last, [weight])
        return facts

    def kept_weight(self, bodies: Bodies, head: Head) -> int:
        """Return the weight of the stored rows; rows that nothing is known of count with their stored bytes."""
        first = bisect_left(self.blobs, first_kept(bodies, head, 0), key=_offset)
        offset, before = self.blobs[first][:2] if first < len(self.blobs) else (OFFSET_MAX, self.weight)
        unknown = sum(bodies.sizes[: bodies.find(offset)]) + sum(blob.size for blob in head.blobs if blob.end <= offset)
        return unknown + self.weight - before

    def plan(
        self, rows: RowFacts | None, replaced: Sequence[HeadBlob], made: Sequence[tuple[int, int]]
    ) -> FactsChange | None:
        """Return what has to be stored where new rows and the head blobs `replaced` become the blobs `made`: offset and
        end of each. None: nothing."""
        old = [blob.offset for blob in replaced if blob.offset in self._head]
        parts = [self._head[offset] for offset in old]
        if rows is not None and len(rows):
            parts.append(rows)
        if not parts:
            return None
        pooled = RowFacts(parts[0].weight_before)
        for part in parts:
            pooled.extend(part)
        gone = {blob.key(self._index) for blob in self.blobs[len(self.blobs) - len(old) :]}
        change = FactsChange([], [], old, [])
        for offset, end in made:
            facts = pooled.between(offset, end)
            if not len(facts):
                continue
            blob = BlobFacts(offset, facts.weight_before, facts.weight_after)
            change.made.append((blob, facts))
            key = blob.key(self._index)
            if key in gone:
                gone.remove(key)
            else:
                stored = facts.encode()
                change.puts.append((key, (stored,), len(stored), False))
        change.gone.extend(gone)
        return change

    def stamp(self, change: FactsChange, first_row: int, timestamp: int) -> dict[bytes, bytes]:
        """Give the rows from `first_row` on, of a change that is not stored yet, another timestamp: what is stored
        then, by key."""
        changed = ((blob, facts) for blob, facts in change.made if facts.stamp(first_row, timestamp))
        return {blob.key(self._index): facts.encode() for blob, facts in changed}

    def apply(self, change: FactsChange, head_offset: int | None) -> None:
        """The change is durable. `head_offset`: where the newest head blob begins."""
        del self.blobs[len(self.blobs) - len(change.replaced) :]
        for offset in change.replaced:
            del self._head[offset]
        for blob, facts in change.made:
            self.blobs.append(blob)
            if blob.offset == head_offset:
                self._head[blob.offset] = facts

    def trim(self, offset: int) -> DeleteRange | None:
        """The command that deletes what lies before the blob at `offset`, the first that stays; None: nothing does.

        The last facts stay even if their rows go: later weights continue from them.
        """
        if not self.blobs or self.blobs[0].offset >= min(offset, self.blobs[-1].offset):
            return None
        end = facts_start(self._index, min(offset, self.blobs[-1].offset))
        return DeleteRange(facts_range(self._index)[0], True, end, False)

    def apply_trim(self, offset: int) -> None:
        """Drop the facts of what lies before the offset: it is gone."""
        gone = bisect_left(self.blobs[:-1], offset, key=_offset)
        for blob in self.blobs[:gone]:
            self._head.pop(blob.offset, None)
        del self.blobs[:gone]


def _offset(blob: BlobFacts) -> int:
    return blob.offset


def row_weights(given: Weighed, count: int, size_bytes: int) -> "RowWeights | RowFacts":
    """The weights of a batch's rows; stored bytes, evenly, where nobody has weighed them."""
    if given is not None and len(given) == count:
        return given
    return [max(size_bytes // count, 1)] * count


def _little(column: "array[int]") -> "array[int]":
    """Return the column as it is stored."""
    if sys.byteorder == "little":
        return column
    swapped = column[:]
    swapped.byteswap()
    return swapped
