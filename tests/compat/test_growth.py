"""A topic grows under load, by Kafka's API, over HTTP and by our command.

Clients find the new partitions, and no record is at another place than it was acknowledged at.
"""

import asyncio
import itertools
import json
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer

from tests.compat.clients import DRIVEN, AnyMember, Clients
from tests.support.drivers.driver import METADATA_MS, REQUEST_TIMEOUT_S
from tests.support.drivers.librdkafka_driver import LibrdkafkaDriver
from tests.support.drivers.member import await_members, tell_of_change
from tests.support.serving import Served

PACE_S = 0.02
"""Between two records of a writer: the machine is to serve all clients meanwhile."""

# A poll of kafka-python that ends between its JoinGroup and the answer to its SyncGroup loses the assignment for good.
READERS = [name for name in DRIVEN if name != "kafka-python"]

Place = tuple[int, int]


class Load:
    """What writers were acknowledged so far: where each value is."""

    def __init__(self, address: str, topic: str) -> None:
        self.places: dict[bytes, Place] = {}
        self.stopping = threading.Event()
        self._address = address
        self._topic = topic

    def acknowledged(self, value: bytes, partition: int, offset: int) -> None:
        self.places[value] = (partition, offset)
        tell_of_change()

    def partitions_of(self, writer: bytes) -> set[int]:
        """Where a writer has written."""
        return {partition for value, (partition, _) in list(self.places.items()) if value.startswith(writer)}

    def write_by_aiokafka(self) -> None:
        asyncio.run(self._write_by_aiokafka())

    def write_by_librdkafka(self) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": self._address, "topic.metadata.refresh.interval.ms": METADATA_MS, "linger.ms": 0,
            "sticky.partitioning.linger.ms": 0,
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
    LibrdkafkaDriver(broker.kafka).grow_topic(topic, count)


def grow_by_http(broker: Served, topic: str, count: int) -> None:
    body, headers = json.dumps({"count": count}).encode(), {"Content-Type": "application/json"}
    request = urllib.request.Request(f"http://{broker.http}/v1/topics/{topic}/partitions", body, headers)
    urllib.request.urlopen(request, timeout=REQUEST_TIMEOUT_S).close()


def grow_by_command(broker: Served, topic: str, count: int) -> None:
    command = ["topic", "grow", topic, str(count), "--broker", broker.kafka]
    subprocess.run([sys.executable, "-m", "pqbroker", *command], check=True, timeout=60, stdout=subprocess.DEVNULL)


def test_growth_under_load_is_found_by_clients_and_moves_nothing(
    suite_broker: Served, clients: Clients, fresh_name: Callable[[], str]
) -> None:
    if suite_broker.http is None:
        pytest.skip("only ours grows over HTTP")
    topic = fresh_name()
    reader = LibrdkafkaDriver(suite_broker.kafka)
    reader.create_topic(topic, partitions=2)
    with ExitStack() as stack:
        members = {name: stack.enter_context(clients.member(name, topic, f"{topic} {name}")) for name in READERS}
        with load(suite_broker.kafka, topic) as written:
            await_growth(members, written, 2)
            for count, grow in ((3, grow_by_kafka), (4, grow_by_http), (6, grow_by_command)):
                grow(suite_broker, topic, count)
                await_growth(members, written, count)
        places = set(written.places.values())
        for name, member in members.items():
            await_members(partial(has_all, member, places), f"{name} received all that was acknowledged")
    assert len(places) == len(written.places)
    for partition in range(6):
        kept = {offset: value for value, (index, offset) in written.places.items() if index == partition}
        read = reader.read(topic, partition=partition, count=len(kept))
        assert {offset: message.value for offset, message in read} == kept


def await_growth(members: dict[str, AnyMember], written: Load, count: int) -> None:
    """Until writers have written to all partitions, and all of them are read."""
    partitions = set(range(count))
    for writer in (b"aiokafka", b"librdkafka"):
        await_members(partial(has_written, written, writer, partitions), f"{writer!r} writes to {count} partitions")
    for name, member in members.items():
        await_members(partial(reads, member, partitions), f"{name} reads {count} partitions")


def has_written(written: Load, writer: bytes, partitions: set[int]) -> bool:
    return written.partitions_of(writer) == partitions


def reads(member: AnyMember, partitions: set[int]) -> bool:
    return member.owned == partitions and {partition for partition, _ in list(member.received)} == partitions


def has_all(member: AnyMember, places: set[Place]) -> bool:
    return set(member.received) >= places
