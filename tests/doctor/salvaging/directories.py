"""A directory as kill -9 leaves it: several topics, groups and producers; and damage to the rounds of its log."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from pqbroker.storage.disk.commits.commit_scan import CommitAt
from pqbroker.storage.disk.commits.index_changes import decode_changes
from pqbroker.testing import Broker, broker
from tests.storage.disk.mending.cells import rounds

Found = list[tuple[int, bytes] | str]
TOPICS = ("first", "second")


@dataclass(slots=True)
class Client:
    """Sends and reads with a Kafka client, a producer for each call."""

    address: str
    given: list[int] = field(default_factory=list)
    """Offsets."""

    @property
    def _quiet(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.address, "log_level": 0}

    def send(self, topic: str, value: bytes) -> int:
        """The record's offset."""
        offsets: list[int] = []

        def told(error: Any, message: Any) -> None:
            assert error is None, error
            offsets.append(message.offset())

        producer = Producer({**self._quiet, "linger.ms": 0, "enable.idempotence": True})
        producer.produce(topic, value, partition=0, on_delivery=told)
        assert producer.flush(10) == 0
        self.given += offsets
        return offsets[0]

    def commit(self, group: str, topic: str, offset: int) -> None:
        consumer = Consumer({**self._quiet, "group.id": group, "enable.auto.commit": False})
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
        consumer.close()

    def committed(self, group: str, topic: str) -> int:
        consumer = Consumer({**self._quiet, "group.id": group, "enable.auto.commit": False})
        (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=10)
        consumer.close()
        return int(found.offset)

    def read(self, topic: str, offset: int = 0) -> Found:
        """Records from an offset to the end: offsets and values; the name of an error, once, and the reading ends."""
        consumer = Consumer({**self._quiet, "group.id": "reader", "enable.partition.eof": True})
        consumer.assign([TopicPartition(topic, 0, offset)])
        found: Found = []
        while (message := consumer.poll(10)) is not None:
            error = message.error()
            if error is not None:
                found += [] if error.name() == "_PARTITION_EOF" else [error.name()]
                break
            found.append((message.offset() or 0, message.value() or b""))
        consumer.close()
        return found


@dataclass(slots=True)
class Killed:
    """A directory, and what was acknowledged: by topic the values by offset."""

    path: Path
    values: dict[str, list[bytes]]

    def round_with(self, *keys: bytes, last: bool = True) -> CommitAt:
        """The last round, or the first, that sets a row of which the key has all of these."""
        found = [each for each in rounds(self.path) if any(all(key in row for key in keys) for row in _keys(each))]
        return found[-1 if last else 0]

    def records_of(self, topic: str, *offsets: int) -> Found:
        return [(offset, self.values[topic][offset]) for offset in offsets]


def write(node: Broker, path: Path) -> Killed:
    """Four small records of each topic in turn, committed offsets between them; then the broker is killed."""
    client = Client(node.kafka)
    values: dict[str, list[bytes]] = {topic: [] for topic in TOPICS}
    for number in range(4):
        for topic in TOPICS:
            values[topic].append(b"%s %d" % (topic.encode(), number))
            assert client.send(topic, values[topic][-1]) == number
        client.commit("group", TOPICS[0], number)
    node.kill()
    return Killed(path, values)


def killed(path: Path) -> Killed:
    with broker(path) as node:
        return write(node, path)


class _Keys:
    def __init__(self) -> None:
        self.found: list[bytes] = []

    def put(self, key: bytes, value: bytes) -> None:
        self.found.append(key)

    def delete(self, key: bytes) -> None:
        self.found.append(key)

    def delete_range(self, begin: bytes, end: bytes) -> None: ...


def _keys(record: CommitAt) -> list[bytes]:
    keys = _Keys()
    decode_changes(record.content()).apply(keys)
    return keys.found
