"""A PQ tablet: its KV rows and the blobs they hold, then each partition's keys, state and records."""

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field

from pqbroker.doctor.contents import check_body, check_head, require
from pqbroker.doctor.findings import NEXT_START, RESTORE, SKIPPED, Findings
from pqbroker.doctor.key_values import check_holders, read_entries, text_of
from pqbroker.doctor.stored_blobs import StoredBlobs, name_of
from pqbroker.pq.log import consumers, producers
from pqbroker.pq.log.cleaned_log import CleanedLog
from pqbroker.pq.log.keys import (
    USERS,
    cleaned_key,
    foreign_ranges,
    meta_key,
    parse_aborted_key,
    parse_consumer_key,
    parse_data_key,
    parse_facts_key,
    parse_producer_key,
    parse_session_key,
    parse_transaction_key,
    renumbered,
)
from pqbroker.pq.log.levels import check_levels
from pqbroker.pq.log.prepared_batches import PreparedBatches
from pqbroker.pq.log.producer_transactions import AbortedSpan, check_span
from pqbroker.pq.log.row_facts import BlobFacts, RowFacts
from pqbroker.pq.log.sessions import SessionBatch
from pqbroker.pq.log.staged_rows import check_key
from pqbroker.pq.log.start_state import Meta, StartState, StoredBlob, build_start_state
from pqbroker.pq.transactions.stored_forms import CommitDecision, PreparedRows, TransactionId
from pqbroker.storage.engine import BlobCorrupt, BlobMissing
from pqbroker.storage.kv.key_ranges import GENERATION_KEY
from pqbroker.storage.kv.rows import Entry
from pqbroker.storage.tablets.tablet import TabletRecord

_UNREADABLE = (struct.error, ValueError)
_PARTITION = slice(1, 11)
_HALF_STORED = b"x"
_STAGED = (b"s", b"t")
"""Rows that wait for the commit of their batch, and batches that are being written."""
_MARK_AT = 11


def _require_same(known: TransactionId, transaction: TransactionId) -> None:
    """Require that a value is of the transaction in its key. ValueError."""
    require(known == transaction, f"it is of transaction {known.hex()}")


@dataclass(slots=True)
class Keys:
    """The entries of one partition by what they are, in key order."""

    data: list[tuple[bytes, Entry]] = field(default_factory=list)
    producers: list[tuple[bytes, Entry]] = field(default_factory=list)
    consumers: list[tuple[bytes, Entry]] = field(default_factory=list)
    sessions: list[tuple[bytes, Entry]] = field(default_factory=list)
    facts: list[tuple[bytes, Entry]] = field(default_factory=list)
    prepared: list[tuple[bytes, Entry]] = field(default_factory=list)
    decisions: list[tuple[bytes, Entry]] = field(default_factory=list)
    aborted: list[tuple[bytes, Entry]] = field(default_factory=list)
    meta: Entry | None = None
    cleaned: Entry | None = None


@dataclass(frozen=True, slots=True)
class ServedTopic:
    """The topic that a tablet serves, and its partitions there; None when no topic has the tablet. `epoch_base`: above
    0 in a table that was resharded. `timestamps_reserved`: commits have timestamps below; 0: unknown."""

    topic: str
    partitions: range | None
    epoch_base: int = 0
    timestamps_reserved: int = 0


def check_tablet(
    rows: Iterable[tuple[bytes, bytes]],
    served: ServedTopic,
    record: TabletRecord,
    blobs: StoredBlobs,
    findings: Findings,
) -> None:
    """Verify the rows of one PQ tablet."""
    topic, indexes = served.topic, served.partitions
    entries = read_entries(rows, topic, findings)
    if served.epoch_base and indexes is not None:
        entries = _renumbered(entries, indexes[0], f"{topic}-{indexes[0]}", findings)
    check_holders(entries, topic, blobs, findings)
    leaks = blobs.has_leaks(record.tablet_id)
    for index, keys in sorted(_by_partition(entries, topic, findings).items()):
        name = f"{topic}-{index}"
        if indexes is not None and index not in indexes:
            findings.damage("kv", name, "the topic has no such partition in this tablet")
        epoch, reserved = served.epoch_base + record.generation, served.timestamps_reserved
        Partition(name, index, epoch, keys, leaks, blobs, findings, reserved).check()


def _renumbered(entries: dict[bytes, Entry], index: int, name: str, findings: Findings) -> dict[bytes, Entry]:
    """The entries as the next start leaves them after a reshard that a crash cut short."""
    foreign = [key for key in entries if any(lo <= key < hi for lo, hi in foreign_ranges(index))]
    if not foreign:
        return entries
    findings.harmless("kv", name, f"{len(foreign)} keys have its number from before a reshard", NEXT_START)
    return {renumbered(key, index) if key in foreign else key: entry for key, entry in entries.items()}


def _by_partition(entries: dict[bytes, Entry], topic: str, findings: Findings) -> dict[int, Keys]:
    found: dict[int, Keys] = {}
    for key, entry in sorted(entries.items()):
        if key == GENERATION_KEY or key.startswith(USERS):
            continue
        try:
            index = int(key[_PARTITION])
            keys = found.setdefault(index, Keys())
            mark = key[_MARK_AT : _MARK_AT + 1]
            if key[:1] == b"d":
                parse_data_key(key)
                keys.data.append((key, entry))
            elif key[:1] == b"f":
                parse_facts_key(key)
                keys.facts.append((key, entry))
            elif key[:1] == b"a":
                parse_aborted_key(key)
                keys.aborted.append((key, entry))
            elif key == meta_key(index):
                keys.meta = entry
            elif key == cleaned_key(index):
                keys.cleaned = entry
            elif key[:1] == b"m" and mark == b"p":
                parse_producer_key(key)
                keys.producers.append((key, entry))
            elif key[:1] == b"m" and mark == b"c":
                keys.consumers.append((key, entry))
            elif key[:1] == b"m" and mark == b"s":
                parse_session_key(key)
                keys.sessions.append((key, entry))
            elif key[:1] in _STAGED:
                check_key(key)
            elif key[:1] in (b"p", b"q"):
                parse_transaction_key(key)
                (keys.prepared if key[:1] == b"p" else keys.decisions).append((key, entry))
            elif key[:1] == _HALF_STORED:
                findings.harmless("kv", f"{topic}-{index}", "a batch, or a cleaned body, came half", NEXT_START)
            else:
                findings.damage("kv", topic, f"key {text_of(key)} is of no known kind", "run the version that wrote it")
        except _UNREADABLE:
            findings.damage("kv", topic, f"key {text_of(key)} cannot be read")
    return found


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition's check-up; `name` is topic-index, `leaks`: its tablet has blobs that no row holds."""

    name: str
    index: int
    epoch: int
    keys: Keys
    leaks: bool
    blobs: StoredBlobs
    findings: Findings
    timestamps_reserved: int = 0

    def check(self) -> None:
        """The meta row, the keys' order, what they hold, and who wrote and read it."""
        self.findings.count("partitions")
        meta = self._meta()
        if meta is None:
            return
        start_state = self._recover(meta)
        if start_state is not None:
            self._check_order(meta, start_state)
            self._check_contents(set(start_state.orphans))
            self._check_producers(start_state.end_offset)
            self._check_aborted(start_state.end_offset)
            self._check_cleaned(start_state.end_offset)
            self._check_facts(start_state)
        self._check_consumers()
        self._check_sessions()
        self._check_transactions()

    def _meta(self) -> Meta | None:
        """The meta row, or what an empty partition has; None when it is damaged."""
        if self.keys.meta is None:
            if self.keys.data:
                self._damage("partition", "its meta row is gone")
            return Meta(0, 0, [])
        try:
            meta = Meta.decode(bytes(self.keys.meta.value))
        except _UNREADABLE as bad:
            self._damage("partition", f"its meta row cannot be read: {bad}")
            return None
        epochs = [epoch for epoch, _ in meta.epochs]
        offsets = [offset for _, offset in meta.epochs]
        if epochs != sorted(set(epochs)) or offsets != sorted(offsets) or any(at > self.epoch for at in epochs):
            self._damage("partition", f"its epochs {meta.epochs} are out of order, or ahead of {self.epoch}")
        if meta.start_offset > meta.end_offset and not self.keys.data:
            self._damage("partition", f"it starts at {meta.start_offset}, after its end {meta.end_offset}")
        return meta

    def _recover(self, meta: Meta) -> StartState | None:
        """Return the partition that a start makes of the keys."""
        stored = [
            StoredBlob(key, entry.size, entry.created_ms, max(len(entry.pieces), 1)) for key, entry in self.keys.data
        ]
        try:
            start_state = build_start_state(stored, meta)
        except ValueError as bad:
            self._damage("partition", f"its keys are out of order: {bad}")
            return None
        for key in start_state.orphans:
            self.findings.harmless("partition", self.name, f"key {text_of(key)} is overlapped by another")
        return start_state

    def _check_order(self, meta: Meta, start_state: StartState) -> None:
        """Check that blobs have every offset from start to end, and the invariants of the head (A.2, K.1)."""
        head = start_state.head.blobs
        spans = [*start_state.bodies.spans(), *((blob.offset, blob.end) for blob in head)]
        following = meta.start_offset
        for offset, end in spans:
            if offset > following:
                self._check_hole(following, offset - 1, within_head=bool(head) and offset > head[0].offset)
            following = end
        if following < meta.end_offset and meta.start_offset < meta.end_offset:
            self._check_end(following, meta.end_offset)
        try:
            check_levels([blob.size for blob in start_state.head.blobs])
        except AssertionError as bad:
            self._damage("partition", f"its head breaks the rules of levels: {bad}", "report it; the data is whole")

    def _check_end(self, first: int, end: int) -> None:
        """The last offsets have no blob."""
        told = f"no blob has the offsets {first} to {end - 1}"
        if self.findings.is_skipped(self.name, first, end):
            self.findings.harmless("partition", self.name, told, SKIPPED)
        else:
            self._damage("partition", told)

    def _check_hole(self, first: int, last: int, *, within_head: bool) -> None:
        """Report offsets without a blob: a mirror of a topic may leave some out (A.5), but a head has no hole, and a
        lost row leaves its blobs."""
        told = f"no blob has the offsets {first} to {last}"
        if self.findings.is_skipped(self.name, first, last + 1):
            self.findings.harmless("partition", self.name, told, SKIPPED)
        elif within_head or self.leaks:
            self._damage("partition", told)
        else:
            cure = f"nothing, if whoever mirrored the topic left them out; else {RESTORE}"
            self.findings.harmless("partition", self.name, told, cure)

    def _check_contents(self, orphans: set[bytes]) -> None:
        """The batches of every value."""
        for key, entry in self.keys.data:
            if key in orphans:
                continue
            data = parse_data_key(key)
            end = data.offset + data.records
            try:
                value = memoryview(self._value(entry))
                check = check_head if data.is_head else check_body
                check(value, data.offset, end, self.epoch)
            except (BlobMissing, BlobCorrupt, *_UNREADABLE) as bad:
                where = f"offsets {data.offset} to {end - 1}: "
                if isinstance(bad, BlobMissing):
                    told = f"blob {name_of(bytes.fromhex(str(bad)))} is not there"
                else:
                    told = str(bad)
                cure = f"{RESTORE}; or give the records up: `pqbroker topic trim` --before {end}"
                self._damage("records", where + told, cure)
            self.findings.count("records", data.records)

    def _value(self, entry: Entry) -> bytes:
        if entry.is_inline:
            return bytes(entry.value)
        return b"".join([self.blobs.content(blob) for blob in entry.blobs()])

    def _check_producers(self, end_offset: int) -> None:
        for key, entry in self.keys.producers:
            try:
                state = producers.decode(bytes(entry.value))
                batches = state.batches
                require(len(batches) <= producers.BATCHES_KEPT, f"{len(batches)} batches")
                ordered = sorted(batches, key=lambda batch: batch.first)
                require(list(batches) == ordered, "sequences out of order")
                require(not batches or state.first <= batches[0].first, "a first sequence behind its batches")
                last_offset = state.last_offset
                if state.transactional is not None:
                    last_offset = max(last_offset, state.transactional.open_offset)
                require(last_offset < end_offset, f"offset {last_offset}, behind the end {end_offset}")
            except _UNREADABLE as bad:
                self._damage("producers", f"producer {text_of(key[12:])}: {bad}")
        self.findings.count("producers", len(self.keys.producers))

    def _check_aborted(self, end_offset: int) -> None:
        """Check the aborted Kafka transactions."""
        for key, entry in self.keys.aborted:
            try:
                check_span(end_offset, AbortedSpan.decode(parse_aborted_key(key), self._value(entry)))
            except (BlobMissing, BlobCorrupt, *_UNREADABLE) as bad:
                self._damage("transactions", f"the aborted transaction of key {text_of(key)}: {bad}")
            self.findings.count("aborted transactions")

    def _check_cleaned(self, end_offset: int) -> None:
        """Check the row of the last cleaning; most partitions have none."""
        if self.keys.cleaned is None:
            return
        try:
            cleaned = CleanedLog.decode(self._value(self.keys.cleaned))
            require(cleaned.end <= end_offset, f"it goes up to offset {cleaned.end}, behind the end {end_offset}")
        except (BlobMissing, BlobCorrupt, *_UNREADABLE) as bad:
            self._damage("partition", f"the row of its last cleaning cannot be used: {bad}")
        self.findings.count("cleaned partitions")

    def _check_consumers(self) -> None:
        for key, entry in self.keys.consumers:
            try:
                parse_consumer_key(key)
                require(consumers.decode(entry.value).offset >= 0, "a negative offset")
            except _UNREADABLE as bad:
                self._damage("consumers", f"group {text_of(key[12:])}: {bad}")
        self.findings.count("consumers", len(self.keys.consumers))

    def _check_sessions(self) -> None:
        for key, entry in self.keys.sessions:
            try:
                SessionBatch.decode(self._value(entry))
            except _UNREADABLE as bad:
                self._damage("sessions", f"session {text_of(key[12:])}: {bad}")
        self.findings.count("sessions", len(self.keys.sessions))

    def _check_facts(self, start_state: StartState) -> None:
        """Check that all facts but perhaps the last begin in a blob that exists, and that weights follow one another.

        A body that took the place of several has the facts of all.
        """
        bodies, heads = start_state.bodies, {blob.offset for blob in start_state.head.blobs}
        before: BlobFacts | None = None
        for number, (key, entry) in enumerate(self.keys.facts, 1):
            blob = BlobFacts(*parse_facts_key(key))
            try:
                found = RowFacts.decode(blob.weight_before, self._value(entry))
                require(found.weight_after == blob.weight_after, f"its rows weigh up to {found.weight_after}")
                require(before is None or before.weight_after == blob.weight_before, "rows before it are missing")
                body = bodies.find(blob.offset)
                is_held = blob.offset in heads or (body < len(bodies) and bodies.offsets[body] <= blob.offset)
                require(is_held or number == len(self.keys.facts), "its blob is gone")
                self._check_reserved(found.greatest_timestamp)
            except (BlobMissing, BlobCorrupt, *_UNREADABLE) as bad:
                self._damage("facts", f"facts of rows from {blob.offset} on: {bad}")
            before = blob
        self.findings.count("facts", len(self.keys.facts))

    def _check_transactions(self) -> None:
        """Check rows that wait for the decision of their transaction, and decisions."""
        if len(self.keys.prepared) > 1:
            self._damage("transactions", f"rows of {len(self.keys.prepared)} transactions are prepared")
        for key, entry in [*self.keys.prepared, *self.keys.decisions]:
            transaction = parse_transaction_key(key)
            try:
                value = self._value(entry)
                if key[:1] == b"p":
                    rows = PreparedRows.decode(value)
                    _require_same(rows.head.transaction, transaction)
                    self._meet_prepared(rows)
                else:
                    decided = CommitDecision.decode(value)
                    _require_same(decided.transaction, transaction)
                    self._check_reserved(decided.timestamp)
                    self.findings.count("decisions of transactions")
                    self.findings.transactions.meet_decision(decided)
            except (BlobMissing, BlobCorrupt, *_UNREADABLE) as bad:
                what = "rows" if key[:1] == b"p" else "decision"
                self._damage("transactions", f"{what} of transaction {transaction.hex()}: {bad}")

    def _meet_prepared(self, rows: PreparedRows) -> None:
        """Count prepared rows. ValueError for what is none."""
        batches = PreparedBatches.decode(rows.rows).batches
        self.findings.count("prepared rows", sum(header.record_count for _, header in batches))
        self.findings.transactions.meet_prepared(f"{self.findings.cell}{self.name}", rows.head)

    def _check_reserved(self, timestamp: int) -> None:
        """Timestamps that are given later are above the reservation, and above what a start finds in each tablet."""
        if timestamp >= self.timestamps_reserved > 0:
            text = f"a commit has the timestamp {timestamp}, not below {self.timestamps_reserved} as reserved"
            self.findings.harmless("facts", self.name, text, "nothing: the next start gives greater ones")

    def _damage(self, check: str, what: str, cure: str = RESTORE) -> None:
        self.findings.damage(check, self.name, what, cure)
