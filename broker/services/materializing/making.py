"""Materializations made, paused, resumed, dropped and shown."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from pqbroker.broker.ground.access import AclKind, AclOperation, AclResource, is_allowed
from pqbroker.broker.services.materializing.callers import FeedingCaller
from pqbroker.broker.services.materializing.views import MaterializationView, view_of
from pqbroker.broker.services.sorted_tables.feed_circles import CIRCLE_CURE, told_circle, way_of_changes
from pqbroker.broker.services.sorted_tables.finding import find_sorted
from pqbroker.broker.services.topics.finding import find_topic
from pqbroker.broker.services.topics.topic_schemas import typed_schema_of
from pqbroker.storage.tablets.scheme_materializations import (
    MaterializationChanges,
    MaterializationExists,
    MaterializationRecord,
    MaterializationUnknown,
)
from pqbroker.tables.paths import table_path
from pqbroker.tables.refusals import TableError
from pqbroker.tables.serving.table import SortedTable
from pqbroker.tables.sorted.column_origins import resolve_origins

MATERIALIZATIONS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class NewMaterialization:
    """A materialization as it is asked for. `columns`: the origin of each column; None: that of its name."""

    topic: str
    table: str
    columns: Mapping[str, str] | None = None
    letter_topic: str = ""


async def create_materialization(caller: FeedingCaller, new: NewMaterialization) -> MaterializationView:
    """Have a topic feed a sorted table, from the topic's start on.

    KafkaError as `find_topic`; TableError NO_TABLE, INVALID_ORIGINS, INVALID_LETTER_TOPIC, MATERIALIZED,
    TOO_MANY_MATERIALIZATIONS.
    """
    topic = find_topic(caller, AclOperation.READ, new.topic)
    table = find_sorted(caller, AclOperation.WRITE, new.table)
    way = way_of_changes(caller.node.cell.current, table_path(table.record.name), topic.record.name)
    if way:
        raise TableError("INVALID_ORIGINS", told_circle(way), CIRCLE_CURE)
    if new.letter_topic:
        letters = find_topic(caller, AclOperation.WRITE, new.letter_topic)
        if letters is topic:
            cure = "Name another one: records that come back would be read again for ever."
            raise TableError("INVALID_LETTER_TOPIC", "the topic of dead letters is the one that feeds the table", cure)
    changes = _changes(caller)
    if len(changes.known()) >= MATERIALIZATIONS_MAX:
        text = f"{MATERIALIZATIONS_MAX} tables are fed from topics already"
        raise TableError("TOO_MANY_MATERIALIZATIONS", text, "Drop one that is not needed any more.")
    origins = resolve_origins(table.schema, typed_schema_of(topic), new.columns)
    wanted = MaterializationRecord(
        table.record.table_id, topic.record.topic_id, topic.record.name, b"", origins,
        new.columns, tuple(table.record.columns), new.letter_topic, False, caller.node.clock(), _creator(caller),
    )  # fmt: skip
    try:
        record = await changes.create(wanted)
    except MaterializationExists:
        text = f"{table_path(table.record.name)} is fed from a topic already"
        raise TableError("MATERIALIZED", text, "Drop that first; GET /v1/materializations shows it.") from None
    except MaterializationUnknown as unknown:
        raise TableError("NO_TABLE", str(unknown), "GET /v1/tables lists the tables.") from None
    caller.node.feeding.look_soon()
    return view_of(caller.node, table, record)


async def pause(caller: FeedingCaller, name: str) -> MaterializationView:
    """Read nothing more until it is resumed. KafkaError; TableError NO_TABLE, NO_MATERIALIZATION."""
    return await _change(caller, name, lambda table, record: replace(record, is_paused=True))


async def resume(caller: FeedingCaller, name: str, *, from_start: bool) -> MaterializationView:
    """Continue where it was left, or with `from_start` from the start of the topic of that name; origins are found
    again. Raises as `create_materialization`, and TableError NO_MATERIALIZATION."""

    def changed(table: SortedTable, record: MaterializationRecord) -> MaterializationRecord:
        topic = caller.node.cell.current.topics.by_id(record.topic_id)
        if topic is None or from_start:
            topic = find_topic(caller, AclOperation.READ, record.topic)
        if topic.record.topic_id != record.topic_id and not from_start:
            text = f"the topic {record.topic!r} is another one than the one that was read"
            raise TableError("TOPIC_REPLACED", text, "Resume from its start: --from-start, or {\"from_start\": true}.")
        origins = resolve_origins(table.schema, typed_schema_of(topic), record.declared)
        return replace(
            record, is_paused=False, topic_id=topic.record.topic_id, origins=origins,
            columns=tuple(table.record.columns), creator=_creator(caller),
        )  # fmt: skip

    return await _change(caller, name, changed, is_new_run=from_start)


async def drop(caller: FeedingCaller, name: str) -> None:
    """Feed the table no more; its rows stay. KafkaError; TableError NO_TABLE, NO_MATERIALIZATION."""
    table = find_sorted(caller, AclOperation.ALTER, name)
    try:
        await _changes(caller).drop(table.record.table_id)
    except MaterializationUnknown:
        raise _none(table) from None
    await caller.node.feeding.look(caller.node)


def find_materialization(caller: FeedingCaller, name: str) -> MaterializationView:
    """KafkaError; TableError NO_TABLE, NO_MATERIALIZATION."""
    table = find_sorted(caller, AclOperation.DESCRIBE, name)
    record = _changes(caller).known().get(table.record.table_id)
    if record is None:
        raise _none(table)
    return view_of(caller.node, table, record)


def every_materialization(caller: FeedingCaller) -> list[MaterializationView]:
    """Return those of the tables that the caller may see, by the names of the tables."""
    tables = caller.node.cell.current.sorted_tables
    known = ((tables.by_id(table_id), record) for table_id, record in _changes(caller).known().items())
    seen = [
        (table, record) for table, record in known
        if table is not None
        and is_allowed(caller, AclOperation.DESCRIBE, AclResource(AclKind.TOPIC, table.record.name))
    ]  # fmt: skip
    return [view_of(caller.node, *each) for each in sorted(seen, key=lambda each: each[0].record.name)]


def _creator(caller: FeedingCaller) -> str:
    """Return whose rights a materialization has from now on; empty where nobody's are checked."""
    return "" if caller.node.access is None else str(caller.principal)


async def _change(
    caller: FeedingCaller, name: str, change: Callable[[SortedTable, MaterializationRecord], MaterializationRecord],
    *, is_new_run: bool = False,
) -> MaterializationView:
    table = find_sorted(caller, AclOperation.ALTER, name)
    try:
        record = await _changes(caller).change(
            table.record.table_id, lambda record: change(table, record), is_new_run=is_new_run
        )
    except MaterializationUnknown:
        raise _none(table) from None
    await caller.node.feeding.look(caller.node)
    return view_of(caller.node, table, record)


def _changes(caller: FeedingCaller) -> MaterializationChanges:
    return MaterializationChanges(caller.node.cell.current.scheme)


def _none(table: SortedTable) -> TableError:
    text = f"{table_path(table.record.name)} is fed from no topic"
    return TableError("NO_MATERIALIZATION", text, "`pqbroker table materialize TOPIC INTO TABLE` has a topic feed it.")
