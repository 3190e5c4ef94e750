"""Each client library consumes, transforms and produces in transactions; `kill -9` of the broker and of the clients."""

import itertools
import random
import subprocess
from collections import Counter
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, TopicPartition

from pqbroker.testing import FOR_TESTS, Broker, broker
from tests.support import transforms
from tests.support.drivers.driver import Message
from tests.support.drivers.librdkafka_driver import LibrdkafkaDriver
from tests.support.transforms import LIBRARIES, Task

PARTITIONS = 2
DONE_S = 90


def fill(address: str, source: str, target: str, total: int) -> None:
    with LibrdkafkaDriver(address) as driver:
        for name in (source, target):
            driver.create_topic(name, partitions=PARTITIONS)
        for partition in range(PARTITIONS):
            messages = [Message(b"%d-%d" % (partition, number)) for number in range(total // PARTITIONS)]
            driver.produce(source, messages, partition=partition)


def committed_values(address: str, topic: str) -> Counter[bytes]:
    """Values that a reader of committed records gets."""
    consumer = Consumer(
        {
            "bootstrap.servers": address, "group.id": "reader", "isolation.level": "read_committed",
            "enable.auto.commit": False, "enable.partition.eof": True, "auto.offset.reset": "earliest",
        }
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    values: Counter[bytes] = Counter()
    ended: set[int] = set()
    while len(ended) < PARTITIONS:
        message = consumer.poll(10)
        assert message is not None
        if message.error() is not None:
            ended.add(message.partition() or 0)
        else:
            values[message.value() or b""] += 1
    consumer.close()
    return values


def check(task: Task) -> None:
    """Each record once, and offsets at the end."""
    each = task.total // PARTITIONS
    expected = Counter(b"%d-%d" % place for place in itertools.product(range(PARTITIONS), range(each)))
    assert committed_values(task.address, task.target) == expected
    with LibrdkafkaDriver(task.address) as driver:
        assert driver.committed(task.group, task.source) == dict.fromkeys(range(PARTITIONS), each)


def finish(copy: "subprocess.Popen[str]", library: str) -> None:
    told, _ = copy.communicate(timeout=DONE_S)
    assert told.strip() == "done", library


@pytest.mark.timeout(180)
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_client_copies_a_topic_in_transactions(kafka: str, fresh_name: Callable[[], str], library: str) -> None:
    source, target, group = fresh_name(), fresh_name(), fresh_name()
    task = Task(kafka, source, target, group, f"copy-{group}", 200)
    fill(kafka, source, target, task.total)
    finish(transforms.start(library, task), library)
    check(task)


@pytest.mark.timeout(400)
def test_kills_of_the_broker_and_of_clients_neither_lose_nor_double_a_record() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    source = random.Random(seed)
    with broker(settings=FOR_TESTS) as node:
        tasks = {
            library: Task(node.kafka, f"in-{number}", f"out-{number}", f"g-{number}", f"x-{number}", 2000)
            for number, library in enumerate(LIBRARIES)
        }
        for task in tasks.values():
            fill(node.kafka, task.source, task.target, task.total)
        copies = {library: transforms.start(library, task) for library, task in tasks.items()}
        try:
            for number in range(4):
                _wait_for_progress(node, tasks, source.random() * 200)
                node.kill()
                if number % 2:
                    victim = source.choice(list(copies))
                    copies[victim].kill()
                    copies[victim].communicate()
                    copies[victim] = transforms.start(victim, tasks[victim])
                node.start()
            for library, copy in copies.items():
                finish(copy, library)
        finally:
            for copy in copies.values():
                copy.kill()
        for task in tasks.values():
            check(task)


def _wait_for_progress(node: Broker, tasks: dict[str, Task], records: float) -> None:
    """Return when one of the copies has written as many more records as `records` says."""
    with LibrdkafkaDriver(node.kafka) as driver:

        def written() -> int:
            return max(driver.bounds(task.target, 0)[1] for task in tasks.values())

        before = written()
        while written() < min(before + records, 1000):
            pass
