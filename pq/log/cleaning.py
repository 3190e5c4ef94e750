"""Rules of the cleaner of compacted topics, pure: which records of adjacent bodies stay (semantics G.3, KIP-534).

Of each key the last record below a bound stays, and what is at the bound or behind it. Batches keep base offset, last
offset and producer; records keep their offsets. The last offset of the bodies stays in a batch, without records if need
be. Records without a key, which a topic may have from before it was compacted, stay as they are; so does a batch that
is damaged or unpacks over the limit: it is named.

Records of aborted Kafka transactions go. A marker gets a delete horizon in the first cleaning that meets no batch of
its transaction, since an earlier one took them all, and goes in the first one after its horizon: a reader who has met
batches of the transaction meets their end. It stays while its transaction is noted as aborted, which the end of a
cleaning forgets: a reader whose answer names the transaction leaves out all that its producer wrote up to the marker.

A tombstone hides older records of its key from a reader who has seen them. Its batch gets a delete horizon in the first
cleaning after which no such record is left before it, and it goes in the first one after its horizon: records before it
never come back. Kafka sets horizons at the first cleaning that reaches a tombstone, which there begins at the start of
the log: the same. Here a cleaning may begin anywhere: its caller says whether all before was cleaned by the same keys.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from pqbroker.pq.log.cleaning_keys import LastOffsets
from pqbroker.pq.log.producer_transactions import AbortedBatches
from pqbroker.protocol.cleaned_batches import (
    PlacedRecord,
    PlacedRecords,
    batch_of,
    delete_horizon,
    empty_batch,
    place_records,
)
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.records import BatchHeader, read_header
from pqbroker.storage.engine import Buffer

RECORD_BYTES_LEAST: Final = 64
"""Least size with which a record counts against the limit of a batch: in memory it takes a few times that."""


class CleanedTransactions:
    """Kafka transactions on the way of one cleaning through a log, from its start on."""

    __slots__ = ("_met", "aborted", "emptied")

    def __init__(self) -> None:
        self._met: set[int] = set()
        """Producers of whose transaction a batch was met since their last marker."""
        self.aborted: AbortedBatches | None = None
        """Aborted batches where the cleaning is now; None: there are none."""
        self.emptied: list[int] = []
        """Offsets of markers whose transactions have no batch left."""

    def mark(self) -> tuple[set[int], int]:
        """Return what `back` needs to come here again."""
        return set(self._met), len(self.emptied)

    def back(self, mark: tuple[set[int], int]) -> None:
        """Forget the batches that were met since a mark: those that are left of them are met again."""
        met, count = mark
        self._met = set(met)
        del self.emptied[count:]

    def meet(self, header: BatchHeader) -> bool:
        """Meet a batch of a transaction; return True if it was aborted."""
        self._met.add(header.producer_id)
        return self.aborted is not None and self.aborted.has(header)

    def end(self, header: BatchHeader, *, is_known: bool) -> bool:
        """Meet a marker; return True if its transaction has no batch left. `is_known`: all batches before were read."""
        is_empty = is_known and header.producer_id not in self._met
        self._met.discard(header.producer_id)
        if is_empty:
            self.emptied.append(header.base_offset)
        return is_empty

    def is_noted(self, header: BatchHeader) -> bool:
        """Return True if a marker's transaction is noted as aborted; where it is empty a cleaning was cut short."""
        return self.aborted is not None and self.aborted.have_end(header)


class CleaningRules(NamedTuple):
    """One cleaning's rules. `bound`: batches that reach it, or lie behind it, stay as they are."""

    last: LastOffsets
    """The keys of all batches from where the cleaning began to look up to the bound."""
    bound: int
    now_ms: int
    delete_retention_ms: int
    unpacked_bytes_max: int
    transactions: CleanedTransactions | None = None
    """None: batches of transactions are as others, and markers stay."""


class CleanedBodies(NamedTuple):
    """Batches that a cleaning leaves of adjacent bodies, and what it found there."""

    batches: Sequence[Buffer]
    is_clean: bool
    """True if here and before everything was cleaned by the same keys: nothing that a tombstone behind hides is
    left."""
    records: int
    records_gone: int
    tombstones_gone: int
    keyless: int
    """Records without a key: they stay for ever."""
    unread: Sequence[int]
    """Base offsets of batches that stay because they are damaged or too large."""
    due_ms: int | None
    """Time when the first tombstone or marker that is left may go; None: none waits for its time alone."""


def clean(
    batches: Sequence[memoryview], end: int, rules: CleaningRules, *, is_clean_before: bool
) -> CleanedBodies:
    """Clean the batches of adjacent bodies that end at the offset `end`.

    `is_clean_before`: all batches before were cleaned by the same keys, or there are none.
    """
    cleaning = _Cleaning(rules, end, is_clean_before)
    for batch in batches:
        cleaning.take(batch)
    return cleaning.finish(batches[-1])


def place_within(batch: memoryview, unpacked_bytes_max: int) -> PlacedRecords:
    """Take a batch apart. KafkaError where it is damaged, or has more bytes or records than a cleaning unpacks."""
    count = read_header(batch).record_count
    if count * RECORD_BYTES_LEAST > unpacked_bytes_max:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"a batch of {count} records is larger than {unpacked_bytes_max}")
    return place_records(batch, unpacked_bytes_max)


class _Cleaning:
    """The cleaning of adjacent bodies while it goes through their batches."""

    __slots__ = ("_due_ms", "_end", "_gone", "_is_clean", "_keyless", "_left", "_records", "_rules", "_tombstones_gone",
                 "_unread")  # fmt: skip

    def __init__(self, rules: CleaningRules, end: int, is_clean: bool) -> None:
        self._rules = rules
        self._end = end
        self._is_clean = is_clean
        self._left: list[Buffer] = []
        self._unread: list[int] = []
        self._records = self._gone = self._tombstones_gone = self._keyless = 0
        self._due_ms: int | None = None

    def take(self, batch: memoryview) -> None:
        """Take the next batch."""
        header, transactions = read_header(batch), self._rules.transactions
        if header.last_offset >= self._rules.bound:
            self._left.append(batch)
            self._is_clean = self._is_clean and header.is_control
            return
        if header.is_control:
            self._take_marker(batch, header)
            return
        if header.is_transactional and transactions is not None and transactions.meet(header):
            self._records += header.record_count
            self._gone += header.record_count
            return
        try:
            placed = place_within(batch, self._rules.unpacked_bytes_max)
        except KafkaError:
            self._left.append(batch)
            self._unread.append(header.base_offset)
            self._is_clean = False
            return
        self._take_placed(batch, placed)

    def finish(self, last: memoryview) -> CleanedBodies:
        """Return what is left; `last`: the last of the batches."""
        header = read_header(last)
        reached = read_header(self._left[-1]).last_offset if self._left else -1
        if reached < self._end - 1:
            base = header.base_offset if header.last_offset == self._end - 1 else self._end - 1
            self._left.append(empty_batch(header, base, self._end - 1))
        return CleanedBodies(
            self._left, self._is_clean, self._records, self._gone, self._tombstones_gone, self._keyless, self._unread,
            self._due_ms,
        )  # fmt: skip

    def _take_marker(self, batch: memoryview, header: BatchHeader) -> None:
        """Keep a marker until its time has come, once its transaction has no batch left."""
        transactions, now_ms = self._rules.transactions, self._rules.now_ms
        horizon = delete_horizon(header)
        if transactions is None or not transactions.end(header, is_known=self._is_clean):
            self._left.append(batch)
            return
        if horizon is not None and horizon <= now_ms and not transactions.is_noted(header):
            return
        if horizon is None:
            horizon = now_ms + self._rules.delete_retention_ms
            try:
                placed = place_within(batch, self._rules.unpacked_bytes_max)
            except KafkaError:
                self._left.append(batch)
                self._unread.append(header.base_offset)
                return
            self._left.append(batch_of(placed, placed.records, horizon))
        else:
            self._left.append(batch)
        self._due_ms = horizon if self._due_ms is None else min(self._due_ms, horizon)

    def _take_placed(self, batch: memoryview, placed: PlacedRecords) -> None:
        kept = [record for record in placed.records if self._stays(record, placed.header)]
        self._records += len(placed.records)
        self._gone += len(placed.records) - len(kept)
        if not kept:
            return
        horizon = delete_horizon(placed.header)
        new = None
        tombstones = [record for record in kept if record.is_tombstone and record.key is not None]
        if tombstones and horizon is None and self._is_clean and self._are_known(tombstones):
            horizon = new = self._rules.now_ms + self._rules.delete_retention_ms
        if tombstones and horizon is not None:
            self._due_ms = horizon if self._due_ms is None else min(self._due_ms, horizon)
        unchanged = new is None and len(kept) == len(placed.records)
        self._left.append(batch if unchanged else batch_of(placed, kept, new))

    def _stays(self, record: PlacedRecord, header: BatchHeader) -> bool:
        if record.key is None:
            self._keyless += 1
            return True
        if self._rules.last.last(record.key) > record.offset:
            return False
        horizon = delete_horizon(header)
        if record.is_tombstone and horizon is not None and horizon <= self._rules.now_ms:
            self._tombstones_gone += 1
            return False
        return True

    def _are_known(self, tombstones: Sequence[PlacedRecord]) -> bool:
        """Return True if the cleaning took out what these tombstones hide: their keys are among its keys."""
        last = self._rules.last
        return all(record.key is not None and last.last(record.key) == record.offset for record in tombstones)
