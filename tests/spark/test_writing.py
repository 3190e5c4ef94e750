"""Spark writes topics: from streams, with every column of the sink, and over a connection that loses an answer."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import array, col, lit, struct, when

from tests.spark.topics import Topics
from tests.support.drivers.driver import Message
from tests.support.drivers.librdkafka_driver import LibrdkafkaDriver
from tests.support.proxy import PRODUCE, LosingProxy
from tests.support.serving import served


def test_a_stream_chooses_topic_partition_and_headers(
    topics: Topics, fresh_name: Callable[[], str], tmp_path: Path
) -> None:
    source, even, odd = fresh_name(), fresh_name(), fresh_name()
    topics.client.create_topic(source)
    for name in (even, odd):
        topics.client.create_topic(name, partitions=2)
    topics.client.produce(source, [Message(b"%d" % number, b"key-%d" % number) for number in range(10)])
    number = col("value").cast("string").cast("int")
    rows = topics.stream(source).select(
        when(number % 2 == 0, lit(even)).otherwise(lit(odd)).alias("topic"),
        when(number < 6, lit(0)).otherwise(lit(1)).alias("partition"),
        col("key"),
        col("value"),
        array(struct(lit("from").alias("key"), col("value").alias("value"))).alias("headers"),
    )
    topics.write_available(rows, tmp_path / "checkpoint", includeHeaders="true")
    for name, remainder in ((even, 0), (odd, 1)):
        for partition, numbers in ((0, range(6)), (1, range(6, 10))):
            expected = [each for each in numbers if each % 2 == remainder]
            found = [message for _, message in topics.client.read(name, count=len(expected), partition=partition)]
            assert sorted(int(message.value or b"") for message in found) == expected
            assert all(message.headers == (("from", message.value),) for message in found)
            assert all(message.key == b"key-" + (message.value or b"") for message in found)


def test_a_null_topic_is_an_error(topics: Topics) -> None:
    nowhere = lit(None).cast("string").alias("topic")
    rows = topics.spark.range(3).select(nowhere, col("id").cast("string").alias("value"))
    with pytest.raises(Exception, match=r"(?i)null topic"):
        topics.write(rows)


def test_a_lost_acknowledgement_stores_nothing_twice(spark: SparkSession, fresh_name: Callable[[], str]) -> None:
    name = fresh_name()
    with LosingProxy() as proxy, served(advertised=proxy.address) as broker:
        proxy.upstream = broker.kafka
        client = LibrdkafkaDriver(proxy.address)
        client.create_topic(name)
        client.produce(name, [Message(b"before")])
        topics = Topics(spark, proxy.address, client)
        proxy.lose_next(PRODUCE)
        topics.write(spark.range(200).coalesce(1).select(col("id").cast("string").alias("value")), topic=name)
        assert proxy.lost.is_set(), "the proxy saw no answer to a Produce"
        first, after_last = client.bounds(name)
        values = [message.value for _, message in client.read(name, count=after_last - first)]
    assert values == [b"before", *(b"%d" % number for number in range(200))]
