"""Rows of a tablet, read typed or raw."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.services.tables.finding import find_rows, state_of
from pqbroker.broker.services.topics.partitions import find_readable
from pqbroker.broker.services.topics.topic_schemas import typed_schema_of
from pqbroker.broker.web.resources.record_search import Search, Sought
from pqbroker.broker.web.routing.problems import bad_request
from pqbroker.broker.web.routing.routes import Call
from pqbroker.pq.log.row_facts import FACT_COLUMNS
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.topic import Topic
from pqbroker.protocol.record_json import show_content, show_headers
from pqbroker.protocol.records import Record
from pqbroker.tables.mount import closed
from pqbroker.tables.paths import table_path
from pqbroker.tables.refusals import TableError
from pqbroker.tables.rows import ROW_INDEX, TABLET_INDEX, decode_row
from pqbroker.tables.schema import Schema


async def select(call: Call) -> Any:
    """Rows of one tablet, from a row index on."""
    topic = find_rows(call, AclOperation.READ, call.path["name"])
    first: int = call.query.get("first_row_index", 0)
    index: int = call.query.get("tablet_index", 0)
    wanted = RowsWanted(index, call.limit(), call.node.settings.http_answer_bytes_max, call.query.get("view"))
    found = await read_rows(call, topic, wanted, first)
    return {"rows": found.rows, "next_row_index": found.next_row_index}


class RowsWanted(NamedTuple):
    """Rows that a request reads: of which tablet, how many and how many bytes at most, typed or raw."""

    tablet_index: int
    row_count: int
    size_bytes: int
    view: str | None


class FoundRows(NamedTuple):
    """Rows as they are shown, and where the next ones begin. `is_at_end`: there were none behind them."""

    rows: list[dict[str, Any]]
    next_row_index: int
    is_at_end: bool


async def read_rows(call: Call, topic: Topic, wanted: RowsWanted, first: int) -> FoundRows:
    """Return rows of a tablet from an index on; one at least where there is one within one look's bytes. KafkaError,
    TableError WRONG_STATE, NO_SCHEMA."""
    index, count, size_bytes, view = wanted
    call.check_served(topic, (index,))
    shower = _shower(topic, index, view)
    if index >= len(topic.partitions):
        return FoundRows([], first, is_at_end=True)
    partition = find_readable(topic, index)
    if partition.is_unmounted:
        raise closed(table_path(topic.record.name), index, state_of(topic, index))
    sought = Sought(shower, None, count, size_bytes, call.node.settings.http_look_bytes_max)
    search = Search(sought, max(first, partition.start_offset))
    await search.look_through(partition, call.looks)
    counted = call.node.metrics.tables
    counted.read_rows += len(search.shown)
    counted.read_bytes += search.shown_bytes
    if search.shown:
        await _fill(partition, search.shown)
    return FoundRows(search.shown, search.next_offset, not search.is_behind(partition))


async def _fill(partition: PartitionServer, rows: Sequence[dict[str, Any]]) -> None:
    """Give rows the columns that the table fills; what was written before it did has none of it."""
    filled = [name for name in FACT_COLUMNS if name in rows[0]]
    if not filled:
        return
    facts = await partition.facts.read(rows[0][ROW_INDEX], rows[-1][ROW_INDEX] + 1)
    known = {row_index: dict(zip(FACT_COLUMNS, row_facts, strict=True)) for row_index, *row_facts in facts}
    for row in rows:
        row |= {name: known.get(row[ROW_INDEX], {}).get(name) for name in filled}


def _shower(topic: Topic, index: int, view: str | None) -> Any:
    """Return what makes rows of records: typed ones by the schema, or raw ones of a topic that has none."""
    if view not in (None, "raw", "typed"):
        raise bad_request(f"view is {view[:100]!r}; give raw or typed")
    schema = typed_schema_of(topic)
    if view == "raw" or (view is None and schema is None):
        return partial(_raw, index)
    if schema is None:
        raise TableError("NO_SCHEMA", f"the topic {topic.record.name} has no schema", "Leave view out, or give raw.")
    return partial(_typed, schema, index)


def _typed(schema: Schema, index: int, record: Record) -> dict[str, Any]:
    return {TABLET_INDEX: index, ROW_INDEX: record.offset, **decode_row(schema, record.key, record.value)}


def _raw(index: int, record: Record) -> dict[str, Any]:
    return {
        TABLET_INDEX: index,
        ROW_INDEX: record.offset,
        "timestamp_ms": record.timestamp,
        "key": show_content(record.key),
        "value": show_content(record.value),
        "headers": show_headers(record.headers),
    }
