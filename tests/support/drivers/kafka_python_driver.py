"""The driver for kafka-python."""

import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from kafka import ConsumerRebalanceListener, KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError

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

GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP = 69, 68
_DELETION_REFUSED = {"GroupIdNotFoundError": GROUP_ID_NOT_FOUND, "NonEmptyGroupError": NON_EMPTY_GROUP}


class KafkaPythonDriver:
    """See `driver.Driver`."""

    def __init__(self, address: str, security: Security = OPEN) -> None:
        self._address = address
        self._security = security
        self._secured = security.kafka_python

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
        with KafkaProducer(
            bootstrap_servers=self._address, **self._secured, acks=acks, enable_idempotence=idempotent,
            compression_type=None if codec == "none" else codec, linger_ms=20, max_request_size=1 << 21,
        ) as producer:  # fmt: skip
            futures = [
                producer.send(
                    topic, message.value, key=message.key, partition=partition, timestamp_ms=message.timestamp_ms,
                    headers=list(message.headers),
                )
                for message in messages
            ]  # fmt: skip
            producer.flush(timeout=REQUEST_TIMEOUT_S)
            answers = [future.get(timeout=REQUEST_TIMEOUT_S) for future in futures]
        return [answer.offset for answer in answers if acks != 0]

    def read(self, topic: str, *, count: int, partition: int = 0, offset: int = 0) -> list[tuple[int, Message]]:
        place = TopicPartition(topic, partition)
        found: list[tuple[int, Message]] = []
        deadline = time.monotonic() + REQUEST_TIMEOUT_S
        with self._consumer() as consumer:
            consumer.assign([place])
            consumer.seek(place, offset)
            while len(found) < count:
                assert time.monotonic() < deadline, f"{len(found)} of {count} records after {REQUEST_TIMEOUT_S} s"
                polled = consumer.poll(timeout_ms=1000, max_records=count - len(found))
                found += [_received(record) for record in polled.get(place, [])]
        return found

    def bounds(self, topic: str, partition: int = 0) -> tuple[int, int]:
        place = TopicPartition(topic, partition)
        with self._consumer() as consumer:
            return consumer.beginning_offsets([place])[place], consumer.end_offsets([place])[place]

    def offset_at(self, topic: str, timestamp_ms: int, partition: int = 0) -> int | None:
        place = TopicPartition(topic, partition)
        with self._consumer() as consumer:
            found = consumer.offsets_for_times({place: timestamp_ms})[place]
            return None if found is None else int(found.offset)

    def create_topic(self, name: str, *, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        wanted = {"num_partitions": partitions, "replication_factor": 1, "configs": dict(config or {})}
        self._administer(lambda admin: admin.create_topics({name: wanted}))

    def delete_topic(self, name: str) -> None:
        self._administer(lambda admin: admin.delete_topics([name]))

    def grow_topic(self, name: str, partitions: int) -> None:
        self._administer(lambda admin: admin.create_partitions({name: partitions}))

    def topics(self) -> dict[str, int]:
        described = self._administer(lambda admin: admin.describe_topics())
        return {topic["name"]: len(topic["partitions"]) for topic in described}

    def topic_config(self, name: str) -> dict[str, str]:
        resource = ConfigResource(ConfigResourceType.TOPIC, name)
        found = self._administer(lambda admin: admin.describe_configs([resource], config_filter="all"))
        return {entry: described["value"] for entry, described in found["topic"][name].items()}

    def alter_topic(self, name: str, config: Mapping[str, str]) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, name, dict(config))
        self._administer(lambda admin: admin.alter_configs([resource]))

    def trim_topic(self, name: str, before: int, partition: int = 0) -> None:
        self._administer(lambda admin: admin.delete_records({TopicPartition(name, partition): before}))

    def cluster(self) -> Cluster:
        found = self._administer(lambda admin: admin.describe_cluster())
        brokers = {broker["broker_id"]: f"{broker['host']}:{broker['port']}" for broker in found["brokers"]}
        return Cluster(found["cluster_id"], found["controller_id"], brokers)

    def consumer(self, topic: str, group: str, instance_id: str | None = None) -> "KafkaPythonConsumer":
        return KafkaPythonConsumer(self._address, topic, group, instance_id, self._security)

    def reader(self, topic: str, group: str) -> "KafkaPythonReader":
        return KafkaPythonReader(self._address, topic, group)

    def groups(self) -> set[str]:
        return {listed["group_id"] for listed in self._administer(lambda admin: admin.list_groups())}

    def group(self, name: str) -> Group:
        told = self._administer(lambda admin: admin.describe_groups([name]))[name]
        if told["error"]:
            raise RefusedError(GROUP_ID_NOT_FOUND)
        return Group(told["group_state"], len(told["members"]))

    def committed(self, group: str, topic: str) -> dict[int, int]:
        found = self._administer(lambda admin: admin.list_group_offsets([group]))[group]
        return {place.partition: told.offset for place, told in found.items() if place.topic == topic}

    def delete_group(self, name: str) -> None:
        told = self._administer(lambda admin: admin.delete_groups([name]))[name]
        if told != "OK":
            raise RefusedError(_DELETION_REFUSED[told])

    def _consumer(self) -> Any:
        return KafkaConsumer(
            bootstrap_servers=self._address, **self._secured, group_id=None, enable_auto_commit=False,
            auto_offset_reset="none",
        )  # fmt: skip

    def _administer(self, act: Any) -> Any:
        with KafkaAdminClient(bootstrap_servers=self._address, **self._secured) as admin:
            try:
                return act(admin)
            except KafkaError as error:
                raise RefusedError(error.errno) from error


class KafkaPythonConsumer:
    """See `driver.GroupConsumer`."""

    def __init__(
        self, address: str, topic: str, group: str, instance_id: str | None, security: Security = OPEN
    ) -> None:
        self.assignments: list[frozenset[int]] = []
        self._consumer = KafkaConsumer(
            bootstrap_servers=address, group_id=group, group_instance_id=instance_id, enable_auto_commit=False,
            auto_offset_reset="earliest", session_timeout_ms=SESSION_MS, heartbeat_interval_ms=HEARTBEAT_MS,
            metadata_max_age_ms=METADATA_MS, **security.kafka_python,
        )  # fmt: skip
        self._consumer.subscribe([topic], listener=_Noting(self.assignments))
        # Whoever shares out partitions before it has heard of any may never come back to that; topics() hears of them.
        assert topic in self._consumer.topics()

    def poll(self, timeout_s: float) -> list[tuple[int, int]]:
        polled = self._consumer.poll(timeout_ms=int(timeout_s * 1000))
        return [(record.partition, record.offset) for records in polled.values() for record in records]

    def commit(self) -> None:
        self._consumer.commit()

    def close(self) -> None:
        self._consumer.close()


class KafkaPythonReader:
    """See `driver.PartitionReader`."""

    def __init__(self, address: str, topic: str, group: str) -> None:
        self._place = TopicPartition(topic, 0)
        self._consumer = KafkaConsumer(
            bootstrap_servers=address, group_id=group, enable_auto_commit=False, auto_offset_reset="earliest",
            max_partition_fetch_bytes=FETCH_BYTES,
        )  # fmt: skip
        self._consumer.assign([self._place])

    def poll(self, timeout_s: float) -> list[tuple[int, Message]]:
        polled = self._consumer.poll(timeout_ms=int(timeout_s * 1000))
        return [_received(record) for record in polled.get(self._place, ())]

    def seek(self, offset: int) -> None:
        self._consumer.seek(self._place, offset)

    def position(self) -> int:
        position: int = self._consumer.position(self._place)
        return position

    def commit(self) -> None:
        self._consumer.commit()

    def close(self) -> None:
        self._consumer.close()


class _Noting(ConsumerRebalanceListener):  # type: ignore[misc]
    """Notes each assignment."""

    def __init__(self, assignments: list[frozenset[int]]) -> None:
        self._assignments = assignments

    def on_partitions_revoked(self, revoked: Any) -> None:
        pass

    def on_partitions_assigned(self, assigned: Any) -> None:
        self._assignments.append(frozenset(place.partition for place in assigned))


def _received(record: Any) -> tuple[int, Message]:
    return record.offset, Message(record.value, record.key, tuple(record.headers), record.timestamp)
