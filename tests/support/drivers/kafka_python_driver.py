"""The driver for kafka-python."""

import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError

from tests.support.drivers.driver import REQUEST_TIMEOUT_S, Cluster, Message, RefusedError


class KafkaPythonDriver:
    """See `driver.Driver`."""

    def __init__(self, address: str) -> None:
        self._address = address

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
            bootstrap_servers=self._address, acks=acks, enable_idempotence=idempotent,
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

    def cluster(self) -> Cluster:
        found = self._administer(lambda admin: admin.describe_cluster())
        brokers = {broker["broker_id"]: f"{broker['host']}:{broker['port']}" for broker in found["brokers"]}
        return Cluster(found["cluster_id"], found["controller_id"], brokers)

    def _consumer(self) -> Any:
        return KafkaConsumer(
            bootstrap_servers=self._address, group_id=None, enable_auto_commit=False, auto_offset_reset="none"
        )

    def _administer(self, act: Any) -> Any:
        with KafkaAdminClient(bootstrap_servers=self._address) as admin:
            try:
                return act(admin)
            except KafkaError as error:
                raise RefusedError(error.errno) from error


def _received(record: Any) -> tuple[int, Message]:
    return record.offset, Message(record.value, record.key, tuple(record.headers), record.timestamp)
