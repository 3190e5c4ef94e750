"""Each client library consumes, transforms and produces in transactions; under kills: tests/faults."""

import itertools
import subprocess
from collections import Counter
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, TopicPartition

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
