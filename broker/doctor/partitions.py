"""A PQ tablet: its KV rows and the blobs they hold, then each partition's keys, state and records."""

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field

from pqbroker.broker.doctor.contents import check_body, check_head, require
from pqbroker.broker.doctor.findings import NEXT_START, RESTORE, Findings
from pqbroker.broker.doctor.stored_blobs import StoredBlobs, name_of
from pqbroker.pq import consumers, sources
from pqbroker.pq.keys import USERS, meta_key, parse_consumer_key, parse_data_key, parse_producer_key
from pqbroker.pq.levels import check_levels
from pqbroker.pq.recovery import Meta, Recovered, StoredBlob, recover
from pqbroker.storage.engine import BlobCorrupt, BlobMissing
from pqbroker.storage.kv_plan import GENERATION_KEY
from pqbroker.storage.kv_rows import Entry
from pqbroker.storage.tablet import TabletRecord

_UNREADABLE = (struct.error, ValueError)
_PARTITION = slice(1, 11)
_HALF_STORED = b"x"
_MARK_AT = 11


@dataclass(slots=True)
class Keys:
    """The entries of one partition by what they are, in key order."""

    data: list[tuple[bytes, Entry]] = field(default_factory=list)
    producers: list[tuple[bytes, Entry]] = field(default_factory=list)
    consumers: list[tuple[bytes, Entry]] = field(default_factory=list)
    meta: Entry | None = None


def check_tablet(
    rows: Iterable[tuple[bytes, bytes]],
    topic: str,
    indexes: range | None,
    record: TabletRecord,
    blobs: StoredBlobs,
    findings: Findings,
) -> None:
    """Verify the rows of one PQ tablet; `indexes` are the partitions it should have, None when no topic has it."""
    entries: dict[bytes, Entry] = {}
    for key, row in rows:
        try:
            entries[key] = Entry.stored(row)
        except (*_UNREADABLE, IndexError) as bad:
            findings.damage("kv", f"{topic}, key {_text(key)}", f"its row cannot be read: {bad}")
    findings.count("keys", len(entries))
    _check_holders(entries, topic, blobs, findings)
    leaks = blobs.has_leaks(record.tablet_id)
    for index, keys in sorted(_by_partition(entries, topic, findings).items()):
        name = f"{topic}-{index}"
        if indexes is not None and index not in indexes:
            findings.damage("kv", name, "the topic has no such partition in this tablet")
        Partition(name, index, record.generation, keys, leaks, blobs, findings).check()


def _check_holders(entries: dict[bytes, Entry], topic: str, blobs: StoredBlobs, findings: Findings) -> None:
    """Every blob that a row names is there, and is shared only between rows that say so."""
    owners: dict[bytes, list[bytes]] = {}
    for key, entry in entries.items():
        for blob in entry.blobs():
            owners.setdefault(blob, []).append(key)
            if not blobs.hold(blob):
                findings.damage("kv", f"{topic}, key {_text(key)}", f"blob {name_of(blob)} is not there")
    for held, keys in owners.items():
        unaware = [key for key in keys if not entries[key].is_shared]
        if len(keys) > 1 and unaware:
            told = f"blob {name_of(held)} is held by {len(keys)} rows, of which this one does not know"
            findings.damage("kv", f"{topic}, key {_text(unaware[0])}", told)


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
            elif key == meta_key(index):
                keys.meta = entry
            elif key[:1] == b"m" and mark == b"p":
                parse_producer_key(key)
                keys.producers.append((key, entry))
            elif key[:1] == b"m" and mark == b"c":
                keys.consumers.append((key, entry))
            elif key[:1] == _HALF_STORED:
                findings.harmless("kv", f"{topic}-{index}", "a batch came half", NEXT_START)
            else:
                findings.damage("kv", topic, f"key {_text(key)} is of no known kind", "run the version that wrote it")
        except _UNREADABLE:
            findings.damage("kv", topic, f"key {_text(key)} cannot be read")
    return found


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition's check-up; `name` is topic-index, `leaks`: its tablet has blobs that no row holds."""

    name: str
    index: int
    generation: int
    keys: Keys
    leaks: bool
    blobs: StoredBlobs
    findings: Findings

    def check(self) -> None:
        """The meta row, the keys' order, what they hold, and who wrote and read it."""
        self.findings.count("partitions")
        meta = self._meta()
        if meta is None:
            return
        recovered = self._recover(meta)
        if recovered is not None:
            self._check_order(meta, recovered)
            self._check_contents(set(recovered.orphans))
            self._check_producers(recovered.end_offset)
        self._check_consumers()

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
        if epochs != sorted(set(epochs)) or offsets != sorted(offsets) or any(at > self.generation for at in epochs):
            self._damage("partition", f"its epochs {meta.epochs} are out of order, or ahead of {self.generation}")
        if meta.start_offset > meta.end_offset and not self.keys.data:
            self._damage("partition", f"it starts at {meta.start_offset}, after its end {meta.end_offset}")
        return meta

    def _recover(self, meta: Meta) -> Recovered | None:
        """What a start makes of the keys."""
        stored = [
            StoredBlob(key, entry.size, entry.created_ms, max(len(entry.pieces), 1)) for key, entry in self.keys.data
        ]
        try:
            recovered = recover(stored, meta)
        except ValueError as bad:
            self._damage("partition", f"its keys are out of order: {bad}")
            return None
        for key in recovered.orphans:
            self.findings.harmless("partition", self.name, f"key {_text(key)} is overlapped by another")
        return recovered

    def _check_order(self, meta: Meta, recovered: Recovered) -> None:
        """No offset between the start and the end without a blob, and the invariants of the head (A.2, K.1)."""
        head = recovered.head.blobs
        spans = [*recovered.bodies.spans(), *((blob.offset, blob.end) for blob in head)]
        following = meta.start_offset
        for offset, end in spans:
            if offset > following:
                self._check_hole(following, offset - 1, within_head=bool(head) and offset > head[0].offset)
            following = end
        if following < meta.end_offset and meta.start_offset < meta.end_offset:
            self._damage("partition", f"no blob has the offsets {following} to {meta.end_offset - 1}")
        try:
            check_levels([blob.size for blob in recovered.head.blobs])
        except AssertionError as bad:
            self._damage("partition", f"its head breaks the rules of levels: {bad}", "report it; the data is whole")

    def _check_hole(self, first: int, last: int, *, within_head: bool) -> None:
        """Who mirrors a topic may leave offsets out (A.5), but a head has no hole, and a lost row leaves its blobs."""
        told = f"no blob has the offsets {first} to {last}"
        if within_head or self.leaks:
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
                check(value, data.offset, end, self.generation)
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
                state = sources.decode(bytes(entry.value))
                batches = state.batches
                require(1 <= len(batches) <= sources.BATCHES_KEPT, f"{len(batches)} batches")
                ordered = sorted(batches, key=lambda batch: batch.first)
                require(list(batches) == ordered, "sequences out of order")
                require(state.first <= batches[0].first, "a first sequence behind its batches")
                require(state.last_offset < end_offset, f"offset {state.last_offset}, behind the end {end_offset}")
            except _UNREADABLE as bad:
                self._damage("producers", f"producer {_text(key[12:])}: {bad}")
        self.findings.count("producers", len(self.keys.producers))

    def _check_consumers(self) -> None:
        for key, entry in self.keys.consumers:
            try:
                parse_consumer_key(key)
                require(consumers.decode(entry.value).offset >= 0, "a negative offset")
            except _UNREADABLE as bad:
                self._damage("consumers", f"group {_text(key[12:])}: {bad}")
        self.findings.count("consumers", len(self.keys.consumers))

    def _damage(self, check: str, what: str, cure: str = RESTORE) -> None:
        self.findings.damage(check, self.name, what, cure)


def _text(key: bytes) -> str:
    return key.decode("ascii", "backslashreplace")


