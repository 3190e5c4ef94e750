"""`land` and `snapshot` with a schema registry: columns by the latest schema, dead letters for the rest."""

import io
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import fastavro

from pqbroker.pipeline.lakes.landing import LETTERS, Landing
from pqbroker.pipeline.lakes.snapshotting import Snapshotting
from pqbroker.pipeline.lakes.value_registry import Registry
from tests.spark.lakes import Lander
from tests.spark.test_snapshot import Taker
from tests.spark.topics import Topics
from tests.support.drivers.driver import Message
from tests.support.schema_registry import framed, serving

FIRST: dict[str, Any] = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
LATER: dict[str, Any] = {
    "type": "record", "name": "Order", "fields": [
        {"name": "id", "type": "long"}, {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "raw", "type": "bytes"},
        {"name": "items", "type": {"type": "array", "items": {
            "type": "record", "name": "Item", "fields": [{"name": "sku", "type": "string"}],
        }}},
        {"name": "parent", "type": ["null", "Order"]},
    ],
}  # fmt: skip


def encoded(schema: dict[str, Any], value: dict[str, Any]) -> bytes:
    content = io.BytesIO()
    fastavro.schemaless_writer(content, fastavro.parse_schema(schema), value)
    return content.getvalue()


def test_values_land_in_the_columns_of_the_latest_schema(
    topics: Topics, fresh_name: Callable[[], str], tmp_path: Path
) -> None:
    name = fresh_name()
    topics.client.create_topic(name, partitions=1)
    with serving() as registry:
        first, later = registry.add(f"{name}-value", FIRST), registry.add(f"{name}-value", LATER)
        order = {"id": 2, "at": 1_000_000, "raw": b"\xff", "items": [{"sku": "a"}], "parent": None}
        values = [
            framed(first, encoded(FIRST, {"id": 1})), framed(later, encoded(LATER, {**order, "parent": order})),
            b"no frame",
        ]  # fmt: skip
        topics.client.produce(name, [Message(each) for each in values], partition=0)
        asked = Registry(registry.address)
        Lander(topics.spark, Landing(name, tmp_path / "lake", topics.address, registry=asked)).run()
    frame = topics.spark.read.parquet(str(tmp_path / "lake" / "data"))
    one, two = sorted((row.value for row in frame.collect()), key=lambda value: value.id)
    assert (one.id, one.at, one["items"]) == (1, None, None)
    assert (two.at.timestamp(), bytes(two.raw), two["items"][0].sku) == (1.0, b"\xff", "a")
    assert isinstance(two.at, datetime)
    assert '"id":2' in two.parent
    ((_, letter),) = topics.client.read(name + LETTERS, count=1)
    assert letter.value == b"no frame"
    assert b"does not begin with a 0" in (dict(letter.headers)["error.reason"] or b"")


def test_a_snapshot_has_the_columns_of_a_subject_by_record_name(
    topics: Topics, fresh_name: Callable[[], str], tmp_path: Path
) -> None:
    name = fresh_name()
    topics.client.create_topic(name, partitions=1)
    with serving() as registry:
        number = registry.add("shop.Order", FIRST)
        values = [framed(number, encoded(FIRST, {"id": each})) for each in (1, 2)]
        sent = [Message(values[0], key=b"a"), Message(values[1], key=b"a"), Message(b"no frame", key=b"b")]
        topics.client.produce(name, sent, partition=0)
        asked = Registry(registry.address, subject="shop.Order")
        taker = Taker(topics.spark, Snapshotting(name, tmp_path / "table", topics.address, registry=asked))
        taker.run()
    assert {key: row["value"].id for key, row in taker.rows().items()} == {b"a": 2}
    ((_, letter),) = topics.client.read(name + LETTERS, count=1)
    assert letter.value == b"no frame"
