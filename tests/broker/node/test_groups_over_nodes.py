"""Groups of a broker of two nodes: the first coordinates them, offsets lie with the partitions at both."""

import os
import signal
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.several_nodes import SeveralNodes
from tests.support.waiting import wait_until

PATIENCE_S = 60.0
PARTITIONS = 4
Settings = dict[str, str | int | float | bool]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeveralNodes]:
    place = tmp_path_factory.mktemp("nodes")
    settings = {"pqbroker.node.silence.ms": "10000", "group.initial.rebalance.delay.ms": "0"}
    several = SeveralNodes(place / "data", 2, settings, place / "log")
    try:
        several.start()
        yield several
    finally:
        several.end()


def at_node(nodes: SeveralNodes, number: int) -> Settings:
    """Return what a client begins with at one node."""
    host, _, port = nodes.kafka.rpartition(":")
    return {"bootstrap.servers": f"{host}:{int(port) + number}", "log_level": 0}


def spread_topic(nodes: SeveralNodes, name: str) -> None:
    """Create a topic whose partitions both nodes lead."""
    admin = AdminClient(at_node(nodes, 1))
    topic = NewTopic(name, PARTITIONS, config={"pq.partitions.per.tablet": "1"})
    admin.create_topics([topic])[name].result(PATIENCE_S)
    wait_until(lambda: leaders(admin, name) == {1, 2}, "two nodes lead partitions", PATIENCE_S)


def leaders(admin: AdminClient, topic: str) -> set[int]:
    found = admin.list_topics(topic, timeout=PATIENCE_S).topics[topic]
    return {partition.leader for partition in found.partitions.values()}


def kill(nodes: SeveralNodes, number: int) -> None:
    """Kill a node; return when its next process begins."""
    killed = nodes.pids()[number]
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: nodes.pids()[number] != killed, "another process", PATIENCE_S)


def _produce(client: Settings, topic: str, numbers: range) -> None:
    producer, refused = Producer({**client, "enable.idempotence": True}), list[object]()
    for number in numbers:
        producer.produce(
            topic, str(number), partition=number % PARTITIONS, on_delivery=lambda error, _: refused.append(error)
        )
    assert producer.flush(PATIENCE_S) == 0
    assert set(refused) == {None}


def _member(client: Settings, group_id: str, topic: str) -> Consumer:
    settings = {"group.id": group_id, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    consumer = Consumer({**client, **settings})
    consumer.subscribe([topic])
    return consumer


def _take(consumer: Consumer, count: int) -> list[int]:
    found = list[int]()
    while len(found) < count:
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        assert message.error() is None, message.error()
        found.append(int(message.value() or b""))
    return found


def _committed(client: Settings, group_id: str, topic: str) -> list[int]:
    """Return the offset of each partition, as soon as all of them are known."""
    admin = AdminClient(client)
    asked = [ConsumerGroupTopicPartitions(group_id, [TopicPartition(topic, one) for one in range(PARTITIONS)])]
    found = list[int]()

    def are_known() -> bool:
        try:
            answer = admin.list_consumer_group_offsets(asked)[group_id].result(PATIENCE_S)
        except KafkaException:
            return False
        assert all(one.error is None for one in answer.topic_partitions)
        found[:] = [one.offset for one in answer.topic_partitions]
        return True

    wait_until(are_known, "all offsets are known", PATIENCE_S)
    return found


def test_a_group_that_begins_at_a_member_continues_after_each_node_was_killed(nodes: SeveralNodes) -> None:
    client = at_node(nodes, 2)
    spread_topic(nodes, "read")
    _produce(client, "read", range(40))
    consumer = _member(client, "readers", "read")
    assert sorted(_take(consumer, 40)) == list(range(40))
    consumer.commit(asynchronous=False)
    assert _committed(client, "readers", "read") == [10] * PARTITIONS
    for number in (2, 1):
        kill(nodes, number)
        assert _committed(client, "readers", "read") == [10] * PARTITIONS
    consumer.close()
    _produce(client, "read", range(40, 80))
    again = _member(client, "readers", "read")
    assert sorted(_take(again, 40)) == list(range(40, 80))
    again.commit(asynchronous=False)
    again.close()
    assert _committed(client, "readers", "read") == [20] * PARTITIONS
