"""The driver for confluent-kafka, that is librdkafka."""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, ResourceType

from tests.support.drivers.driver import REQUEST_TIMEOUT_S, Cluster, Message, RefusedError


class LibrdkafkaDriver:
    """See `driver.Driver`."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._admin = AdminClient({"bootstrap.servers": address})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def produce(
        self, topic: str, messages: Sequence[Message], *, partition: int = 0, codec: str = "none",
        acks: int = -1, idempotent: bool = True,
    ) -> list[int]:  # fmt: skip
        delivered: list[Any] = [None] * len(messages)
        producer = Producer(
            {
                "bootstrap.servers": self._address, "acks": acks, "enable.idempotence": idempotent,
                "compression.type": codec, "linger.ms": 20, "message.max.bytes": 1 << 21,
                "delivery.timeout.ms": int(REQUEST_TIMEOUT_S * 1000),
            }
        )  # fmt: skip
        for index, message in enumerate(messages):
            producer.produce(
                topic, message.value, message.key, partition, timestamp=message.timestamp_ms,
                headers=list(message.headers), on_delivery=partial(_note, delivered, index),
            )  # fmt: skip
        assert producer.flush(REQUEST_TIMEOUT_S) == 0
        failed = [offset for offset in delivered if not isinstance(offset, int) and (offset is not None or acks != 0)]
        assert not failed, failed[0]
        return [] if acks == 0 else delivered

    def read(self, topic: str, *, count: int, partition: int = 0, offset: int = 0) -> list[tuple[int, Message]]:
        found: list[tuple[int, Message]] = []
        deadline = time.monotonic() + REQUEST_TIMEOUT_S
        with self._consumer() as consumer:
            consumer.assign([TopicPartition(topic, partition, offset)])
            while len(found) < count:
                assert time.monotonic() < deadline, f"{len(found)} of {count} records after {REQUEST_TIMEOUT_S} s"
                record = consumer.poll(1.0)
                if record is None:
                    continue
                if record.error() is not None:
                    raise KafkaException(record.error())
                found.append(_received(record))
        return found

    def bounds(self, topic: str, partition: int = 0) -> tuple[int, int]:
        with self._consumer() as consumer:
            first, after_last = consumer.get_watermark_offsets(TopicPartition(topic, partition), REQUEST_TIMEOUT_S)
            return first, after_last

    def offset_at(self, topic: str, timestamp_ms: int, partition: int = 0) -> int | None:
        with self._consumer() as consumer:
            place = TopicPartition(topic, partition, timestamp_ms)
            found = consumer.offsets_for_times([place], REQUEST_TIMEOUT_S)[0]
            return found.offset if found.offset >= 0 else None

    def create_topic(self, name: str, *, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        topic = NewTopic(name, partitions, 1, config=dict(config or {}))
        _result(self._admin.create_topics([topic], request_timeout=REQUEST_TIMEOUT_S)[name])

    def delete_topic(self, name: str) -> None:
        _result(self._admin.delete_topics([name], request_timeout=REQUEST_TIMEOUT_S)[name])

    def grow_topic(self, name: str, partitions: int) -> None:
        wanted = NewPartitions(name, partitions)
        _result(self._admin.create_partitions([wanted], request_timeout=REQUEST_TIMEOUT_S)[name])

    def topics(self) -> dict[str, int]:
        listed = self._admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics
        return {name: len(topic.partitions) for name, topic in listed.items()}

    def topic_config(self, name: str) -> dict[str, str]:
        resource = ConfigResource(ResourceType.TOPIC, name)
        entries = _result(self._admin.describe_configs([resource])[resource])
        return {name: entry.value for name, entry in entries.items()}

    def cluster(self) -> Cluster:
        found = _result(self._admin.describe_cluster(request_timeout=REQUEST_TIMEOUT_S))
        brokers = {node.id: f"{node.host}:{node.port}" for node in found.nodes}
        return Cluster(found.cluster_id, found.controller.id, brokers)

    def _consumer(self) -> Any:
        return Consumer(
            {
                "bootstrap.servers": self._address, "group.id": "unused", "enable.auto.commit": False,
                "auto.offset.reset": "error", "fetch.message.max.bytes": 1 << 21,
            }
        )  # fmt: skip


def _note(delivered: list[Any], index: int, error: Any, sent: Any) -> None:
    delivered[index] = error or sent.offset()


def _result(future: Any) -> Any:
    try:
        return future.result(REQUEST_TIMEOUT_S)
    except KafkaException as error:
        raise RefusedError(error.args[0].code()) from error


def _received(record: Any) -> tuple[int, Message]:
    _kind, timestamp_ms = record.timestamp()
    headers = tuple(record.headers() or ())
    return record.offset(), Message(record.value(), record.key(), headers, timestamp_ms)
