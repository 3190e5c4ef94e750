"""Other columns: of a table that is unmounted, and of a topic whose records are read by a schema."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.services.configs.changes import Resource
from pqbroker.broker.services.configs.changes import alter as change_configs
from pqbroker.broker.services.configs.operations import Change, Operation
from pqbroker.broker.services.tables.callers import TablesCaller
from pqbroker.broker.services.tables.readiness import check_unmounted
from pqbroker.broker.services.topics.finding import find_topic
from pqbroker.broker.services.topics.topic_schemas import SCHEMA
from pqbroker.pq.serving.topic import Topic
from pqbroker.storage.tablets.scheme_state import TopicRecord
from pqbroker.tables.schema import Schema, check_alteration, check_names, read_schema


async def alter_schema(caller: TablesCaller, name: str, columns: Sequence[Mapping[str, Any]]) -> Topic:
    """Give a table that is unmounted as a whole other columns (E.10). Any other topic takes them while it is served:
    they are a view of its records. Without columns it has no schema.

    KafkaError as `find_topic`; TableError WRONG_STATE, INCOMPATIBLE_SCHEMA and those of schemas; ConfigError.
    """
    topic = find_topic(caller, AclOperation.ALTER, name, or_static=True)
    if topic.record.table is None:
        return await _set_view(caller, topic, columns)
    schema = _read(caller, topic, columns)

    def altered(record: TopicRecord) -> TopicRecord:
        assert record.table is not None
        check_unmounted(topic)
        before = record.table.columns
        old = read_schema(before, len(before), record.config)
        check_alteration(old, schema)
        check_names(schema, old)
        return replace(record, table=replace(record.table, columns=schema.documents()))

    return await caller.node.cell.current.topics.change(topic.record.name, altered)


async def _set_view(caller: TablesCaller, topic: Topic, columns: Sequence[Mapping[str, Any]]) -> Topic:
    change = Change(SCHEMA, Operation.DELETE, None)
    if columns:
        documents = _read(caller, topic, columns).documents()
        change = Change(SCHEMA, Operation.SET, json.dumps(documents, ensure_ascii=False))
    resource = (Resource.TOPIC, topic.record.name)
    await change_configs(caller, resource, [change], replaces=False, validate_only=False)
    return find_topic(caller, AclOperation.DESCRIBE, topic.record.name)


def _read(caller: TablesCaller, topic: Topic, columns: Sequence[Mapping[str, Any]]) -> Schema:
    return read_schema(columns, caller.node.settings.table_columns_max, topic.record.config)
