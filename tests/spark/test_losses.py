"""What a query is told when records, partitions' pasts or whole topics go away under it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.admin import trim
from tests.spark.topics import Topics, finish
from tests.support.drivers.driver import Driver, Message
from tests.support.drivers.librdkafka_driver import LibrdkafkaDriver
from tests.support.serving import is_ours, served
from tests.support.waiting import wait_until
from tests.support.wire import EARLIEST, Wire

RECORDS = 10
LARGE_BYTES, LARGE_RECORDS = 900_000, 4


def produce(client: Driver, topic: str, count: int) -> None:
    """Numbers as values."""
    client.produce(topic, [Message(b"%d" % number) for number in range(count)])


def read_after(topics: Topics, name: str, meanwhile: Callable[[], None], checkpoint: Path, **options: str) -> list[int]:
    """The offsets that a query reads of its first batch when something happens after the batch was fixed."""
    found: list[int] = []

    def read(records: DataFrame, number: int) -> None:
        if number == 0:
            meanwhile()
            found.extend(row["offset"] for row in records.select("offset").collect())

    stream = topics.stream(name, **options).writeStream.option("checkpointLocation", str(checkpoint))
    finish(stream.foreachBatch(read).trigger(availableNow=True).start())
    return found


@pytest.mark.parametrize("fails", [True, False])
def test_a_trim_under_a_query_is_an_error_or_skipped_as_told(
    topics: Topics, fresh_name: Callable[[], str], tmp_path: Path, fails: bool
) -> None:
    name = fresh_name()
    topics.client.create_topic(name)
    produce(topics.client, name, RECORDS)
    options = {"failOnDataLoss": str(fails).lower()}
    if fails:
        with pytest.raises(Exception, match=r"(?i)data.?loss"):
            read_after(topics, name, lambda: trim(topics.address, name, 6), tmp_path, **options)
    else:
        found = read_after(topics, name, lambda: trim(topics.address, name, 6), tmp_path, **options)
        assert found == list(range(6, RECORDS))


@pytest.fixture(scope="module")
def forgetful(spark: SparkSession) -> Iterator[Topics]:
    """Topics of a broker that looks for what is past retention all the time."""
    with served(settings={"log.retention.check.interval.ms": "50", "log.initial.task.delay.ms": "0"}) as broker:
        yield Topics(spark, broker.kafka, LibrdkafkaDriver(broker.kafka))


@pytest.mark.parametrize("fails", [True, False])
def test_retention_under_a_query_is_an_error_or_skipped_as_told(
    forgetful: Topics, fresh_name: Callable[[], str], tmp_path: Path, fails: bool
) -> None:
    name = fresh_name()
    sizes = {"pq.low.watermark.bytes": "1048576"} if is_ours() else {"segment.bytes": "1048576"}
    forgetful.client.create_topic(name, config={"retention.bytes": "1", **sizes})
    produce(forgetful.client, name, RECORDS)

    def push_out() -> None:
        for _ in range(LARGE_RECORDS):
            forgetful.client.produce(name, [Message(bytes(LARGE_BYTES))])
        with Wire(forgetful.address) as wire:
            wait_until(lambda: wire.offset(name, 0, EARLIEST)[1] >= RECORDS, "the first records gone")

    options = {"failOnDataLoss": str(fails).lower()}
    if fails:
        with pytest.raises(Exception, match=r"(?i)data.?loss"):
            read_after(forgetful, name, push_out, tmp_path, **options)
    else:
        assert read_after(forgetful, name, push_out, tmp_path, **options) == []


def test_a_topic_made_again_is_an_error(topics: Topics, fresh_name: Callable[[], str], tmp_path: Path) -> None:
    name = fresh_name()
    topics.client.create_topic(name)
    produce(topics.client, name, RECORDS)
    assert read_after(topics, name, lambda: None, tmp_path) == list(range(RECORDS))
    topics.client.delete_topic(name)
    topics.client.create_topic(name)
    produce(topics.client, name, RECORDS - 1)
    with pytest.raises(Exception, match=r"(?i)partition.?offset.?changed|data.?loss"):
        read_after(topics, name, lambda: None, tmp_path)
