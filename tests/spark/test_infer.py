"""`infer`: its schema is what Spark itself reads from the same values, and what `land` takes."""

from collections.abc import Callable

from pyspark.sql.types import StructField, StructType

from pqbroker.pipeline.infer import infer
from tests.spark.topics import Topics
from tests.support.drivers.driver import Message

VALUES = (
    b'{"id": 1, "Name": "one", "prices": [1.5, 2], "big": 12345678901234567890, "none": null, "empty": {}, "list": []}',
    b'{"id": 2, "at": {"City": "x", "n": 1}, "big": 1, "mixed": 1, "huge": 1234567890123456789012345678901234567890}',
    b'{"id": 3, "at": {"n": 2.5}, "mixed": "text", "deep": [{"a": 1}, {"b": [true]}], "a b`c": false}',
    b'{"id": 4, "prices": [null], "deep": []}',
)


def test_the_schema_is_that_of_spark(topics: Topics, fresh_name: Callable[[], str]) -> None:
    name = fresh_name()
    topics.client.create_topic(name)
    topics.client.produce(name, [Message(value) for value in VALUES])
    schema = StructType.fromDDL(infer(topics.address, name, 10, lambda line: None))
    assert isinstance(schema, StructType)
    spark = topics.spark
    read = spark.read.json(spark.sparkContext.parallelize([value.decode() for value in VALUES])).schema
    nullable = StructType([StructField(field.name, field.dataType) for field in schema.fields])
    assert nullable.simpleString() == read.simpleString()
    assert [field.name for field in schema.fields if not field.nullable] == ["id"]
