"""Plans the salvage of one cell: tablet by tablet, what may be lost, and what makes sure that nothing is given twice.

Nothing can be read of a lost round, so every row of the cell may have been in it, but those that a later round wrote.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from pqbroker.doctor.findings import Findings
from pqbroker.doctor.partitions import ServedTopic
from pqbroker.doctor.salvaging.base_logs import ReadLog, read_log, write_log
from pqbroker.doctor.salvaging.losses import CellSalvage, NewBlobs
from pqbroker.doctor.salvaging.lost_offsets import PartitionSalvage
from pqbroker.doctor.salvaging.segment_counts import count_segments
from pqbroker.doctor.salvaging.sorted_tablets import SortedSalvage
from pqbroker.doctor.salvaging.staged_batches import BatchUnderWay, PiecesSalvage, read_batches
from pqbroker.doctor.salvaging.torn_payloads import name_torn
from pqbroker.doctor.sorted_tablets import ServedSorted, find_served_sorted
from pqbroker.doctor.tablets import find_served_topics
from pqbroker.pq.log import consumers
from pqbroker.pq.log.commit_timestamps import RESERVED_AHEAD, RESERVED_VALUES, TIMESTAMP_MAX, timestamp_of
from pqbroker.storage.blobs.blob_id import BlobId, tablet_bounds
from pqbroker.storage.bundles import hive
from pqbroker.storage.disk import index_rows
from pqbroker.storage.engine import EngineError
from pqbroker.storage.ids import SYSTEM_CELL, CellId, TabletId
from pqbroker.storage.kv.rows import Entry
from pqbroker.storage.tablets.channel_profiles import begin_channels
from pqbroker.storage.tablets.coordinator_rows import (
    GENERATION,
    TRANSACTIONAL_ROWS,
    with_later_epoch,
)
from pqbroker.storage.tablets.resident_kinds import RESIDENT_ROWS
from pqbroker.storage.tablets.row_sets import RowSet
from pqbroker.storage.tablets.scheme import PRODUCER_IDS_PER_BLOCK, SCHEME_TABLET_ID, TIMESTAMPS_RESERVED
from pqbroker.storage.tablets.scheme_objects import NAMES, SORTED_TABLES, OwnedTablet, owned_tablets
from pqbroker.storage.tablets.scheme_state import SCHEME_FACTS, SchemeState
from pqbroker.storage.tablets.scheme_topics import TABLETS_PER_TOPIC_MAX
from pqbroker.storage.tablets.tablet import RECORD, TabletRecord, TabletType, record_key, row_prefix
from pqbroker.storage.tablets.tablet_kinds import TABLET_KINDS
from pqbroker.storage.unreadable import StoredUnreadable

_NAMES_MAX = 20
"""Groups, producers and sessions of a partition that are named one by one."""
_RECORDS_END = bytes((RECORD[0] + 1,))
_GENERATIONS_OF_ROUND = 10_000
"""Generations of a group between two that are stored, at most: rebalances in which its leader did not answer."""
_GENERATION_MAX = (1 << 31) - 1
_LATER_EPOCH = (
    "its producer is fenced and begins again; `kafka-transactions find-hanging` shows transactions that it left open"
)
_PARTITION = slice(1, 11)
_OF_PARTITIONS = (b"d", b"f", b"i", b"m", b"p", b"q", b"s", b"t")
"""First letters of keys that a partition's number follows; the others are left as they are."""
_KINDS = {b"c": "groups", b"p": "producers", b"s": "sessions"}
"""Residents of a partition, by the letter in their keys."""
_MAY_BE_OLDER = {
    "groups": "these committed offsets may be older than what was acknowledged",
    "producers": "their last batches may be forgotten",
    "sessions": "their last batches may be forgotten, so that rows sent again are stored again",
}


class LearnedScheme:
    """The scheme of a node, as far as it can be read: the names of what its cells hold; and what is under way there."""

    def __init__(self) -> None:
        self.state = SchemeState()
        self.row_sets: Mapping[str, RowSet] = {}
        self.batches: dict[CellId, list[BatchUnderWay]] = {}
        """Batches of staged rows that are being written, by the cell that has the decision."""

    def learn(self, row_sets: Mapping[str, RowSet]) -> None:
        self.row_sets = row_sets
        for name, row_set in row_sets.items():
            for key, row in row_set:
                self.state.follow(name, key, row)

    def batches_of(self, topic: str) -> list[BatchUnderWay]:
        return [batch for of_cell in self.batches.values() for batch in of_cell if batch.topic == topic]

    def name_of(self, owned: OwnedTablet) -> str:
        """Return the name of a tablet's owner."""
        names = (str(key[0]) for key, row in self.row_sets.get(NAMES, ()) if row["id"] == owned.object_id)
        return next(names, f"{owned.kind.name} {owned.object_id.hex()}")


class CellPlan:
    """The salvage of one cell; `other_cells`: those that the node has directories of."""

    def __init__(
        self, salvage: CellSalvage, cell: CellId, scheme: LearnedScheme, other_cells: Iterable[CellId]
    ) -> None:
        """`scheme`: what is known of the node; filled here for the system cell, which has it."""
        self._salvage = salvage
        self._cell = cell
        self._scheme = scheme
        self._other_cells = other_cells
        self._records: dict[TabletId, TabletRecord] = {}

    def plan(self) -> None:
        """Name what may be lost, and plan the rows that make up for it."""
        self.learn()
        name_torn(self._salvage, self._records, lambda tablet: self._served_topic(tablet).topic)
        if self._salvage.lost.rounds:
            self._plan_rounds()
        else:
            self._plan_torn_logs()

    def _plan_rounds(self) -> None:
        """Plan for rounds of which nothing can be read: any tablet may have been in them."""
        self._raise_generations()
        for record in self._kept_records():
            blobs = NewBlobs(self._salvage, record)
            of_form = CellPlan._name_keys if TABLET_KINDS[record.type].is_kv else CellPlan._plan_log
            _PLANS.get(record.type, of_form)(self, record, blobs)
        count_segments(self._salvage)

    def _plan_torn_logs(self) -> None:
        """Plan for tablets alone of whose log a blob is unreadable."""
        for record in self._kept_records():
            if record.type is TabletType.SORTED:
                self._plan_sorted(record, NewBlobs(self._salvage, record))
            if TABLET_KINDS[record.type].is_kv:
                continue
            log = read_log(self._salvage, record.tablet_id)
            if not log.is_broken:
                continue
            raised = self._raise_generation(record)
            self._give_up_changes(raised, log, NewBlobs(self._salvage, raised))
            if record.type is TabletType.SCHEME:
                self._name_unserved()

    def _kept_records(self) -> list[TabletRecord]:
        return [record for _, record in sorted(self._records.items()) if not record.dropping]

    def learn(self) -> None:
        """Learn of the cell what the plan of any cell needs, as far as it can be read; from the system cell the names
        of what the cells hold."""
        self._read_records()
        if self._cell == SYSTEM_CELL:
            self._scheme.learn(read_log(self._salvage, SCHEME_TABLET_ID).row_sets)
        self._scheme.batches[self._cell] = [
            batch
            for tablet, record in self._records.items()
            if record.type is TabletType.PERSQUEUE and not record.dropping
            for batch in read_batches(self._salvage, row_prefix(tablet), self._served_topic(tablet).topic, self._cell)
        ]

    def _read_records(self) -> None:
        for key, row in self._salvage.rows.rows(index_rows.ROW + RECORD, index_rows.ROW + _RECORDS_END):
            tablet = TabletId(int.from_bytes(key[2:], "big"))
            try:
                self._records[tablet] = TabletRecord.decode(tablet, row)
            except StoredUnreadable:
                continue  # a start refuses the tablet alone

    def _served_topic(self, tablet: TabletId) -> ServedTopic:
        """The topic of a tablet, and its partitions where a topic names it."""
        found = find_served_topics(self._scheme.state.topics.values(), self._cell, 0).get(tablet)
        return found or ServedTopic(f"tablet {tablet}", None)

    def _raise_generations(self) -> None:
        """Give every tablet a generation above those that lost rounds can have begun; records that are lost too."""
        for owned in owned_tablets(self._scheme.row_sets, self._cell):
            if owned.tablet_id not in self._records:
                self._make_record(owned)
        for record in list(self._records.values()):
            self._raise_generation(record)

    def _raise_generation(self, record: TabletRecord) -> TabletRecord:
        raised = replace(record, generation=self._last_generation(record) + self._salvage.lost.rounds + 1)
        self._records[record.tablet_id] = raised
        self._salvage.put_row(record_key(record.tablet_id), raised.encode())
        return raised

    def _last_generation(self, record: TabletRecord) -> int:
        """The last one that wrote a blob, where the record is older."""
        lo, hi = tablet_bounds(record.tablet_id)
        found = self._salvage.rows.rows(index_rows.BLOB + lo, index_rows.BLOB + hi)
        return max(record.generation, *(BlobId.from_key(key[1:]).generation for key, _ in found), 0)

    def _make_record(self, owned: OwnedTablet) -> None:
        """Make the record of a tablet again that is lost."""
        tablet, where = owned.tablet_id, self._scheme.name_of(owned)
        if len(owned.kind.tablets) > 1:
            self._salvage.name("tablets", where, f"the record of its tablet {tablet} is lost, and which kind it was")
            return
        (type_,) = owned.kind.tablets
        self._salvage.name("tablets", where, f"the record of its tablet {tablet} is lost: it is made again")
        self._records[tablet] = TabletRecord(tablet, type_, 1, begin_channels(type_), owned.object_id.hex())

    def _name_keys(self, record: TabletRecord, _: NewBlobs) -> None:
        """Name how many keys of a KV tablet of a kind that is not known here may be older."""
        prefix, end = (index_rows.ROW + row_prefix(TabletId(record.tablet_id + more)) for more in (0, 1))
        older = sum(not self._salvage.is_newer(key) for key, _ in self._salvage.rows.rows(prefix, end))
        if older:
            what = f"{older} keys may be older than what was acknowledged, or have been removed"
            self._salvage.name("keys", f"tablet {record.tablet_id}", what)

    def _plan_partitions(self, record: TabletRecord, blobs: NewBlobs) -> None:
        served = self._served_topic(record.tablet_id)
        if served.partitions is None:
            self._name_topic_of(served)
        prefix = row_prefix(record.tablet_id)
        end = row_prefix(TabletId(record.tablet_id + 1))
        entries: dict[int, dict[bytes, Entry]] = {index: {} for index in served.partitions or ()}
        try:
            for key, row in self._salvage.rows.rows(index_rows.ROW + prefix, index_rows.ROW + end):
                own = key[1 + len(prefix) :]
                if own[:1] in _OF_PARTITIONS:
                    entries.setdefault(int(own[_PARTITION]), {})[own] = Entry.stored(row)
        except (ValueError, IndexError) as bad:
            self._salvage.name("records", served.topic, f"its tablet {record.tablet_id} stays refused: {bad}")
            return
        batches = self._scheme.batches_of(served.topic)
        pieces = PiecesSalvage(self._salvage, blobs, prefix, self._cell)
        for index, of_index in sorted(entries.items()):
            name = f"{served.topic}-{index}"
            PartitionSalvage(self._salvage, blobs, prefix, name, index, of_index).plan()
            self._name_staged(name, prefix, of_index)
            self._name_transactions(name, prefix, of_index)
            pieces.plan(name, index, of_index, batches)
            for letter, kind in _KINDS.items():
                self._name_residents(name, prefix, letter, kind, of_index)

    def _plan_sorted(self, record: TabletRecord, blobs: NewBlobs) -> None:
        unnamed = ServedSorted(f"tablet {record.tablet_id}", None, b"", None, 0)
        served = self._served_sorted.get(record.tablet_id, unnamed)
        if served is unnamed:
            what = "no table names it; if its table is lost, its rows are removed once the salvage is accepted"
            self._salvage.name("sorted rows", served.name, what)
        prefix, end = (row_prefix(TabletId(record.tablet_id + more)) for more in (0, 1))
        entries: dict[bytes, Entry] = {}
        for key, row in self._salvage.rows.rows(index_rows.ROW + prefix, index_rows.ROW + end):
            try:
                entries[key[1 + len(prefix) :]] = Entry.stored(row)
            except (ValueError, IndexError) as bad:
                self._salvage.name("sorted rows", served.name, f"it stays refused: {bad}")
                return
        SortedSalvage(self._salvage, blobs, prefix, served, entries).plan()

    @cached_property
    def _served_sorted(self) -> Mapping[TabletId, ServedSorted]:
        """Sorted tablets of the cell, as far as the scheme is readable."""
        rows = self._scheme.row_sets.get(SORTED_TABLES)
        return find_served_sorted(() if rows is None else rows, self._cell, 0, Findings(lambda _: None))

    def _name_unserved(self) -> None:
        for record in self._kept_records():
            served = self._served_topic(record.tablet_id)
            if record.type is TabletType.PERSQUEUE and served.partitions is None:
                self._name_topic_of(served)

    def _name_topic_of(self, unserved: ServedTopic) -> None:
        what = "no topic names it; if its topic is lost, its records are removed once the salvage is accepted"
        self._salvage.name("topics", unserved.topic, what)

    def _name_staged(self, name: str, prefix: bytes, entries: Mapping[bytes, Entry]) -> None:
        """Name rows that are staged, or being written, and whose last change may be lost."""
        keys = [index_rows.ROW + prefix + key for key in entries if key[:1] in (b"s", b"t")]
        older = sum(not self._salvage.is_newer(key) for key in keys)
        if older:
            what = f"{older} pieces of staged rows may have been written, or removed, already"
            self._salvage.name("staged rows", name, what)

    def _name_transactions(self, name: str, prefix: bytes, entries: Mapping[bytes, Entry]) -> None:
        """Name transactions whose rows are prepared here, or decided about, and whose last change may be lost."""
        keys = sorted(key for key in entries if key[:1] in (b"p", b"q"))
        older = [key[12:].decode() for key in keys if not self._salvage.is_newer(index_rows.ROW + prefix + key)]
        if older:
            more = f" and {len(older) - _NAMES_MAX} more" if len(older) > _NAMES_MAX else ""
            what = "their rows may be missing here, or in other tablets, though they were committed"
            self._salvage.name("transactions", name, f"{what}: {', '.join(older[:_NAMES_MAX])}{more}")

    def _name_residents(
        self, name: str, prefix: bytes, letter: bytes, kind: str, entries: Mapping[bytes, Entry]
    ) -> None:
        """Name groups, producers or sessions whose last change may be lost."""
        older = [
            _resident(key, entries[key])
            for key in sorted(entries)
            if key[:1] == b"m" and key[11:12] == letter and not self._salvage.is_newer(index_rows.ROW + prefix + key)
        ]
        if older:
            more = f" and {len(older) - _NAMES_MAX} more" if len(older) > _NAMES_MAX else ""
            self._salvage.name(kind, name, f"{_MAY_BE_OLDER[kind]}: {', '.join(older[:_NAMES_MAX])}{more}")

    def _plan_log(self, record: TabletRecord, blobs: NewBlobs) -> None:
        log = read_log(self._salvage, record.tablet_id)
        if log.is_broken or not log.is_settled:
            self._give_up_changes(record, log, blobs)

    def _give_up_changes(self, record: TabletRecord, log: ReadLog, blobs: NewBlobs) -> None:
        """Write what is left of a log, with counters beyond all that lost changes can have given."""
        name = record.type.name.lower()
        if (jump := _JUMPS.get(record.type)) is not None:
            jump(self, log)
        if log.is_broken:
            what = f"changes of it are lost; {log.misfits} later ones do not fit without them"
            self._salvage.name(name, f"tablet {record.tablet_id}", what)
        if log.row_sets:
            write_log(blobs, log.row_sets)

    def _lost_changes(self, log: ReadLog) -> int:
        """The most changes of a log that can be lost: one in a round."""
        return self._salvage.lost.rounds + log.unreadable

    def _jump_scheme(self, log: ReadLog) -> None:
        """Move the counters beyond all that the lost rounds can have given."""
        facts = log.row_sets.get(SCHEME_FACTS)
        if facts is None:
            raise EngineError("nothing of the scheme can be read: restore a copy of the directory")
        rounds = self._lost_changes(log)
        names = ", ".join(sorted(self._scheme.state.topics)) or "none"
        what = f"topics may have been created, changed or deleted by what is lost; those that are known: {names}"
        self._salvage.name("scheme", "topics", what)
        above = max(self._records, default=TabletId(0)) + 1
        reserved = _fact(log, SCHEME_FACTS, TIMESTAMPS_RESERVED)
        now = timestamp_of(time.time_ns() // 1_000_000)
        tablet_id = max(_fact(log, SCHEME_FACTS, "next_tablet_id"), above)
        _put(log, SCHEME_FACTS, "next_tablet_id", tablet_id + rounds * TABLETS_PER_TOPIC_MAX)
        producer_id = _fact(log, SCHEME_FACTS, "next_producer_id")
        _put(log, SCHEME_FACTS, "next_producer_id", producer_id + rounds * PRODUCER_IDS_PER_BLOCK)
        ahead = max(reserved, now) + rounds * max(RESERVED_AHEAD, RESERVED_VALUES)
        _put(log, SCHEME_FACTS, TIMESTAMPS_RESERVED, min(ahead, TIMESTAMP_MAX))
        for counter in ("next_tablet_id", "next_producer_id"):
            self._salvage.name("scheme", counter.replace("_", " "), f"goes on at {_fact(log, SCHEME_FACTS, counter)}")

    def _jump_hive(self, log: ReadLog) -> None:
        if hive.HIVE_FACTS not in log.row_sets:
            return
        known = max(self._other_cells, default=0) + 1
        following = max(_fact(log, hive.HIVE_FACTS, "next_cell"), known) + self._lost_changes(log)
        _put(log, hive.HIVE_FACTS, "next_cell", following)
        self._salvage.name("hive", "cells", f"bundles and cells may have changed; the next cell is {following}")

    def _jump_residents(self, log: ReadLog) -> None:
        """Raise the generations and epochs of coordinators' residents, so that members and producers of lost ones are
        not taken for others. Groups of KIP-848 need none: a member that is ahead of its stored epoch is fenced."""
        for kind in RESIDENT_ROWS:
            stored = log.row_sets.get(kind.row_set)
            if stored is None or (kind is not TRANSACTIONAL_ROWS and GENERATION not in kind.columns):
                continue
            for key, row in list(stored):
                if kind is TRANSACTIONAL_ROWS:
                    stored.rows[key] = with_later_epoch(row, self._lost_changes(log))
                    self._salvage.name(kind.row_set, str(key[0]), _LATER_EPOCH)
                    continue
                generation: Any = row[GENERATION]
                jump = min(self._lost_changes(log) * _GENERATIONS_OF_ROUND, (_GENERATION_MAX - generation) // 2)
                stored.rows[key] = {**row, GENERATION: generation + jump}
                self._salvage.name(kind.row_set, str(key[0]), "its members may be others: they join it again")


_PLANS: Mapping[TabletType, Callable[[CellPlan, TabletRecord, NewBlobs], None]] = {
    TabletType.PERSQUEUE: CellPlan._plan_partitions,
    TabletType.SORTED: CellPlan._plan_sorted,
}
"""Plans that know what a kind of tablet is for; the others go by its stored form."""
_JUMPS: Mapping[TabletType, Callable[[CellPlan, ReadLog], None]] = {
    TabletType.SCHEME: CellPlan._jump_scheme,
    TabletType.HIVE: CellPlan._jump_hive,
    TabletType.COORDINATOR: CellPlan._jump_residents,
}
"""Counters in logs of row sets that move beyond all that lost rounds can have given."""


def _resident(key: bytes, entry: Entry) -> str:
    """The name of a group with its offset, of a producer, or of a session."""
    name = key[12:].decode("utf-8", "backslashreplace")
    if key[11:12] == b"p":
        return name.lstrip("0") or "0"
    if key[11:12] == b"s" or not entry.is_inline:
        return name
    try:
        return f"{name} at {consumers.decode(entry.value).offset}"
    except ValueError:  # a start refuses the partition
        return name


def _fact(log: ReadLog, row_set: str, name: str) -> int:
    row: Any = log.row_sets[row_set].get((name,))
    return int(row["value"]) if row is not None else 0


def _put(log: ReadLog, row_set: str, name: str, value: int) -> None:
    log.row_sets[row_set].rows[(name,)] = {"value": value}
