"""The driver for aiokafka: its coroutines run to their end one by one, on an event loop of the driver's own."""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError
from aiokafka.protocol.admin import DeleteGroupsRequest

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

T = TypeVar("T")


class AiokafkaDriver:
    """See `driver.Driver`."""

    def __init__(self, address: str, security: Security = OPEN) -> None:
        self._address = address
        self._security = security
        self._secured = security.aiokafka
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runner.close()

    def produce(
        self, topic: str, messages: Sequence[Message], *, partition: int = 0, codec: str = "none",
        acks: int = -1, idempotent: bool = True,
    ) -> list[int]:  # fmt: skip
        async def send() -> list[int]:
            async with AIOKafkaProducer(
                bootstrap_servers=self._address, **self._secured, acks=acks, enable_idempotence=idempotent,
                compression_type=None if codec == "none" else codec, linger_ms=20, max_request_size=1 << 21,
            ) as producer:  # fmt: skip
                futures = [
                    await producer.send(
                        topic, message.value, key=message.key, partition=partition, timestamp_ms=message.timestamp_ms,
                        headers=list(message.headers),
                    )
                    for message in messages
                ]  # fmt: skip
                await producer.flush()
                answers = [await future for future in futures]
                return [answer.offset for answer in answers if answer is not None and acks != 0]

        return self._run(send())

    def read(self, topic: str, *, count: int, partition: int = 0, offset: int = 0) -> list[tuple[int, Message]]:
        async def receive() -> list[tuple[int, Message]]:
            place = TopicPartition(topic, partition)
            async with AIOKafkaConsumer(
                bootstrap_servers=self._address, **self._secured, enable_auto_commit=False, auto_offset_reset="none"
            ) as consumer:
                consumer.assign([place])
                consumer.seek(place, offset)
                return [_received(await consumer.getone()) for _ in range(count)]

        return self._run(receive())

    def bounds(self, topic: str, partition: int = 0) -> tuple[int, int]:
        async def ask() -> tuple[int, int]:
            place = TopicPartition(topic, partition)
            async with AIOKafkaConsumer(bootstrap_servers=self._address, **self._secured) as consumer:
                first = await consumer.beginning_offsets([place])
                after_last = await consumer.end_offsets([place])
                return first[place], after_last[place]

        return self._run(ask())

    def offset_at(self, topic: str, timestamp_ms: int, partition: int = 0) -> int | None:
        async def ask() -> int | None:
            place = TopicPartition(topic, partition)
            async with AIOKafkaConsumer(bootstrap_servers=self._address, **self._secured) as consumer:
                found = (await consumer.offsets_for_times({place: timestamp_ms}))[place]
                return None if found is None else found.offset

        return self._run(ask())

    def create_topic(self, name: str, *, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        topic = NewTopic(name, partitions, 1, topic_configs=dict(config or {}))
        answer = self._administer(lambda admin: admin.create_topics([topic]))
        _check(answer.topic_errors[0][1])

    def delete_topic(self, name: str) -> None:
        answer = self._administer(lambda admin: admin.delete_topics([name]))
        _check(answer.topic_error_codes[0][1])

    def grow_topic(self, name: str, partitions: int) -> None:
        try:
            self._administer(lambda admin: admin.create_partitions({name: NewPartitions(partitions)}))
        except KafkaError as error:
            raise RefusedError(error.errno) from error

    def topics(self) -> dict[str, int]:
        described = self._administer(lambda admin: admin.describe_topics())
        return {topic["topic"]: len(topic["partitions"]) for topic in described}

    def topic_config(self, name: str) -> dict[str, str]:
        resource = ConfigResource(ConfigResourceType.TOPIC, name)
        answers = self._administer(lambda admin: admin.describe_configs([resource]))
        error_code, _message, _type, _name, entries = answers[0].resources[0][:5]
        _check(error_code)
        return {entry[0]: entry[1] for entry in entries}

    def alter_topic(self, name: str, config: Mapping[str, str]) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, name, dict(config))
        answers = self._administer(lambda admin: admin.alter_configs([resource]))
        _check(answers[0].resources[0][0])

    def trim_topic(self, name: str, before: int, partition: int = 0) -> None:
        wanted = {TopicPartition(name, partition): RecordsToDelete(before)}
        self._administer(lambda admin: admin.delete_records(wanted))

    def cluster(self) -> Cluster:
        found = self._administer(lambda admin: admin.describe_cluster())
        brokers = {broker["node_id"]: f"{broker['host']}:{broker['port']}" for broker in found["brokers"]}
        return Cluster(found["cluster_id"], found["controller_id"], brokers)

    def consumer(self, topic: str, group: str, instance_id: str | None = None) -> "AiokafkaConsumer":
        return AiokafkaConsumer(self._address, topic, group, instance_id, self._security)

    def reader(self, topic: str, group: str) -> "AiokafkaReader":
        return AiokafkaReader(self._address, topic, group)

    def groups(self) -> set[str]:
        return {listed[0] for listed in self._administer(lambda admin: admin.list_consumer_groups())}

    def group(self, name: str) -> Group:
        answers = self._administer(lambda admin: admin.describe_consumer_groups([name]))
        error_code, _name, state, _protocol_type, _protocol, members = answers[0].groups[0][:6]
        _check(error_code)
        return Group(state, len(members))

    def committed(self, group: str, topic: str) -> dict[int, int]:
        found = self._administer(lambda admin: admin.list_consumer_group_offsets(group))
        return {place.partition: told.offset for place, told in found.items() if place.topic == topic}

    def delete_group(self, name: str) -> None:
        async def ask(admin: Any) -> Any:
            node = await admin.find_coordinator(name)
            return await admin._send_request(DeleteGroupsRequest([name]), node)

        _check(self._administer(ask).results[0][1])

    def _administer(self, act: Any) -> Any:
        async def ask() -> Any:
            admin = AIOKafkaAdminClient(bootstrap_servers=self._address, **self._secured)
            await admin.start()
            try:
                return await act(admin)
            finally:
                await admin.close()

        return self._run(ask())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(asyncio.wait_for(work, 2 * REQUEST_TIMEOUT_S))


class AiokafkaConsumer:
    """See `driver.GroupConsumer`. Its event loop runs while it is polled, and is that of the thread that polls it."""

    def __init__(
        self, address: str, topic: str, group: str, instance_id: str | None, security: Security = OPEN
    ) -> None:
        self.assignments: list[frozenset[int]] = []
        self._runner = asyncio.Runner()
        self._consumer: Any = None
        self._runner.run(self._start(address, topic, group, instance_id, security))

    def poll(self, timeout_s: float) -> list[tuple[int, int]]:
        polled = self._runner.run(self._consumer.getmany(timeout_ms=int(timeout_s * 1000)))
        return [(record.partition, record.offset) for records in polled.values() for record in records]

    def commit(self) -> None:
        self._runner.run(self._consumer.commit())

    def close(self) -> None:
        self._runner.run(self._consumer.stop())
        self._runner.close()

    async def _start(
        self, address: str, topic: str, group: str, instance_id: str | None, security: Security
    ) -> None:
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=address, group_id=group, group_instance_id=instance_id, enable_auto_commit=False,
            auto_offset_reset="earliest", session_timeout_ms=SESSION_MS, heartbeat_interval_ms=HEARTBEAT_MS,
            metadata_max_age_ms=METADATA_MS, **security.aiokafka,
        )  # fmt: skip
        self._consumer.subscribe([topic], listener=_Noting(self.assignments))
        await self._consumer.start()


class AiokafkaReader:
    """See `driver.PartitionReader`."""

    def __init__(self, address: str, topic: str, group: str) -> None:
        self._place = TopicPartition(topic, 0)
        self._runner = asyncio.Runner()
        self._consumer: Any = None
        self._runner.run(self._start(address, group))

    def poll(self, timeout_s: float) -> list[tuple[int, Message]]:
        polled = self._runner.run(self._consumer.getmany(timeout_ms=int(timeout_s * 1000)))
        return [_received(record) for record in polled.get(self._place, ())]

    def seek(self, offset: int) -> None:
        self._consumer.seek(self._place, offset)

    def position(self) -> int:
        position: int = self._runner.run(self._consumer.position(self._place))
        return position

    def commit(self) -> None:
        self._runner.run(self._consumer.commit())

    def close(self) -> None:
        self._runner.run(self._consumer.stop())
        self._runner.close()

    async def _start(self, address: str, group: str) -> None:
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=address, group_id=group, enable_auto_commit=False, auto_offset_reset="earliest",
            max_partition_fetch_bytes=FETCH_BYTES,
        )  # fmt: skip
        self._consumer.assign([self._place])
        await self._consumer.start()


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


def _check(error_code: int) -> None:
    if error_code:
        raise RefusedError(error_code)
