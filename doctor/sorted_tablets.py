"""Checks of a sorted tablet: its facts and partitions, its log entry by entry, its chunks block by block.

Damage is named by table and, for a chunk or a block, by the range of its keys: that is what it costs.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pqbroker.doctor.contents import Damaged, require
from pqbroker.doctor.findings import Findings
from pqbroker.doctor.key_values import check_holders, read_entries
from pqbroker.doctor.stored_blobs import StoredBlobs
from pqbroker.pq.transactions.stored_forms import CommitDecision, PreparedRows
from pqbroker.storage.engine import BlobCorrupt, BlobMissing
from pqbroker.storage.ids import CellId, TabletId
from pqbroker.storage.kv.rows import Entry
from pqbroker.storage.tablets.scheme_tables import SortedTableRecord
from pqbroker.tables.refusals import TableError
from pqbroker.tables.serving.chunk_records import ChunkRecord, decode_pivots
from pqbroker.tables.serving.feed_progress import FeedProgress
from pqbroker.tables.serving.stored_keys import (
    CHUNK_DATA_KEYS,
    CHUNK_KEYS,
    DECISION_KEYS,
    FACTS_KEY,
    FEED_KEYS,
    LETTERS_KEY,
    LOG_KEYS,
    PIECE_KEYS,
    PIVOTS_KEY,
    PREPARED_KEYS,
    chunk_data_key,
    read_chunk_key,
    read_log_key,
    read_transaction_key,
)
from pqbroker.tables.serving.tablet_facts import TabletFacts
from pqbroker.tables.sorted.chunks import ChunkDamaged, ChunkIndex
from pqbroker.tables.sorted.log_entries import EntryDamaged, decode_entries
from pqbroker.tables.sorted.packed_rows import KIND_AT, Kind, RowForm, timestamp_of
from pqbroker.tables.sorted.rows import show_key
from pqbroker.tables.sorted.schema import SortedSchema, read_sorted_schema

_UNREADABLE = (BlobCorrupt, BlobMissing, ChunkDamaged, Damaged, EntryDamaged, ValueError)


class ServedSorted(NamedTuple):
    """A sorted tablet as the scheme has it."""

    name: str
    """Names table and tablet."""
    schema: SortedSchema | None
    """None: it cannot be read, which is damage of the scheme."""
    pivot: bytes
    end: bytes | None
    """Pivot of the next tablet; None: it is the last one."""
    reserved: int
    """Timestamp that all commits are below."""


def find_served_sorted(
    rows: Iterable[tuple[Any, Any]], cell: CellId, reserved: int, findings: Findings
) -> dict[TabletId, ServedSorted]:
    """Return what each sorted tablet that lives in the cell serves, given the scheme's rows of sorted tables."""
    found: dict[TabletId, ServedSorted] = {}
    for key, row in rows:
        try:
            record = SortedTableRecord.read(key[0], row)
            schema = read_sorted_schema(record.columns, len(record.columns))
        except (LookupError, TableError, TypeError, ValueError) as bad:
            findings.damage("scheme", f"sorted table {key[0].hex()}", f"its row cannot be read: {bad}")
            continue
        ends = (*record.pivots[1:], None)
        for index, tablet in enumerate(record.tablets):
            if record.cell_of(index) == cell:
                name = f"{record.name}, tablet {index}"
                found[tablet] = ServedSorted(name, schema, record.pivots[index], ends[index], reserved)
    return found


def check_sorted_tablet(
    rows: Iterable[tuple[bytes, bytes]], served: ServedSorted, blobs: StoredBlobs, findings: Findings
) -> None:
    """Verify the rows of one sorted tablet, and all that they name."""
    entries = read_entries(rows, served.name, findings)
    check_holders(entries, served.name, blobs, findings)
    _SortedCheck(served, entries, blobs, findings).check()


class _SortedCheck:
    def __init__(
        self, served: ServedSorted, entries: Mapping[bytes, Entry], blobs: StoredBlobs, findings: Findings
    ) -> None:
        self._served = served
        self._entries = entries
        self._blobs = blobs
        self._findings = findings

    def check(self) -> None:
        self._check_facts()
        for key in self._entries:
            kind = key[:1]
            if kind == CHUNK_KEYS:
                self._check_chunk(key)
            elif kind == CHUNK_DATA_KEYS:
                if CHUNK_KEYS + key[1:] not in self._entries:
                    self.damage("its chunks", f"chunk {key[1:].hex()} has no record")
            elif kind == PREPARED_KEYS:
                self._check_prepared(key)
            elif kind == DECISION_KEYS:
                self._check_decision(key)
            elif kind not in (FEED_KEYS, LOG_KEYS, PIECE_KEYS) and key not in (FACTS_KEY, LETTERS_KEY, PIVOTS_KEY):
                self.damage(f"key {key.hex()}", "no version of the table has such a key")
        self._check_log()
        self._check_progress()
        staged = sum(key.startswith(PIECE_KEYS) for key in self._entries)
        if staged:
            what = f"{staged} pieces are staged by tasks that did not end"
            self._findings.harmless("sorted", self._served.name, what)

    def _check_facts(self) -> None:
        facts, pivots = self._entries.get(FACTS_KEY), self._entries.get(PIVOTS_KEY)
        try:
            if facts is not None:
                retained = TabletFacts.decode(self._value(facts)).retained_timestamp
                require(retained < self._served.reserved, f"the retained timestamp {retained} is not reserved")
            if pivots is not None:
                known = decode_pivots(self._value(pivots))
                end = self._served.end
                is_inside = known[0] == self._served.pivot and (end is None or known[-1] < end)
                require(is_inside, f"pivots from {self.shown(known[0])} to {self.shown(known[-1])} lie outside of it")
        except _UNREADABLE as bad:
            self.damage("its facts", str(bad))

    def _check_progress(self) -> None:
        """Check the progress in the topic that feeds the table."""
        letters = self._entries.get(LETTERS_KEY)
        found = [(key, entry) for key, entry in self._entries.items() if key.startswith(FEED_KEYS)]
        try:
            rows = [(key, self._value(entry)) for key, entry in found]
            FeedProgress.read(rows, None if letters is None else self._value(letters))
        except _UNREADABLE as bad:
            self.damage("its progress in the topic that feeds it", f"{bad}; the tablet is not served")
        self._findings.count("partitions that feed tables", len(found))

    def _check_prepared(self, key: bytes) -> None:
        """Check rows that a transaction has prepared."""
        try:
            head, rows = PreparedRows.decode(self._value(self._entries[key]))
            require(head.transaction == read_transaction_key(key), f"they are of transaction {head.transaction.hex()}")
            is_reserved = head.least_timestamp < self._served.reserved
            require(is_reserved, f"their least timestamp {head.least_timestamp} is not reserved")
            count = 0
            for row in decode_entries(rows):
                self._check_version(row.version, row.columns)
                require(self._is_inside(row.key), f"key {self.shown(row.key)} belongs to another tablet")
                require(timestamp_of(row.version) == 0, f"key {self.shown(row.key)} has a timestamp")
                count += 1
            require(count > 0, "there is no row")
        except _UNREADABLE as bad:
            self.damage(f"rows prepared under key {key.hex()}", f"{bad}; the tablet is not served")
        else:
            self._findings.count("prepared rows", count)
            self._findings.transactions.meet_prepared(f"{self._findings.cell}{self._served.name}", head)

    def _check_decision(self, key: bytes) -> None:
        """Check the decision of a transaction."""
        try:
            decision = CommitDecision.decode(self._value(self._entries[key]))
            transaction = decision.transaction
            require(transaction == read_transaction_key(key), f"it is of transaction {transaction.hex()}")
            is_reserved = decision.timestamp < self._served.reserved
            require(is_reserved, f"its timestamp {decision.timestamp} is not reserved")
        except _UNREADABLE as bad:
            self.damage(f"the decision under key {key.hex()}", f"{bad}; the tablet is not served")
        else:
            self._findings.count("decisions of transactions")
            self._findings.transactions.meet_decision(decision)

    def _check_log(self) -> None:
        """Check entries in their order: of one key in a store, timestamps rise."""
        newest: dict[tuple[int, bytes], int] = {}
        rows = 0
        for key, entry in self._entries.items():
            if not key.startswith(LOG_KEYS):
                continue
            try:
                store, number = read_log_key(key)
                value = self._value(entry)
            except _UNREADABLE as bad:
                self.damage(f"log key {key.hex()}", str(bad))
                continue
            where = f"entry {number} of store {store} of its log"
            try:
                for row in decode_entries(value):
                    self._check_version(row.version, row.columns)
                    timestamp = timestamp_of(row.version)
                    shown = self.shown(row.key)
                    require(self._is_inside(row.key), f"key {shown} belongs to another tablet")
                    before = newest.get((store, row.key), 0)
                    require(before < timestamp, f"key {shown} has timestamp {timestamp} behind {before}")
                    require(timestamp < self._served.reserved, f"timestamp {timestamp} of key {shown} is not reserved")
                    newest[store, row.key] = timestamp
                    rows += 1
            except _UNREADABLE as bad:
                self.damage(where, f"{bad}; the tablet is not served")
        self._findings.count("logged rows", rows)

    def _check_version(self, version: bytes, columns: int) -> None:
        """Check that a row of the log is one of the table's. ValueError."""
        if self._served.schema is None or version[KIND_AT] == Kind.DELETE:
            return
        types = [column.type.name for column in self._served.schema.values]
        require(columns <= len(types), f"a row has {columns} value columns; the table has {len(types)}")
        RowForm(types[:columns]).values(version)

    def _check_chunk(self, key: bytes) -> None:
        try:
            number = read_chunk_key(key)
            record = ChunkRecord.decode(self._value(self._entries[key]))
        except _UNREADABLE as bad:
            self.damage(f"the record of chunk {key[1:].hex()}", f"{bad}; the tablet is not served")
            return
        first, last = bytes.fromhex(record.first_key), bytes.fromhex(record.last_key)
        where = f"chunk {number}, keys from {self.shown(first)} to {self.shown(last)}"
        data = self._entries.get(chunk_data_key(number))
        self._findings.count("chunks")
        if data is None:
            self.damage(where, "its bytes are not there; the tablet is not served")
            return
        try:
            require(self._is_inside(first) and self._is_inside(last), "its keys belong to another tablet")
            require(record.size == data.size, f"its record says {record.size} bytes; there are {data.size}")
            chunk = self._value(data)
            index = ChunkIndex.decode(chunk[-record.index_bytes :])
            self._check_summary(record, index)
        except _UNREADABLE as bad:
            self.damage(where, str(bad))
            return
        _ChunkCheck(self, where, index, chunk).check()

    def _check_summary(self, record: ChunkRecord, index: ChunkIndex) -> None:
        """Check that a chunk's index says what its record says. Damaged."""
        require(len(index.places) > 0, "it has no block")
        for name in ("rows", "keys", "deletes", "unpacked_bytes", "least_timestamp", "greatest_timestamp", "last_key"):
            says, has = getattr(record, name), getattr(index.facts, name)
            require(says == has, f"its record says {name} {says}, its index {has}")
        require(index.first_key.hex() == record.first_key, f"its index begins with {self.shown(index.first_key)}")
        is_reserved = record.greatest_timestamp < self._served.reserved
        require(is_reserved, f"its timestamp {record.greatest_timestamp} is not reserved")
        schema = self._served.schema
        if schema is not None:
            columns = [(column.name, column.type.name) for column in schema.values]
            own = list(index.facts.value_columns)
            require(own == columns[: len(own)], f"it has columns {own}, which are not the table's")

    def _value(self, entry: Entry) -> bytes:
        """Return a value's bytes. BlobMissing, BlobCorrupt."""
        if entry.is_inline:
            return bytes(entry.value)
        return b"".join(self._blobs.content(blob) for blob in entry.blobs())

    def _is_inside(self, key: bytes) -> bool:
        return self._served.pivot <= key and (self._served.end is None or key < self._served.end)

    def shown(self, key: bytes) -> str:
        if self._served.schema is not None:
            try:
                return json.dumps(show_key(self._served.schema, key))
            except ValueError:
                pass
        return key.hex()

    def damage(self, where: str, what: str) -> None:
        self._findings.damage("sorted", f"{self._served.name}, {where}", what)


class _ChunkCheck:
    """A look at each block of a chunk whose index is whole."""

    def __init__(self, tablet: _SortedCheck, where: str, index: ChunkIndex, chunk: bytes) -> None:
        self._tablet = tablet
        self._where = where
        self._index = index
        self._chunk = chunk
        self._last: tuple[bytes, int] = (b"", 0)
        """The key before, and minus its timestamp: both together rise from row to row."""
        self._is_whole = True
        self._counts = {"rows": 0, "deletes": 0, "keys": 0}

    def check(self) -> None:
        end = 0
        firsts = [place.first_key for place in self._index.places]
        for number, place in enumerate(self._index.places):
            last = firsts[number + 1] if number + 1 < len(firsts) else self._index.last_key
            keys = f"block {number}, keys from {self._tablet.shown(place.first_key)} to {self._tablet.shown(last)}"
            try:
                require(place.position == end, f"it begins at byte {place.position}, where {end} is due")
                self._check_block(number, place.first_key)
            except _UNREADABLE as bad:
                self._is_whole = False
                self._tablet.damage(f"{self._where}: {keys}", str(bad))
            end = place.position + place.stored_bytes
        facts = self._index.facts
        wanted = {"rows": facts.rows, "deletes": facts.deletes, "keys": facts.keys}
        if self._is_whole and self._counts != wanted:
            self._tablet.damage(self._where, f"it has {self._counts}, and its index says {wanted}")

    def _check_block(self, number: int, first_key: bytes) -> None:
        """Check one block: its rows in order, within the chunk's bounds. ChunkDamaged, Damaged."""
        place, facts = self._index.places[number], self._index.facts
        block = self._index.block(number, self._chunk[place.position : place.position + place.stored_bytes])
        key_columns = len(facts.key_columns)
        for row in range(block.rows):
            key, version = block.key(row), block.version(row, key_columns)
            shown = self._tablet.shown(key)
            require(row > 0 or key == first_key, f"it begins with key {shown}")
            require(self._last < (key, -version.timestamp), f"row {row}, key {shown}, is not in order")
            require(key <= self._index.last_key, f"row {row}, key {shown}, is behind the last one of the chunk")
            is_bounded = facts.least_timestamp <= version.timestamp <= facts.greatest_timestamp
            require(is_bounded, f"row {row}, key {shown}, has timestamp {version.timestamp}")
            require(self._index.may_have(key), f"the filter does not have key {shown}")
            self._counts["keys"] += key != self._last[0] or not self._counts["rows"]
            self._counts["rows"] += 1
            self._counts["deletes"] += version.values is None
            self._last = key, -version.timestamp

