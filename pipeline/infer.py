"""The job `infer`: a schema for `land --schema` from the newest records of a topic."""

import json
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, count, lit
from pyspark.sql.types import StructField, StructType

from pqbroker.pipeline.admin import Admin, AdminError
from pqbroker.pipeline.causes import FAILURES, failure
from pqbroker.pipeline.connection_security import spark_options
from pqbroker.pipeline.errors import JobError
from pqbroker.pipeline.streams import find_topic

_UNPARSED = "_corrupt_record"


def infer(spark: SparkSession, broker: str, topic: str, sample: int, say: Callable[[str], None]) -> str:
    """The schema in SQL; a field that every object has is NOT NULL. JobError without objects in the sample."""
    try:
        return _infer(spark, _sample(spark, broker, topic, sample), topic, say)
    except FAILURES as error:
        raise failure(error, topic, broker) from None


def _sample(spark: SparkSession, broker: str, topic: str, sample: int) -> DataFrame:
    """The newest records, as many of each partition."""
    with Admin(spark, broker) as admin:
        find_topic(admin, topic, broker)
        try:
            ends = admin.ends(topic, is_committed=True)
        except AdminError as error:
            raise JobError(f"the broker at {broker}: {error}") from error
    each = -(-sample // len(ends))
    source = {
        "kafka.bootstrap.servers": broker,
        "kafka.isolation.level": "read_committed",
        "subscribe": topic,
        "startingOffsets": json.dumps({topic: {number: max(0, end - each) for number, end in ends.items()}}),
        "endingOffsets": json.dumps({topic: ends}),
        "failOnDataLoss": "false",
        **spark_options(),
    }
    return spark.read.format("kafka").options(**source).load()


def _infer(spark: SparkSession, records: DataFrame, topic: str, say: Callable[[str], None]) -> str:
    texts = records.where("value IS NOT NULL").selectExpr("CAST(value AS STRING) AS text").rdd.map(_text).cache()
    parsed = spark.read.json(texts).cache()
    try:
        fields = [field for field in parsed.schema.fields if field.name != _UNPARSED]
        present = (count(col(f"`{field.name}`")) for field in parsed.schema.fields)
        counts = parsed.select(count(lit(1)), *present).first()
    finally:
        parsed.unpersist()
        texts.unpersist()
    assert counts is not None, "an aggregate has a row"
    rows = counts[0]
    found = dict(zip((field.name for field in parsed.schema.fields), counts[1:], strict=True))
    objects = rows - found.get(_UNPARSED, 0)
    if not fields or not objects:
        raise JobError(f"topic {topic} has no JSON objects among its newest {rows:,} records")
    say(f"{objects:,} of the {rows:,} newest values are JSON objects")
    schema = [StructField(field.name, field.dataType, found[field.name] < objects) for field in fields]
    jvm: Any = spark.sparkContext._jvm
    return str(jvm.org.apache.spark.sql.types.DataType.fromJson(StructType(schema).json()).toDDL())


def _text(row: Any) -> str:
    return str(row["text"])
