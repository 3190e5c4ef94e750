"""`infer`: a schema from a sample, which `land` takes."""

from collections.abc import Callable

import pytest
from pyspark.sql.types import StructType

from pqbroker.pipeline.errors import JobError
from pqbroker.pipeline.infer import infer
from tests.spark.topics import Topics
from tests.support.drivers.driver import Message


def test_a_schema_fits_the_newest_records(topics: Topics, fresh_name: Callable[[], str]) -> None:
    name = fresh_name()
    topics.client.create_topic(name)
    values = [
        b'{"id": "of an earlier form"}',
        b'{"id": 1, "Name": "one", "prices": [1.5]}',
        b'{"id": 2, "at": {"City": "x"}}',
        b"no JSON",
        None,
    ]
    topics.client.produce(name, [Message(value) for value in values])
    lines: list[str] = []
    schema = StructType.fromDDL(infer(topics.spark, topics.address, name, 4, lines.append))
    assert isinstance(schema, StructType)
    found = {field.name: (field.dataType.simpleString(), field.nullable) for field in schema.fields}
    assert found == {
        "id": ("bigint", False),
        "Name": ("string", True),
        "prices": ("array<double>", True),
        "at": ("struct<City:string>", True),
    }
    assert lines == ["2 of the 3 newest values are JSON objects"]


def test_a_topic_without_objects_is_named(topics: Topics, fresh_name: Callable[[], str]) -> None:
    name = fresh_name()
    topics.client.create_topic(name)
    with pytest.raises(JobError, match="has no JSON objects among its newest 0 records"):
        infer(topics.spark, topics.address, name, 10, lambda line: None)
    topics.client.produce(name, [Message(b"text")])
    with pytest.raises(JobError, match="has no JSON objects among its newest 1 records"):
        infer(topics.spark, topics.address, name, 10, lambda line: None)
