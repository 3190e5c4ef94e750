"""The table a path names, and what is said of it."""

from collections.abc import Sequence
from typing import Any

from pqbroker.broker.apis import topic_schemas
from pqbroker.broker.apis.access import AclOperation
from pqbroker.broker.http.routes import Call
from pqbroker.conf.table_attributes import in_force
from pqbroker.pq.serving.topic import Topic
from pqbroker.storage.tablets.scheme_state import TableRecord
from pqbroker.tables.mount import MountState, table_state
from pqbroker.tables.paths import table_path
from pqbroker.tables.refusals import TableError
from pqbroker.tables.schema import Schema, read_schema

_STATES = {state.value: state for state in MountState}
NO_TABLETS = "none"
"""The state of a static table."""


def find_table(call: Call, operation: AclOperation, *, or_static: bool = False) -> tuple[Topic, TableRecord]:
    """KafkaError as `find_topic`; TableError NO_TABLE for a topic that is none, STATIC_TABLE."""
    topic = find_rows(call, operation, or_static=or_static)
    if topic.record.table is None:
        text = f"{topic.record.name} is a topic that was not made as a table"
        raise TableError("NO_TABLE", text, "Create a table by POST /v1/tables; GET /v1/tables lists them.")
    return topic, topic.record.table


def find_rows(call: Call, operation: AclOperation, *, or_static: bool = False) -> Topic:
    """Any topic. KafkaError as `find_topic`; TableError STATIC_TABLE for a static table, unless `or_static`."""
    topic = call.topic(operation, or_static=True)
    if topic.record.is_static and not or_static:
        path = table_path(topic.record.name)
        cure = f'Read it by SQL, or make it dynamic by POST /v1/tables/{topic.record.name}/alter {{"dynamic": true}}.'
        raise TableError("STATIC_TABLE", f"{path} is a static table", cure)
    return topic


def find_typed(call: Call, operation: AclOperation, *, or_static: bool = False) -> tuple[Topic, Schema]:
    """A topic that has a schema, be it a table or not. TableError NO_TABLE, STATIC_TABLE."""
    topic = find_rows(call, operation, or_static=or_static)
    schema = schema_of(topic)
    if schema is None:
        cure = f"Give it one by POST /v1/tables/{topic.record.name}/alter, or `pqbroker table alter`."
        raise TableError("NO_TABLE", f"{topic.record.name} is a topic without a schema", cure)
    return topic, schema


def schema_of(topic: Topic) -> Schema | None:
    """As it was given, whatever the limit of columns is now."""
    stored = topic_schemas.schema_of(topic)
    return None if stored is None else read_schema(stored.columns, len(stored.columns), stored.formats)


def check_tablet(topic: Topic, index: int, name: str = "tablet_index") -> int:
    """The index of a tablet; TableError NO_TABLET."""
    if not 0 <= index < len(topic.partitions):
        text = f"{name} is {index}; {table_path(topic.record.name)} has the tablets 0 to {len(topic.partitions) - 1}"
        raise TableError("NO_TABLET", text, "Give the number of a tablet.")
    return index


def tablet_range(call: Call, topic: Topic) -> Sequence[int]:
    """The tablets that a command names, all unless it says which."""
    first = call.body.get("first_tablet_index", 0)
    last = call.body.get("last_tablet_index", len(topic.partitions) - 1)
    check_tablet(topic, first, "first_tablet_index")
    check_tablet(topic, last, "last_tablet_index")
    if last < first:
        text = f"last_tablet_index is {last}, before first_tablet_index = {first}"
        raise TableError("NO_TABLET", text, "Give the first tablet, and one that is not before it.")
    return range(first, last + 1)


def states(topic: Topic) -> list[MountState]:
    """Of each partition; those of a topic that was not made as a table are always mounted."""
    if topic.record.table is None:
        return [MountState.MOUNTED] * len(topic.partitions)
    return list(map(_STATES.__getitem__, topic.states))


def state_of(topic: Topic, index: int) -> MountState:
    """The state of one partition: a table may have thousands."""
    return MountState.MOUNTED if topic.record.table is None else _STATES[topic.state_of(index)]


def facts(topic: Topic) -> dict[str, Any]:
    """What a list says of a table."""
    return {
        "name": topic.record.name,
        "path": table_path(topic.record.name),
        "dynamic": not topic.record.is_static,
        "tablet_count": 0 if topic.record.is_static else len(topic.partitions),
        "state": NO_TABLETS if topic.record.is_static else table_state(states(topic)),
        "bundle": topic.config.pq_bundle,
    }


def shown(topic: Topic, table: TableRecord | None = None) -> dict[str, Any]:
    """`table`: what it was made as, where the topic is not; a topic has no attributes, but configs."""
    table = table or topic.record.table
    stored = topic_schemas.schema_of(topic)
    return {
        **facts(topic),
        "schema": list(table.columns if table else stored.columns if stored else ()),
        "formats": topic_schemas.formats_of(topic),
        "attributes": in_force(table.attributes) if table else {},
        "mounted_attributes": _agreed(table) if table else {},
    }


def _agreed(table: TableRecord) -> dict[str, Any]:
    """Attributes that act alike in all tablets; the list of tablets has those of each."""
    first, *others = map(in_force, table.mounted.sets)
    return {name: value for name, value in first.items() if all(other[name] == value for other in others)}
