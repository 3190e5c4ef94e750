"""Checks of a cell's tablets by their kinds: the scheme, the hive, coordinators, and the partitions of topics.

A kind without a check of its own is verified as far as its stored form goes: keys and values, or a log of row sets.
"""

import struct
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pqbroker.doctor.findings import NEXT_START, Findings
from pqbroker.doctor.key_values import check_holders, read_entries
from pqbroker.doctor.partitions import ServedTopic, check_tablet
from pqbroker.doctor.sorted_tablets import ServedSorted, check_sorted_tablet, find_served_sorted
from pqbroker.doctor.stored_blobs import StoredBlobs
from pqbroker.doctor.tablet_rows import TabletRows
from pqbroker.pq.transactions.coordinator_decisions import DECISION_ROWS
from pqbroker.storage.blobs.blob_id import BlobId
from pqbroker.storage.blobs.blob_storage import BlobStorage
from pqbroker.storage.bundles.hive import HIVE_TABLET_ID, CellRecord, Hive
from pqbroker.storage.disk.offline import OfflineCell, reading_shard
from pqbroker.storage.engine import BlobCorrupt, BlobMissing, CommitRefused, IndexDamaged
from pqbroker.storage.ids import SYSTEM_CELL, CellId, TabletId
from pqbroker.storage.tablets.base_tablet import BaseTablet
from pqbroker.storage.tablets.resident_kinds import RESIDENT_ROWS
from pqbroker.storage.tablets.scheme import SCHEME_TABLET_ID, Scheme
from pqbroker.storage.tablets.scheme_objects import NAMES, SORTED_TABLES, has_object_tablets
from pqbroker.storage.tablets.scheme_state import TopicRecord
from pqbroker.storage.tablets.tablet import USER_CHANNEL, TabletRecord, TabletStorage, TabletType
from pqbroker.storage.tablets.tablet_kinds import TABLET_KINDS
from pqbroker.storage.unreadable import StoredUnreadable

_UNREADABLE = (BlobCorrupt, BlobMissing, LookupError, StoredUnreadable, struct.error, TypeError, ValueError)
"""Errors that replaying a damaged log raises."""


@dataclass(frozen=True, slots=True)
class Examined:
    """A cell's tablets, as the checks look at them."""

    rows: TabletRows
    blobs: StoredBlobs
    findings: Findings
    storages: Mapping[TabletId, TabletStorage]
    served_topics: Mapping[TabletId, ServedTopic]
    served_sorted: Mapping[TabletId, ServedSorted]


@dataclass(frozen=True, slots=True)
class Known:
    """The node as its system cell has it: the scheme, if it is readable, and the other cells by the hive."""

    scheme: Scheme | None = None
    cells: Mapping[CellId, CellRecord] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Home:
    """The cell of a node that is looked at; for the system cell nothing is known before."""

    cell: CellId = SYSTEM_CELL
    known: Known = field(default_factory=Known)


async def check_tablets(
    cell: OfflineCell, rows: TabletRows, blobs: StoredBlobs, findings: Findings, home: Home
) -> Known:
    """Start each tablet as far as reading goes, and look at all that it has."""
    rows.check_strays()
    shard = reading_shard(cell)
    storages = {
        record.tablet_id: TabletStorage(shard, BlobStorage(shard, rows.pools), record)
        for record in rows.records.values()
    }
    _hold_logs(rows.records, blobs)
    known = home.known
    if home.cell == SYSTEM_CELL:
        scheme = await _read_scheme(storages.get(SCHEME_TABLET_ID), rows.records, findings)
        known = Known(scheme, await _read_hive(storages.get(HIVE_TABLET_ID), findings))
    scheme = known.scheme
    served_topics: dict[TabletId, ServedTopic] = {}
    served_sorted: dict[TabletId, ServedSorted] = {}
    if scheme is not None:
        tables, reserved = scheme.rows(SORTED_TABLES).items(), scheme.timestamps_reserved
        served_sorted = find_served_sorted(tables, home.cell, reserved, findings)
        served_topics = find_served_topics(scheme.topics.values(), home.cell, scheme.timestamps_reserved)
        _check_owned(scheme, rows, findings, home.cell)
        _check_unowned(scheme, rows.records, findings, home.cell)
    examined = Examined(rows, blobs, findings, storages, served_topics, served_sorted)
    for record in rows.records.values():
        if record.dropping:
            where = f"tablet {record.tablet_id}"
            findings.harmless("tablet", where, "it is half dropped", "nothing: the next start goes on")
        else:
            await _check_of(record)(record, examined)
    return known


async def _read_scheme(
    storage: TabletStorage | None, records: Mapping[TabletId, TabletRecord], findings: Findings
) -> Scheme | None:
    """Replay the scheme's log; None when it is damaged. Only a cell without topics may lack one."""
    is_new = not has_object_tablets(records.values())
    if storage is None:
        if not is_new:
            findings.damage("scheme", f"tablet {SCHEME_TABLET_ID}", "it is gone, though there are topics")
        return None
    scheme = Scheme()
    try:
        await scheme.start(storage)
    except CommitRefused:
        if not is_new:
            findings.damage("scheme", "its log", "it is empty, though there are topics")
        return None
    except _UNREADABLE as bad:
        findings.damage("scheme", "its log", f"it cannot be replayed: {type(bad).__name__}: {bad}")
        return None
    findings.count("topics", len(scheme.topics))
    return scheme


async def _read_hive(storage: TabletStorage | None, findings: Findings) -> Mapping[CellId, CellRecord]:
    """Replay the hive's log. A node without cells beside the system cell may lack it."""
    if storage is None:
        return {}
    try:
        return await Hive.read_log(storage)
    except _UNREADABLE as bad:
        told = f"it cannot be replayed: {type(bad).__name__}: {bad}"
        findings.damage("hive", f"tablet {HIVE_TABLET_ID}", told)
        return {}


async def _check_known(record: TabletRecord, examined: Examined) -> None:
    """Check the scheme, which was looked at before the others: it says whose they are."""


async def _check_log(record: TabletRecord, examined: Examined) -> None:
    """Replay a log of row sets, and read the residents of coordinators in it."""
    tablet, counts = BaseTablet(examined.storages[record.tablet_id]), {}
    try:
        await tablet.start()
        is_coordinator = record.type is TabletType.COORDINATOR
        for kind in RESIDENT_ROWS if is_coordinator else ():
            stored = list(tablet.row_sets.get(kind.row_set, ()))
            for key, row in stored:
                kind.read(*key, row)
            counts[kind.row_set] = len(stored)
        decisions = list(tablet.row_sets.get(DECISION_ROWS.row_set, ())) if is_coordinator else []
        for key, row in decisions:
            examined.findings.transactions.meet_decision(DECISION_ROWS.read(str(key[0]), row))
        if decisions:
            counts["decisions of transactions"] = len(decisions)
    except _UNREADABLE as bad:
        told = f"it cannot be replayed: {type(bad).__name__}: {bad}"
        examined.findings.damage("log", f"tablet {record.tablet_id}", told)
        return
    for row_set, count in counts.items():
        examined.findings.count(row_set, count)


async def _check_partitions(record: TabletRecord, examined: Examined) -> None:
    """Look at the partitions of a PQ tablet."""
    served = examined.served_topics.get(record.tablet_id, ServedTopic(f"tablet {record.tablet_id}", None))
    stored = _stored_rows(record, served.topic, examined)
    if stored is not None:
        check_tablet(stored, served, record, examined.blobs, examined.findings)


async def _check_sorted(record: TabletRecord, examined: Examined) -> None:
    """Look at the log and the chunks of a sorted tablet."""
    served = examined.served_sorted.get(record.tablet_id)
    if served is None:
        await _check_keys(record, examined)
        return
    stored = _stored_rows(record, served.name, examined)
    if stored is not None:
        check_sorted_tablet(stored, served, examined.blobs, examined.findings)


async def _check_keys(record: TabletRecord, examined: Examined) -> None:
    """Look at the keys of a KV tablet, and the blobs that they hold."""
    where = f"tablet {record.tablet_id}"
    stored = _stored_rows(record, where, examined)
    if stored is not None:
        entries = read_entries(stored, where, examined.findings)
        check_holders(entries, where, examined.blobs, examined.findings)


def _stored_rows(record: TabletRecord, where: str, examined: Examined) -> list[tuple[bytes, bytes]] | None:
    """Return the rows of a KV tablet; None when they are unreadable, which is damage of `where`."""
    try:
        return list(examined.rows.of(record.tablet_id))
    except IndexDamaged:
        examined.blobs.hold_all(record.tablet_id)
        told = f"rows of tablet {record.tablet_id} cannot be read: it is refused whole"
        examined.findings.damage("kv", where, told)
        return None


TabletCheck = Callable[[TabletRecord, Examined], Awaitable[None]]
_CHECKS: Mapping[TabletType, TabletCheck] = {
    TabletType.SCHEME: _check_known,
    TabletType.PERSQUEUE: _check_partitions,
    TabletType.HIVE: _check_known,
    TabletType.SORTED: _check_sorted,
}
"""Checks that know what a kind of tablet is for."""


def _check_of(record: TabletRecord) -> TabletCheck:
    of_form = _check_keys if TABLET_KINDS[record.type].is_kv else _check_log
    return _CHECKS.get(record.type, of_form)


def _hold_logs(records: Mapping[TabletId, TabletRecord], blobs: StoredBlobs) -> None:
    """Log blobs and snapshots are not held by rows; those that no log names are garbage that is collected."""
    for blob in blobs.holders:
        found = BlobId.from_key(blob)
        if found.channel < USER_CHANNEL and found.tablet in records:
            blobs.hold(blob)


def find_served_topics(topics: Iterable[TopicRecord], cell: CellId, reserved: int) -> dict[TabletId, ServedTopic]:
    """Return what each tablet that lives in the cell serves."""
    found: dict[TabletId, ServedTopic] = {}
    for topic in topics:
        for tablet, home, partitions in topic.spans():
            if home == cell:
                found[tablet] = ServedTopic(topic.name, partitions, topic.epoch_base, reserved)
    return found


def _check_owned(scheme: Scheme, rows: TabletRows, findings: Findings, cell: CellId) -> None:
    """Check that the tablets which objects name in this cell exist, and that such an object may own them."""
    names: Mapping[Any, Any] = {row["id"]: key[0] for key, row in scheme.rows(NAMES).items()}
    for tablet, _, kind, object_id in scheme.owned_tablets(cell):
        record, where = rows.records.get(tablet), str(names.get(object_id, f"{kind.name} {object_id.hex()}"))
        if tablet in rows.unreadable:
            findings.damage("scheme", where, f"its tablet {tablet} is refused")
        elif record is None:
            told = f"its tablet {tablet} is not there"
            findings.harmless("scheme", where, told, "nothing: the next start makes it")
        elif record.type not in kind.tablets:
            findings.damage("scheme", where, f"its tablet {tablet} is of type {record.type.name}")


def _check_unowned(
    scheme: Scheme, records: Mapping[TabletId, TabletRecord], findings: Findings, cell: CellId
) -> None:
    """Tablets that no object names; with a tombstone they are on their way out too."""
    unowned = scheme.unowned(records.values(), cell)
    dead = {*unowned.dead, *(tablet for tombstone in scheme.tombstones.values() for tablet in tombstone.tablets)}
    for record in records.values():
        where = f"tablet {record.tablet_id}"
        if record.dropping:
            continue
        if record.tablet_id in dead:
            findings.harmless("scheme", where, "nothing owns it", NEXT_START)
        elif record.tablet_id in unowned.unknown:
            cure = "nothing: this version keeps it for the one that made it"
            findings.harmless("scheme", where, unowned.unknown[record.tablet_id], cure)
