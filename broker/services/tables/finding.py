"""The table of a name, its tablets and their states."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.services.topics.callers import Caller
from pqbroker.broker.services.topics.finding import find_topic
from pqbroker.broker.services.topics.topic_schemas import typed_schema_of
from pqbroker.pq.serving.topic import Topic
from pqbroker.storage.tablets.scheme_state import TableRecord
from pqbroker.tables.mount import MountState
from pqbroker.tables.paths import table_path
from pqbroker.tables.refusals import TableError
from pqbroker.tables.schema import Schema

_STATES = {state.value: state for state in MountState}


class TabletRange(NamedTuple):
    """The tablets that a command names, from `first` to `last`; None: from the first one, to the last one."""

    first: int | None = None
    last: int | None = None

    def of(self, topic: Topic) -> Sequence[int]:
        """Return the tablets of a table that are meant. TableError NO_TABLET."""
        return self.among(topic.record.name, len(topic.partitions))

    def among(self, name: str, count: int) -> Sequence[int]:
        """Return the tablets that are meant of a table with `count` of them. TableError NO_TABLET."""
        first = 0 if self.first is None else self.first
        last = count - 1 if self.last is None else self.last
        check_index(name, count, first, "first_tablet_index")
        check_index(name, count, last, "last_tablet_index")
        if last < first:
            text = f"last_tablet_index is {last}, before first_tablet_index = {first}"
            raise TableError("NO_TABLET", text, "Give the first tablet, and one that is not before it.")
        return range(first, last + 1)


ALL_TABLETS: Final = TabletRange()


def find_table(
    caller: Caller, operation: AclOperation, name: str, *, or_static: bool = False
) -> tuple[Topic, TableRecord]:
    """KafkaError as `find_topic`; TableError NO_TABLE for a topic that is none, STATIC_TABLE."""
    topic = find_rows(caller, operation, name, or_static=or_static)
    if topic.record.table is None:
        text = f"{topic.record.name} is a topic that was not made as a table"
        raise TableError("NO_TABLE", text, "Create a table by POST /v1/tables; GET /v1/tables lists them.")
    return topic, topic.record.table


def find_rows(caller: Caller, operation: AclOperation, name: str, *, or_static: bool = False) -> Topic:
    """Any topic. KafkaError as `find_topic`; TableError STATIC_TABLE for a static table, unless `or_static`."""
    topic = find_topic(caller, operation, name, or_static=True)
    if topic.record.is_static and not or_static:
        path = table_path(topic.record.name)
        cure = f'Read it by SQL, or make it dynamic by POST /v1/tables/{topic.record.name}/alter {{"dynamic": true}}.'
        raise TableError("STATIC_TABLE", f"{path} is a static table", cure)
    return topic


def find_typed(caller: Caller, operation: AclOperation, name: str, *, or_static: bool = False) -> tuple[Topic, Schema]:
    """Return a topic that has a schema, a table or not. TableError NO_TABLE, STATIC_TABLE."""
    topic = find_rows(caller, operation, name, or_static=or_static)
    schema = typed_schema_of(topic)
    if schema is None:
        cure = f"Give it one by POST /v1/tables/{topic.record.name}/alter, or `pqbroker table alter`."
        raise TableError("NO_TABLE", f"{topic.record.name} is a topic without a schema", cure)
    return topic, schema


def check_tablet(topic: Topic, index: int, name: str = "tablet_index") -> int:
    """The index of a tablet; TableError NO_TABLET."""
    check_index(topic.record.name, len(topic.partitions), index, name)
    return index


def check_index(table: str, count: int, index: int, what: str) -> None:
    """TableError NO_TABLET for a number that none of a table's `count` tablets has; `what` gives it."""
    if not 0 <= index < count:
        text = f"{what} is {index}; {table_path(table)} has the tablets 0 to {count - 1}"
        raise TableError("NO_TABLET", text, "Give the number of a tablet.")


def states(topic: Topic) -> list[MountState]:
    """Return the state of each partition; those of a topic that was not made as a table are always mounted."""
    if topic.record.table is None:
        return [MountState.MOUNTED] * len(topic.partitions)
    return list(map(_STATES.__getitem__, topic.states))


def state_of(topic: Topic, index: int) -> MountState:
    """The state of one partition: a table may have thousands."""
    return MountState.MOUNTED if topic.record.table is None else _STATES[topic.state_of(index)]
