"""A topic that grows while it is written to: writers that note where each record went, and three ways to grow it."""

import asyncio
import itertools
import json
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer

from tests.support.drivers.driver import METADATA_MS, REQUEST_TIMEOUT_S
from tests.support.drivers.librdkafka_driver import LibrdkafkaDriver
from tests.support.drivers.member import tell_of_change
from tests.support.serving import Served

PACE_S = 0.02
"""Between two records of a writer: the machine is to serve all clients meanwhile."""

PartitionOffset = tuple[int, int]


class Load:
    """What writers were acknowledged so far: where each value is."""

    def __init__(self, address: str, topic: str) -> None:
        self.places: dict[bytes, PartitionOffset] = {}
        self.stopping = threading.Event()
        self._address = address
        self._topic = topic

    def acknowledged(self, value: bytes, partition: int, offset: int) -> None:
        """Note where a value is."""
        self.places[value] = (partition, offset)
        tell_of_change()

    def partitions_of(self, writer: bytes) -> set[int]:
        """Where a writer has written."""
        return {partition for value, (partition, _) in list(self.places.items()) if value.startswith(writer)}

    def write_by_aiokafka(self) -> None:
        """Write until told to stop."""
        asyncio.run(self._write_by_aiokafka())

    def write_by_librdkafka(self) -> None:
        """Write until told to stop."""
        settings: dict[str, Any] = {
            "bootstrap.servers": self._address, "log_level": 0, "linger.ms": 0,
            "topic.metadata.refresh.interval.ms": METADATA_MS, "sticky.partitioning.linger.ms": 0,
        }  # fmt: skip
        producer = Producer(settings)
        for number in itertools.takewhile(lambda _: not self.stopping.wait(PACE_S), itertools.count()):
            value = b"librdkafka %d" % number
            producer.produce(self._topic, value, on_delivery=partial(self._delivered, value))
            assert producer.flush(REQUEST_TIMEOUT_S) == 0

    async def _write_by_aiokafka(self) -> None:
        async with AIOKafkaProducer(bootstrap_servers=self._address, metadata_max_age_ms=METADATA_MS) as producer:
            for number in itertools.takewhile(lambda _: not self.stopping.wait(PACE_S), itertools.count()):
                value = b"aiokafka %d" % number
                written = await producer.send_and_wait(self._topic, value)
                self.acknowledged(value, written.partition, written.offset)

    def _delivered(self, value: bytes, error: Any, message: Any) -> None:
        assert error is None, error
        self.acknowledged(value, message.partition(), message.offset())


@contextmanager
def load(address: str, topic: str) -> Iterator[Load]:
    """Writers of two libraries at work, which choose the partitions themselves."""
    found = Load(address, topic)
    with ThreadPoolExecutor(2) as threads:
        running: list[Future[None]] = [
            threads.submit(found.write_by_aiokafka), threads.submit(found.write_by_librdkafka),
        ]  # fmt: skip
        try:
            yield found
        finally:
            found.stopping.set()
        for writer in running:
            writer.result(REQUEST_TIMEOUT_S)


def grow_by_kafka(broker: Served, topic: str, count: int) -> None:
    """By CreatePartitions."""
    LibrdkafkaDriver(broker.kafka).grow_topic(topic, count)


def grow_by_http(broker: Served, topic: str, count: int) -> None:
    """Our own way; another broker grows by Kafka's."""
    if broker.http is None:
        grow_by_kafka(broker, topic, count)
        return
    body, headers = json.dumps({"count": count}).encode(), {"Content-Type": "application/json"}
    request = urllib.request.Request(f"http://{broker.http}/v1/topics/{topic}/partitions", body, headers)
    urllib.request.urlopen(request, timeout=REQUEST_TIMEOUT_S).close()


def grow_by_command(broker: Served, topic: str, count: int) -> None:
    """By what a person types."""
    command = ["topic", "grow", topic, str(count), "--broker", broker.kafka]
    subprocess.run([sys.executable, "-m", "pqbroker", *command], check=True, timeout=60, stdout=subprocess.DEVNULL)


WAYS_TO_GROW = ((3, grow_by_kafka), (4, grow_by_http), (6, grow_by_command))
"""From two partitions on: how many are asked for, and how."""
