"""Offsets committed by assignment, without members: each client stores them, all read them back, behind a kill."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from aiokafka.structs import OffsetAndMetadata as AioOffset
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as LibrdkafkaPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonPartition
from kafka.structs import OffsetAndMetadata as PythonOffset

from pqbroker.testing import Broker, broker
from tests.support.drivers.librdkafka_driver import LibrdkafkaDriver

TIMEOUT_S = 20
TOPIC = "read"
PARTITIONS = 6
METADATA = "so far"

Store = Callable[[str, str, dict[int, int]], None]
Read = Callable[[str, str], dict[int, int]]


def store_by_aiokafka(address: str, group_id: str, offsets: dict[int, int]) -> None:
    async def commit() -> None:
        consumer = AIOKafkaConsumer(bootstrap_servers=address, group_id=group_id, enable_auto_commit=False)
        async with consumer:
            consumer.assign([AioPartition(TOPIC, index) for index in offsets])
            await consumer.commit(
                {AioPartition(TOPIC, index): AioOffset(offset, METADATA) for index, offset in offsets.items()}
            )

    asyncio.run(asyncio.wait_for(commit(), TIMEOUT_S))


def read_by_aiokafka(address: str, group_id: str) -> dict[int, int]:
    async def committed() -> dict[int, int]:
        consumer = AIOKafkaConsumer(bootstrap_servers=address, group_id=group_id, enable_auto_commit=False)
        async with consumer:
            places = [AioPartition(TOPIC, index) for index in range(PARTITIONS)]
            consumer.assign(places)
            found = {place.partition: await consumer.committed(place) for place in places}
            return {index: offset for index, offset in found.items() if offset is not None}

    return asyncio.run(asyncio.wait_for(committed(), TIMEOUT_S))


def store_by_kafka_python(address: str, group_id: str, offsets: dict[int, int]) -> None:
    with KafkaConsumer(bootstrap_servers=address, group_id=group_id, enable_auto_commit=False) as consumer:
        consumer.assign([PythonPartition(TOPIC, index) for index in offsets])
        consumer.commit(
            {PythonPartition(TOPIC, index): PythonOffset(offset, METADATA, -1) for index, offset in offsets.items()}
        )


def read_by_kafka_python(address: str, group_id: str) -> dict[int, int]:
    with KafkaConsumer(bootstrap_servers=address, group_id=group_id, enable_auto_commit=False) as consumer:
        places = [PythonPartition(TOPIC, index) for index in range(PARTITIONS)]
        consumer.assign(places)
        found = {place.partition: consumer.committed(place, metadata=True) for place in places}
        assert {trimmed(state.metadata) for state in found.values() if state is not None} == {METADATA}
        return {index: state.offset for index, state in found.items() if state is not None}


def librdkafka_consumer(address: str, group_id: str) -> Consumer:
    return Consumer({"bootstrap.servers": address, "log_level": 0, "group.id": group_id, "enable.auto.commit": False})


def store_by_librdkafka(address: str, group_id: str, offsets: dict[int, int]) -> None:
    consumer = librdkafka_consumer(address, group_id)
    places = [LibrdkafkaPartition(TOPIC, index, offset, metadata=METADATA) for index, offset in offsets.items()]
    consumer.assign(places)
    stored = consumer.commit(offsets=places, asynchronous=False)
    assert [place.error for place in stored] == [None] * len(places)
    consumer.close()


def read_by_librdkafka(address: str, group_id: str) -> dict[int, int]:
    consumer = librdkafka_consumer(address, group_id)
    found = consumer.committed([LibrdkafkaPartition(TOPIC, index) for index in range(PARTITIONS)], TIMEOUT_S)
    consumer.close()
    assert {trimmed(place.metadata or "") for place in found if place.offset >= 0} == {METADATA}
    return {place.partition: place.offset for place in found if place.offset >= 0}


def trimmed(metadata: str) -> str:
    """confluent-kafka sends the zero behind a C string along; whoever reads it gets what was stored."""
    return metadata.removesuffix("\0")


STORES: dict[str, Store] = {
    "aiokafka": store_by_aiokafka, "kafka-python": store_by_kafka_python, "confluent-kafka": store_by_librdkafka,
}  # fmt: skip
READS: dict[str, Read] = {
    "aiokafka": read_by_aiokafka, "kafka-python": read_by_kafka_python, "confluent-kafka": read_by_librdkafka,
}  # fmt: skip


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker of our own, to be killed, with a topic whose partitions lie in two tablets."""
    directory: Path = tmp_path_factory.mktemp("offsets") / "data"
    with broker(directory) as started:
        with LibrdkafkaDriver(started.kafka) as driver:
            driver.create_topic(TOPIC, partitions=PARTITIONS)
        yield started


@pytest.mark.parametrize("client", STORES)
def test_what_a_client_commits_every_client_reads_before_and_after_a_kill(running: Broker, client: str) -> None:
    STORES[client](running.kafka, client, {0: 1, 5: 2})
    STORES[client](running.kafka, client, {0: 7, 1: 0, 4: 1 << 40})
    running.kill()
    running.start()
    expected = {0: 7, 1: 0, 4: 1 << 40, 5: 2}
    assert {name: read(running.kafka, client) for name, read in READS.items()} == dict.fromkeys(READS, expected)
