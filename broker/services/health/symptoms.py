"""Symptoms of one look at a node, from facts in memory alone: no look waits for a disk, a worker or a lock."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

from pqbroker.broker.services.health.callers import HealthyNode
from pqbroker.broker.services.health.conditions import ConditionKind, Symptom
from pqbroker.broker.services.health.recent import Recent
from pqbroker.pq.serving.topic import Topic
from pqbroker.storage.blobs.blob_id import BlobId
from pqbroker.storage.bundles.open_cells import OpenCells
from pqbroker.storage.engine import BlobKey
from pqbroker.storage.ids import SYSTEM_CELL
from pqbroker.storage.pool_status import Colour
from pqbroker.storage.quarantine import HELD_CURE, QUARANTINE_CURE
from pqbroker.storage.tablets.cell import Cell
from pqbroker.tables.paths import table_path

SYSTEM_PLACE: Final = f"cell {SYSTEM_CELL}"
PLACES_NAMED_MAX: Final = 5
"""Topics, tables or damaged places that a cause names; it gives the number of the others."""
SYNC_SLOW_S: Final = 1.0
"""Seconds of a round of commits from which its disk counts as stalled."""
RETENTION_SLACK: Final = 3
"""Intervals between looks of retention after which one that has not ended is late."""
RETENTION_SLACK_S: Final = 30.0
_SYSTEM_AFFECTS: Final = "consumer groups, topics and tables of the system cell; nothing can be created or changed"
_DISK_CURE: Final = "delete records, topics or other files, or enlarge the disk"


def symptoms(node: HealthyNode, recent: Recent) -> Iterator[Symptom]:
    """Yield what is wrong with the node now, or was within the seconds that `recent` looks back."""
    yield from _lost_cells(node)
    yield from _nodes_away(node)
    for cell, host in node.cell.current.cells.hosts():
        if not host.cell.lost.done():
            yield from _of_cell(f"cell {cell}", host.cell, recent)
    yield from _refusals(recent)
    yield from _workers(recent)
    yield from _compaction(node)
    yield from _retention(node, recent.seconds_since_retention)
    if recent.clock_jump_s:
        yield _clock_jump(recent.clock_jump_s)


def _lost_cells(node: HealthyNode) -> Iterator[Symptom]:
    opened = node.cell.current
    if not node.cell.is_open:
        cause = f"the cell was lost: {opened.cell.lost.result()}; it is being opened again"
        cure = "see to the disk; the broker opens the cell again by itself, and ends where that fails for too long"
        yield Symptom(ConditionKind.CELL_LOST, SYSTEM_PLACE, _SYSTEM_AFFECTS, cause, cure)
        return
    for cell in opened.hive.cells:
        if opened.others.health(cell) == "failed":
            cause = opened.others.failure(cell) or "the cell is being opened again"
            cure = "see to its disk; the broker opens the cell again by itself"
            yield Symptom(ConditionKind.CELL_LOST, f"cell {cell}", _topics_of(opened.cells, str(cell)), cause, cure)


def _nodes_away(node: HealthyNode) -> Iterator[Symptom]:
    others = node.others()
    for number, cause in () if others is None else sorted(others.away().items()):
        affects = "its clients until they have found other nodes, and the load of these, which run its cells"
        cure = "its parent process starts it again by itself; the log says why it ended"
        yield Symptom(ConditionKind.NODE_AWAY, f"node {number}", affects, cause, cure)


def _topics_of(cells: OpenCells, cell: str) -> str:
    return f"topics and tables with tablets in cell {cell}; `pqbroker tablet list` names them"


def _of_cell(place: str, cell: Cell, recent: Recent) -> Iterator[Symptom]:
    affects = f"every topic and table in {place}"
    if cell.reading_only:
        cause, _, cure = cell.reading_only.partition(": ")
        yield Symptom(ConditionKind.READING_ONLY, place, f"writes to {affects}", cause, cure or _DISK_CURE)
    else:
        yield from _of_disks(place, cell)
    damages = cell.quarantine.damages
    if cell.quarantine.is_damaged:
        named = ", ".join(islice(sorted(damages), PLACES_NAMED_MAX))
        cause = f"{len(damages)} places are unreadable: {named}" if damages else "a salvage gave something up"
        cure = HELD_CURE if cell.quarantine.is_held else QUARANTINE_CURE
        yield Symptom(ConditionKind.DAMAGED, place, "what is stored there; nothing of the cell is removed", cause, cure)
    if blobs := recent.damaged_blobs.get(place):
        yield _damaged_blobs(place, blobs)
    slow_s = recent.slow_rounds.get(place, 0.0)
    if slow_s:
        cause = f"a round of commits took {slow_s:.1f} s, or takes that long so far; its disk is slow or stalled"
        yield Symptom(ConditionKind.SYNC_SLOW, place, f"answers to writes to {affects}", cause, "look at the disk")


def _damaged_blobs(place: str, blobs: Mapping[BlobKey, str]) -> Symptom:
    tablets = _named(str(BlobId.from_key(blob).tablet) for blob in blobs)
    affects = f"reads of records or rows in tablets {tablets}; `pqbroker tablet list` names them"
    cause = f"blobs with other bytes than were written: {len(blobs)}; {next(iter(blobs.values()))}"
    cure = "delete the records before the damage, or restore a copy; `pqbroker doctor` looks for more"
    return Symptom(ConditionKind.DAMAGED, f"{place}, blobs", affects, cause, cure)


def _of_disks(place: str, cell: Cell) -> Iterator[Symptom]:
    for pool in cell.pools:
        colour = cell.colour(pool)
        pool_place = f"{place}, pool {pool}"
        if colour >= Colour.YELLOW_STOP:
            taken = "deletes alone are taken" if colour >= Colour.ORANGE_OUT_SPACE else "writes of clients are refused"
            affects = f"writes to topics and tables that keep their data in pool {pool} of {place}"
            cause = f"the disk is full ({colour.name.lower()}): {taken}"
            yield Symptom(ConditionKind.DISK_FULL, pool_place, affects, cause, _DISK_CURE)
        elif colour > Colour.GREEN:
            cause = "the disk is nearly full: less is free than pqbroker.disk.light.yellow.bytes or a fifth of it"
            affects = "nothing yet; writes stop when a tenth is left, or pqbroker.disk.yellow.bytes"
            yield Symptom(ConditionKind.DISK_NEARLY_FULL, pool_place, affects, cause, _DISK_CURE)


def _refusals(recent: Recent) -> Iterator[Symptom]:
    if recent.refused_connections:
        cause = f"{recent.refused_connections} connections of Kafka clients were refused within the last seconds"
        cure = "close unused connections, or raise max.connections and max.connections.per.ip"
        yield Symptom(ConditionKind.REFUSING, "Kafka connections", "clients that connect", cause, cure)
    if recent.refused_calls:
        cause = f"{recent.refused_calls} HTTP requests were refused with 503 within the last seconds"
        cure = "send fewer requests at once, or raise the limit that the refusal names"
        yield Symptom(ConditionKind.REFUSING, "HTTP requests", "clients of the HTTP address", cause, cure)


def _workers(recent: Recent) -> Iterator[Symptom]:
    for kind, lost in recent.lost_workers.items():
        cause = f"{lost} worker processes ended by themselves within a minute"
        cure = "the log says how each ended; most often memory is short"
        yield Symptom(ConditionKind.WORKERS_FAILING, f"worker processes of {kind}", kind, cause, cure)


def _compaction(node: HealthyNode) -> Iterator[Symptom]:
    background = node.cell.current.sorted_tables.used_background
    if background is not None and background.blocks.tablets:
        tables = {table_path(tablet.config.table): error for tablet, error in background.blocks.tablets.items()}
        (name, refusal), *_ = sorted(tables.items())
        others = f", and of {len(tables) - 1} other tables" if len(tables) > 1 else ""
        cause = f"{refusal.code} at {name}{others}: {refusal.message}"
        affects = f"writes to {_named(tables)}"
        yield Symptom(ConditionKind.COMPACTION_BEHIND, "sorted tables", affects, cause, refusal.cure)
    if background is not None and background.failures:
        failed = {table_path(tablet.config.table): text for tablet, text in background.failures.items()}
        cause = f"rows in memory cannot be written to chunks: {next(iter(failed.values()))}"
        cure = "see to the cause; it is tried again by itself, and the log keeps the rows"
        yield Symptom(ConditionKind.COMPACTION_BEHIND, "flushes of sorted tables", _named(failed), cause, cure)
    if node.cleaner.failed:
        topics = node.cell.current.topics
        failed = {_place(topics.by_id(topic), index): one.text for (topic, index), one in node.cleaner.failed.items()}
        cause = f"passes of the cleaner failed: {next(iter(failed.values()))}"
        cure = "see to the cause; `pqbroker topic clean` tries again at once"
        affects = f"the size of {_named(failed)}"
        yield Symptom(ConditionKind.COMPACTION_BEHIND, "the cleaner of compacted topics", affects, cause, cure)


def _place(topic: Topic | None, index: int) -> str:
    return "a deleted topic" if topic is None else f"{topic.record.name}-{index}"


def _named(names: Iterable[str]) -> str:
    ordered = sorted(set(names))
    more = f" and {len(ordered) - PLACES_NAMED_MAX} others" if len(ordered) > PLACES_NAMED_MAX else ""
    return ", ".join(ordered[:PLACES_NAMED_MAX]) + more


def _retention(node: HealthyNode, late_s: float) -> Iterator[Symptom]:
    interval_s = node.settings.retention_check_interval_ms / 1000
    if late_s > RETENTION_SLACK * interval_s + RETENTION_SLACK_S and node.cell.is_open:
        if node.cell.current.cell.reading_only:
            return
        cause = f"no look for expired records has ended for {late_s:.0f} s; one is due every {interval_s:.0f} s"
        cure = "look at the log and the load of the disk; less can be kept by deleting topics or records"
        yield Symptom(ConditionKind.RETENTION_BEHIND, "retention", "the size of every topic", cause, cure)


def _clock_jump(jump_s: float) -> Symptom:
    direction = "forward" if jump_s > 0 else "back"
    return Symptom(
        ConditionKind.CLOCK_JUMPED, "the clock of the machine",
        "retention, expiry, and timestamps that the broker gives",
        f"the clock moved {direction} by {abs(jump_s):.0f} s against the time that passed",
        "see to the machine's time synchronisation; records are expired by their timestamps and this clock",
    )  # fmt: skip


