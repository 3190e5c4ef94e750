"""What runs on the tablets of a cell: the scheme, coordinators, and the partitions of topics."""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pqbroker.broker.coordinator_rows import TABLE, read_group
from pqbroker.broker.doctor.findings import NEXT_START, Findings
from pqbroker.broker.doctor.partitions import check_tablet
from pqbroker.broker.doctor.stored_blobs import StoredBlobs
from pqbroker.broker.doctor.tablet_rows import TabletRows
from pqbroker.storage.basetablet import BaseTablet
from pqbroker.storage.blobid import BlobId
from pqbroker.storage.blobstorage import BlobStorage
from pqbroker.storage.engine import BlobCorrupt, BlobMissing, CommitRefused, IndexDamaged
from pqbroker.storage.offline import OfflineCell, reading_shard
from pqbroker.storage.scheme import SCHEME_TABLET_ID, Scheme, Topic
from pqbroker.storage.tablet import USER_CHANNEL, TabletRecord, TabletStorage, TabletType
from pqbroker.storage.unreadable import StoredUnreadable

_UNREADABLE = (BlobCorrupt, BlobMissing, LookupError, StoredUnreadable, struct.error, TypeError, ValueError)
"""What a log that is damaged raises where a sound one would be replayed."""


@dataclass(frozen=True, slots=True)
class Place:
    """Which topic a tablet serves, and which partitions of it."""

    topic: str
    partitions: range


async def check_tablets(cell: OfflineCell, rows: TabletRows, blobs: StoredBlobs, findings: Findings) -> None:
    """Start each tablet as far as reading goes, and look at all that it has."""
    rows.check_strays()
    shard = reading_shard(cell)
    storages = {
        record.tablet_id: TabletStorage(shard, BlobStorage(shard, rows.pools), record)
        for record in rows.records.values()
    }
    _hold_logs(rows.records, blobs)
    topics = await _read_topics(storages.get(SCHEME_TABLET_ID), rows.records, findings)
    places = _places(topics.values()) if topics is not None else {}
    if topics is not None:
        _check_places(places, rows, findings)
    for record in rows.records.values():
        where = f"tablet {record.tablet_id}"
        if record.dropping:
            findings.harmless("tablet", where, "it is half dropped", "nothing: the next start goes on")
        elif record.type is TabletType.COORDINATOR:
            await _check_coordinator(storages[record.tablet_id], where, findings)
        elif record.type is TabletType.PERSQUEUE:
            place = places.get(record.tablet_id)
            topic, partitions = (place.topic, place.partitions) if place else (where, None)
            try:
                stored = list(rows.of(record.tablet_id))
            except IndexDamaged:
                blobs.hold_all(record.tablet_id)
                findings.damage("kv", topic, f"rows of tablet {record.tablet_id} cannot be read: it is refused whole")
            else:
                check_tablet(stored, topic, partitions, record, blobs, findings)


async def _read_topics(
    storage: TabletStorage | None, records: Mapping[int, TabletRecord], findings: Findings
) -> Mapping[str, Topic] | None:
    """Replay the scheme's log; the topics in it, None when it is damaged. Only a cell without topics may lack one."""
    is_new = all(record.type is not TabletType.PERSQUEUE for record in records.values())
    if storage is None:
        if not is_new:
            findings.damage("scheme", f"tablet {SCHEME_TABLET_ID}", "it is gone, though there are topics")
        return None
    scheme = Scheme(storage, clock=lambda: 0)
    try:
        await scheme.start()
    except CommitRefused:
        if not is_new:
            findings.damage("scheme", "its log", "it is empty, though there are topics")
        return None
    except _UNREADABLE as bad:
        findings.damage("scheme", "its log", f"it cannot be replayed: {type(bad).__name__}: {bad}")
        return None
    findings.count("topics", len(scheme.topics))
    return scheme.topics


async def _check_coordinator(storage: TabletStorage, where: str, findings: Findings) -> None:
    """Replay a coordinator's log, and read the groups in it."""
    tablet = BaseTablet(storage)
    try:
        await tablet.start()
        groups = list(tablet.tables[TABLE]) if TABLE in tablet.tables else []
        for key, row in groups:
            read_group(str(key[0]), row)
    except _UNREADABLE as bad:
        findings.damage("log", where, f"it cannot be replayed: {type(bad).__name__}: {bad}")
        return
    findings.count("groups", len(groups))


def _hold_logs(records: Mapping[int, TabletRecord], blobs: StoredBlobs) -> None:
    """Log blobs and snapshots are not held by rows; those that no log names are garbage that is collected."""
    for blob in blobs.holders:
        found = BlobId.from_key(blob)
        if found.channel < USER_CHANNEL and found.tablet in records:
            blobs.hold(blob)


def _places(topics: Iterable[Topic]) -> dict[int, Place]:
    found: dict[int, Place] = {}
    for topic in topics:
        for number, tablet in enumerate(topic.tablets):
            first = number * topic.partitions_per_tablet
            stop = min(first + topic.partitions_per_tablet, topic.partitions)
            found[tablet] = Place(topic.name, range(first, stop))
    return found


def _check_places(places: Mapping[int, Place], rows: TabletRows, findings: Findings) -> None:
    records = rows.records
    for tablet, place in places.items():
        record = records.get(tablet)
        if tablet in rows.unreadable:
            findings.damage("scheme", place.topic, f"its partitions of tablet {tablet} are refused")
        elif record is None:
            told = f"its tablet {tablet} is not there"
            findings.harmless("scheme", place.topic, told, "nothing: the next start makes it")
        elif record.type is not TabletType.PERSQUEUE:
            findings.damage("scheme", place.topic, f"its tablet {tablet} is of type {record.type.name}")
    for record in records.values():
        if record.type is TabletType.PERSQUEUE and record.tablet_id not in places and not record.dropping:
            findings.harmless("scheme", f"tablet {record.tablet_id}", "no topic has it", NEXT_START)
