"""The schema of a topic: its table's, or the one that pq.schema gives it, by which its records are read as rows, and
the formats that they are stored in. And what a table's attributes have to do with its configs.

What knows of schemas is loaded with the first topic that has one.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.declare import ConfigError
from pqbroker.conf.defaults import topic_config
from pqbroker.conf.table_attributes import retention_ms, with_retention
from pqbroker.conf.topic import FIXED_AT_CREATION, JSON
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.tablets.scheme_state import TopicRecord

if TYPE_CHECKING:
    from pqbroker.pq.serving.topic import Topic
    from pqbroker.tables.schema import Schema

SCHEMA: Final = "pq.schema"
FORMATS: Final = {
    "value.format": "value_format",
    "value.avro.schema": "value_avro_schema",
    "key.format": "key_format",
    "key.avro.schema": "key_avro_schema",
}
"""Configs that say how records hold columns, with their attributes."""
RETENTION: Final = "retention.ms"
Columns = Sequence[Mapping[str, Any]]
"""Documents of columns, as `tables.schema.read_schema` takes them."""
_TEXTS_KEPT = 64
_ALL_JSON: Mapping[str, str] = {}
_AVRO_SCHEMAS = ("value.avro.schema", "key.avro.schema")


class TopicSchema(NamedTuple):
    """The arguments of `tables.schema.read_schema`."""

    columns: Columns
    formats: Mapping[str, str]
    """Configs that are not the default, by name."""


def schema_of(topic: "Topic") -> TopicSchema | None:
    """The schema of a topic; None: it has none."""
    table = topic.record.table
    formats = formats_of(topic)
    if table is not None:
        return TopicSchema(table.columns, formats)
    text = topic.config.pq_schema
    columns = _stored(text, tuple(formats.items())) if text else None
    return None if columns is None else TopicSchema(columns, formats)


def typed_schema_of(topic: "Topic") -> "Schema | None":
    """Return the schema as it was given, whatever the limit of columns is now."""
    return topic.derived(_typed)


def formats_of(topic: "Topic") -> Mapping[str, str]:
    """Return the formats by config, those that are not the default."""
    config = topic.config
    if config.value_format == config.key_format == JSON:
        return _ALL_JSON
    return {name: text for name, attribute in FORMATS.items() if (text := getattr(config, attribute)) not in ("", JSON)}


def fixed_configs(topic: "Topic") -> Collection[str]:
    """Return the configs that a topic got when it was made, and keeps: rows of a table are stored in its formats."""
    return FIXED_AT_CREATION if topic.record.table is None else FIXED_AT_CREATION.union(FORMATS)


def check_schema(config: Mapping[str, str], columns_max: int, old: TopicSchema | None = None) -> None:
    """Check the schema that configs would give a topic. ConfigError if it is invalid. `old`: its schema now."""
    from pqbroker.tables.avro_schema import read_avro_schema
    from pqbroker.tables.refusals import TableError
    from pqbroker.tables.schema import check_names, read_schema

    text = config.get(SCHEMA)
    try:
        if text:
            known = None if old is None else read_schema(old.columns, len(old.columns), old.formats)
            check_names(_read(text, columns_max, config), known)
        for name in _AVRO_SCHEMAS:
            if config.get(name):
                read_avro_schema(config[name], name)
    except TableError as refusal:
        place = f"{SCHEMA}: " if text else ""
        raise ConfigError(f"{place}{refusal.message}. {refusal.cure}") from None
    except (ValueError, RecursionError):
        example = '[{"name": "id", "type": "int64"}]'
        raise ConfigError(f"{SCHEMA} is no JSON array of columns; give one, such as {example}") from None


def check_new_schema(topic: "Topic", config: Mapping[str, str], settings: BrokerSettings) -> None:
    """Check the configs that an existing topic is to have, as `check_schema` does. Raise KafkaError POLICY_VIOLATION
    for a topic that was made as a table: its schema is altered as its rows allow."""
    if topic.record.table is None:
        check_schema(config, settings.table_columns_max, schema_of(topic))
    elif config.get(SCHEMA):
        why = f"{topic.record.name} is a table; alter its schema by `pqbroker table alter`, or POST …/alter"
        raise KafkaError(ErrorCode.POLICY_VIOLATION, why)


def follow_retention(
    settings: BrokerSettings, before: TopicRecord, record: TopicRecord, *, is_given: bool
) -> TopicRecord:
    """The record with attributes as its retention.ms is: two names of one age (E.6). It holds at once in all tablets
    if it was given (`is_given`) or is another one than before; else each tablet keeps its own."""
    table, text = record.table, record.config.get(RETENTION)
    if table is None or not (is_given or text != before.config.get(RETENTION)):
        return record
    kept_ms = topic_config({}, settings).retention_ms if text is None else int(text)
    if all(retention_ms(attributes) == kept_ms for attributes in table.mounted.sets):
        return record
    mounted = table.mounted.changed(lambda attributes: with_retention(attributes, kept_ms))
    return replace(record, table=replace(table, attributes=with_retention(table.attributes, kept_ms), mounted=mounted))


def _typed(topic: "Topic") -> "Schema | None":
    stored = schema_of(topic)
    if stored is None:
        return None
    from pqbroker.tables.schema import read_schema

    return read_schema(stored.columns, len(stored.columns), stored.formats)


@lru_cache(maxsize=_TEXTS_KEPT)
def _stored(text: str, formats: tuple[tuple[str, str], ...]) -> Columns | None:
    """Return the columns of a stored schema; None too for what another version of this broker took, and this one does
    not."""
    from pqbroker.tables.refusals import TableError

    try:
        return _read(text, len(text), dict(formats)).documents()
    except (TableError, ValueError, RecursionError):
        return None


def _read(text: str, columns_max: int, formats: Mapping[str, str]) -> "Schema":
    from pqbroker.tables.refusals import TableError
    from pqbroker.tables.schema import read_schema

    items = json.loads(text)
    if not isinstance(items, list):
        raise ValueError
    schema = read_schema(items, columns_max, formats)
    if schema.filled:
        text = f"the column {schema.filled[0]} is of tables: a topic that was not made as one does not fill it"
        raise TableError("INVALID_SCHEMA", text, "Leave it out, or make a table by POST /v1/tables.")
    return schema
