"""The schema of a topic: its table's, or the one that pq.schema gives it, by which its records are read as rows. And
what a table's attributes have to do with its configs.

What knows of schemas is loaded with the first topic that has one.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.declare import ConfigError
from pqbroker.conf.defaults import topic_config
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.tablets.scheme_state import TopicRecord

if TYPE_CHECKING:
    from pqbroker.pq.serving.topic import Topic

SCHEMA = "pq.schema"
_RETENTION = "retention.ms"
Columns = Sequence[Mapping[str, Any]]
"""Documents of columns, as `tables.schema.read_schema` takes them."""
_TEXTS_KEPT = 64


def columns_of(topic: "Topic") -> Columns | None:
    """The columns of a topic's schema, the same object as long as that is the same; None: it has none."""
    table = topic.record.table
    if table is not None:
        return table.columns
    text = topic.config.pq_schema
    return _stored(text) if text else None


def check_schema(config: Mapping[str, str], columns_max: int) -> None:
    """ConfigError where the configs that a topic is to have give it a schema that cannot be."""
    from pqbroker.tables.refusals import TableError

    text = config.get(SCHEMA)
    if not text:
        return
    try:
        _read(text, columns_max)
    except TableError as refusal:
        raise ConfigError(f"{SCHEMA}: {refusal.message}. {refusal.cure}") from None
    except (ValueError, RecursionError):
        example = '[{"name": "id", "type": "int64"}]'
        raise ConfigError(f"{SCHEMA} is no JSON array of columns; give one, such as {example}") from None


def check_new_schema(topic: "Topic", text: str, settings: BrokerSettings) -> None:
    """As `check_schema`, of a topic that is there. KafkaError POLICY_VIOLATION for one that was made as a table: its
    schema is altered as its rows allow."""
    if topic.record.table is not None:
        why = f"{topic.record.name} is a table; alter its schema by `pqbroker table alter`, or POST …/alter"
        raise KafkaError(ErrorCode.POLICY_VIOLATION, why)
    check_schema({SCHEMA: text}, settings.table_columns_max)


def follow_retention(settings: BrokerSettings, record: TopicRecord) -> TopicRecord:
    """The record with a table's attributes as its retention.ms is, which holds at once: they are two names of one age
    (E.6)."""
    table = record.table
    if table is None:
        return record
    from pqbroker.tables.attributes import retention_ms, with_retention

    text = record.config.get(_RETENTION)
    kept_ms = topic_config({}, settings).retention_ms if text is None else int(text)
    if kept_ms == retention_ms(table.mounted):
        return record
    attributes, mounted = (with_retention(each, kept_ms) for each in (table.attributes, table.mounted))
    return replace(record, table=replace(table, attributes=attributes, mounted=mounted))


@lru_cache(maxsize=_TEXTS_KEPT)
def _stored(text: str) -> Columns | None:
    """None too for what another version of this broker took, and this one does not."""
    from pqbroker.tables.refusals import TableError

    try:
        return _read(text, len(text))
    except (TableError, ValueError, RecursionError):
        return None


def _read(text: str, columns_max: int) -> Columns:
    from pqbroker.tables.refusals import TableError
    from pqbroker.tables.schema import read_schema

    items = json.loads(text)
    if not isinstance(items, list):
        raise ValueError
    schema = read_schema(items, columns_max)
    if schema.filled:
        text = f"the column {schema.filled[0]} is of tables: a topic that was not made as one does not fill it"
        raise TableError("INVALID_SCHEMA", text, "Leave it out, or make a table by POST /v1/tables.")
    return schema.documents()
