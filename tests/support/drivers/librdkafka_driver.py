"""The driver for confluent-kafka, that is librdkafka."""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from tests.support.drivers.driver import (
    FETCH_BYTES,
    HEARTBEAT_MS,
    METADATA_MS,
    REQUEST_TIMEOUT_S,
    SESSION_MS,
    Cluster,
    Group,
    Message,
    RefusedError,
)
from tests.support.drivers.security import OPEN, Security

_STATES = {"STABLE": "Stable", "EMPTY": "Empty", "DEAD": "Dead"}


class LibrdkafkaDriver:
    """See `driver.Driver`."""

    def __init__(self, address: str, security: Security = OPEN) -> None:
        self._address = address
        self._security = security
        self._admin = AdminClient({"bootstrap.servers": address, "log_level": 0, **security.librdkafka})

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
                **self._security.librdkafka, "bootstrap.servers": self._address,
                "log_level": 0, "acks": acks, "enable.idempotence": idempotent,
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

    def alter_topic(self, name: str, config: Mapping[str, str]) -> None:
        changes = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in config.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=changes)
        _result(self._admin.incremental_alter_configs([resource])[resource])

    def trim_topic(self, name: str, before: int, partition: int = 0) -> None:
        place = TopicPartition(name, partition, before)
        _result(self._admin.delete_records([place], request_timeout=REQUEST_TIMEOUT_S)[place])

    def cluster(self) -> Cluster:
        found = _result(self._admin.describe_cluster(request_timeout=REQUEST_TIMEOUT_S))
        brokers = {node.id: f"{node.host}:{node.port}" for node in found.nodes}
        return Cluster(found.cluster_id, found.controller.id, brokers)

    def consumer(
        self, topic: str, group: str, instance_id: str | None = None, protocol: str = "classic"
    ) -> "LibrdkafkaConsumer":
        return LibrdkafkaConsumer(self._address, topic, group, instance_id, (protocol, self._security))

    def reader(self, topic: str, group: str) -> "LibrdkafkaReader":
        return LibrdkafkaReader(self._address, topic, group)

    def groups(self) -> set[str]:
        listed = _result(self._admin.list_consumer_groups(request_timeout=REQUEST_TIMEOUT_S))
        assert not listed.errors, listed.errors
        return {group.group_id for group in listed.valid}

    def group(self, name: str) -> Group:
        told = _result(self._admin.describe_consumer_groups([name], request_timeout=REQUEST_TIMEOUT_S)[name])
        return Group(_STATES[told.state.name], len(told.members))

    def committed(self, group: str, topic: str) -> dict[int, int]:
        wanted = [ConsumerGroupTopicPartitions(group)]
        told = _result(self._admin.list_consumer_group_offsets(wanted, request_timeout=REQUEST_TIMEOUT_S)[group])
        return {place.partition: place.offset for place in told.topic_partitions if place.topic == topic}

    def delete_group(self, name: str) -> None:
        _result(self._admin.delete_consumer_groups([name], request_timeout=REQUEST_TIMEOUT_S)[name])

    def _consumer(self) -> Any:
        return Consumer(
            {
                **self._security.librdkafka, "bootstrap.servers": self._address,
                "log_level": 0, "group.id": "unused", "enable.auto.commit": False,
                "auto.offset.reset": "error", "fetch.message.max.bytes": 1 << 21,
            }
        )  # fmt: skip


class LibrdkafkaConsumer:
    """See `driver.GroupConsumer`."""

    def __init__(
        self, address: str, topic: str, group: str, instance_id: str | None,
        speaks: tuple[str, Security] = ("classic", OPEN),
    ) -> None:
        """`speaks`: the group protocol, and how it connects."""
        protocol, security = speaks
        self.assignments: list[frozenset[int]] = []
        settings = {
            **security.librdkafka, "bootstrap.servers": address, "log_level": 0, "group.id": group,
            "enable.auto.commit": False, "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": METADATA_MS, "group.protocol": protocol,
        }  # fmt: skip
        if protocol == "classic":  # the other protocol has both from the broker
            settings |= {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": HEARTBEAT_MS}
        self._consumer = Consumer(settings | ({"group.instance.id": instance_id} if instance_id else {}))
        # Of the other protocol's group it hears what it gets and what it loses, not all that it has.
        if protocol == "classic":
            self._consumer.subscribe([topic], on_assign=self._note)
        else:
            self._consumer.subscribe([topic], on_assign=self._add, on_revoke=self._drop)

    def poll(self, timeout_s: float) -> list[tuple[int, int]]:
        records = self._consumer.consume(100, timeout_s)
        failed = [record.error() for record in records if record.error() is not None]
        if failed:
            raise KafkaException(failed[0])
        places = [(record.partition(), record.offset()) for record in records]
        return [(partition, offset) for partition, offset in places if partition is not None and offset is not None]

    def commit(self) -> None:
        self._consumer.commit(asynchronous=False)

    def close(self) -> None:
        self._consumer.close()

    def _note(self, _consumer: Any, assigned: list[Any]) -> None:
        self.assignments.append(frozenset(place.partition for place in assigned))

    def _add(self, _consumer: Any, added: list[Any]) -> None:
        self.assignments.append(self._owned | {place.partition for place in added})

    def _drop(self, _consumer: Any, revoked: list[Any]) -> None:
        self.assignments.append(self._owned - {place.partition for place in revoked})

    @property
    def _owned(self) -> frozenset[int]:
        return self.assignments[-1] if self.assignments else frozenset()


class LibrdkafkaReader:
    """See `driver.PartitionReader`. librdkafka has no position before the first record behind a start or a seek."""

    def __init__(self, address: str, topic: str, group: str) -> None:
        self._place = TopicPartition(topic, 0)
        self._consumer = Consumer(
            {
                "bootstrap.servers": address, "log_level": 0, "group.id": group, "enable.auto.commit": False,
                "auto.offset.reset": "earliest", "fetch.message.max.bytes": FETCH_BYTES,
            }
        )  # fmt: skip
        self._consumer.assign([self._place])
        self._sought: int | None = None

    def poll(self, timeout_s: float) -> list[tuple[int, Message]]:
        first = self._consumer.poll(timeout_s)
        records = [] if first is None else [first, *self._consumer.consume(10, 0)]
        failed = [record.error() for record in records if record.error() is not None]
        if failed:
            raise KafkaException(failed[0])
        if records:
            self._sought = None
        return [_received(record) for record in records]

    def seek(self, offset: int) -> None:
        self._sought = offset
        self._consumer.assign([TopicPartition(self._place.topic, 0, offset)])

    def position(self) -> int:
        if self._sought is not None:
            return self._sought
        (found,) = self._consumer.position([self._place])
        return int(found.offset)

    def commit(self) -> None:
        place = TopicPartition(self._place.topic, 0, self.position())
        self._consumer.commit(offsets=[place], asynchronous=False)

    def close(self) -> None:
        self._consumer.close()


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
