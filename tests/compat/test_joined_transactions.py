"""One transaction of librdkafka's producer and the Python client: records, offsets and rows, all or none."""

import asyncio

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from pqbroker.client import AsyncClient, Client, ClientError, Column
from tests.support.serving import Served

TIMEOUT_S = 30


def http_of(broker: Served) -> str:
    assert broker.http is not None
    return broker.http


@pytest.fixture
def names(suite_broker: Served, request: pytest.FixtureRequest) -> tuple[str, str]:
    """Names of a topic and of a sorted table of the test's own."""
    name = request.node.name.replace("[", "-").replace("]", "")
    admin = AdminClient({"bootstrap.servers": suite_broker.kafka})
    admin.create_topics([NewTopic(f"{name}-topic", 2, 1)])[f"{name}-topic"].result(TIMEOUT_S)
    with Client(http_of(suite_broker)) as client:
        columns = [Column("id", "int64", sort_order="ascending"), Column("text", "utf8")]
        client.table(f"{name}.rows").create(columns)
    return f"{name}-topic", f"{name}.rows"


def begun(broker: Served, topic: str, value: bytes) -> Producer:
    """Return a producer whose open transaction has a record in each partition."""
    producer = Producer({"bootstrap.servers": broker.kafka, "transactional.id": topic})
    producer.init_transactions(TIMEOUT_S)
    produce(producer, topic, value)
    return producer


def produce(producer: Producer, topic: str, value: bytes) -> None:
    producer.begin_transaction()
    for partition in (0, 1):
        producer.produce(topic, value, partition=partition)
    assert producer.flush(TIMEOUT_S) == 0


def committed(broker: Served, topic: str) -> tuple[list[bytes], int]:
    """Return the values that a reader of committed records finds, and the offset of its group in partition 0."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.kafka, "group.id": f"{topic}-group", "isolation.level": "read_committed",
            "enable.auto.commit": False, "enable.partition.eof": True,
        }
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, partition, 0) for partition in (0, 1)])
    values, ends = list[bytes](), set[int | None]()
    while len(ends) < 2:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        if message.error() is None:
            values.append(message.value() or b"")
        else:
            ends.add(message.partition())
    (found,) = consumer.committed([TopicPartition(topic, 0)], TIMEOUT_S)
    consumer.close()
    return sorted(values), found.offset


def test_a_transaction_commits_records_offsets_and_rows(suite_broker: Served, names: tuple[str, str]) -> None:
    topic, table = names
    producer = begun(suite_broker, topic, b"first")
    with Client(http_of(suite_broker)) as client:
        with client.transaction(transactional_id=topic) as tx:
            tx.insert(table, [{"id": 1, "text": "one"}])
            tx.commit_offset(f"{topic}-group", topic, 0, 1, "noted")
        producer.commit_transaction(TIMEOUT_S)
        assert client.table(table).lookup([{"id": 1}]) == [{"id": 1, "text": "one"}]
        assert committed(suite_broker, topic) == ([b"first", b"first"], 1)
        produce(producer, topic, b"second")
        with client.transaction(transactional_id=topic) as tx:
            tx.insert(table, [{"id": 2, "text": "two"}])
            tx.commit_offset(f"{topic}-group", topic, 0, 2)
            tx.abort()
        producer.abort_transaction(TIMEOUT_S)
        produce(producer, topic, b"third")
        producer.commit_transaction(TIMEOUT_S)
        assert client.table(table).lookup([{"id": 2}]) == [None]
    assert committed(suite_broker, topic) == ([b"first", b"first", b"third", b"third"], 1)


def test_a_transaction_of_asyncio_commits_them_too(suite_broker: Served, names: tuple[str, str]) -> None:
    topic, table = names
    producer = begun(suite_broker, topic, b"first")

    async def run() -> None:
        async with AsyncClient(http_of(suite_broker)) as client:
            async with client.transaction(transactional_id=topic) as tx:
                tx.insert(table, [{"id": 1, "text": "one"}])
                tx.commit_offset(f"{topic}-group", topic, 0, 1)
            assert await client.table(table).lookup([{"id": 1}]) == [{"id": 1, "text": "one"}]

    asyncio.run(run())
    producer.commit_transaction(TIMEOUT_S)
    assert committed(suite_broker, topic) == ([b"first", b"first"], 1)


def test_a_producer_that_took_over_makes_the_commit_fail(suite_broker: Served, names: tuple[str, str]) -> None:
    topic, table = names
    begun(suite_broker, topic, b"first")
    with Client(http_of(suite_broker)) as client:
        with client.transaction(transactional_id=topic) as tx:
            tx.insert(table, [{"id": 1, "text": "one"}])
            later = begun(suite_broker, topic, b"later")
            with pytest.raises(ClientError) as refused:
                tx.commit()
        assert refused.value.code == "PRODUCER_FENCED"
        assert client.table(table).lookup([{"id": 1}]) == [None]
    later.commit_transaction(TIMEOUT_S)
    assert committed(suite_broker, topic)[0] == [b"later", b"later"]
