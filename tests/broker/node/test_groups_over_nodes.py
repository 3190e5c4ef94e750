"""Groups and transactions of a broker of two nodes: the first coordinates them, offsets and records lie at both."""

import json
import os
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.several_nodes import SeveralNodes, several_nodes
from tests.support.waiting import wait_until

PATIENCE_S = 60.0
PARTITIONS = 4
Settings = dict[str, str | int | float | bool]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeveralNodes]:
    settings = {"pqbroker.node.silence.ms": "10000", "group.initial.rebalance.delay.ms": "0"}
    with several_nodes(tmp_path_factory.mktemp("nodes"), settings) as running:
        yield running


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


def as_row(number: int) -> str:
    """Return a number as a row of a table."""
    return json.dumps({"a": number})


def _produce(client: Settings, topic: str, numbers: range, value: Callable[[int], str] = str) -> None:
    producer, refused = Producer({**client, "enable.idempotence": True}), list[object]()
    for number in numbers:
        producer.produce(
            topic, value(number), partition=number % PARTITIONS, on_delivery=lambda error, _: refused.append(error)
        )
    assert producer.flush(PATIENCE_S) == 0
    assert set(refused) == {None}


def _call(nodes: SeveralNodes, path: str, asked: Any) -> tuple[int, Any]:
    """Return status and answer of a POST to the HTTP of the broker."""
    url, headers = f"http://{nodes.http}/v1/{path}", {"content-type": "application/json"}
    request = urllib.request.Request(url, json.dumps(asked).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        return refused.code, json.load(refused)


def nothing() -> None:
    """Do nothing between the records of a transaction and its commit."""


class _Copier:
    """A transactional producer, which commits an offset of a group with each transaction."""

    def __init__(self, client: Settings, topic: str, group_id: str) -> None:
        # After a moment without any broker librdkafka 2.16 bootstraps again, and then may send offsets for ever to an
        # object of its own that is gone: also with a broker of one node.
        settings: Settings = {
            "transactional.id": f"copies-{topic}", "transaction.timeout.ms": 60_000,
            "metadata.recovery.strategy": "none",
        }  # fmt: skip
        self._producer = Producer({**client, **settings})
        self._topic = topic
        self._group = Consumer({**client, "group.id": group_id})
        self._again(self._producer.init_transactions)

    def transact(self, numbers: range, between: Callable[[], None] = nothing, *, is_commit: bool = True) -> None:
        """Write numbers in a transaction, again where the broker has it aborted; do something before its end."""
        while True:
            self._producer.begin_transaction()
            try:
                for number in numbers:
                    self._producer.produce(self._topic, str(number), partition=number % PARTITIONS)
                assert self._producer.flush(PATIENCE_S) == 0
                offsets = [TopicPartition(self._topic, one, numbers.stop) for one in range(PARTITIONS)]
                group = self._group.consumer_group_metadata()
                self._again(partial(self._producer.send_offsets_to_transaction, offsets, group))
                between()
                between = nothing
                self._again(self._producer.commit_transaction if is_commit else self._producer.abort_transaction)
                return
            except KafkaException as failed:
                if not failed.args[0].txn_requires_abort():
                    raise
                self._again(self._producer.abort_transaction)

    def close(self) -> None:
        self._group.close()

    def _again(self, ask: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                ask()
                return
            except KafkaException as failed:
                if not failed.args[0].retriable() or time.monotonic() > deadline:
                    raise


def _read_committed(client: Settings, topic: str, count: int) -> list[int]:
    """Return the numbers of committed transactions; nothing comes behind them."""
    settings: Settings = {"group.id": "unused", "isolation.level": "read_committed", "enable.partition.eof": True}
    consumer = Consumer({**client, **settings})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    found, ends = list[int](), set[int | None]()
    while len(found) < count or len(ends) < PARTITIONS:
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ends.add(message.partition())
        else:
            found.append(int(message.value() or b""))
            ends.discard(message.partition())
    consumer.close()
    return sorted(found)


def _lists_once(admin: AdminClient, group_id: str) -> bool:
    """Return True if the nodes together list a group once: a client may have asked one of them alone."""
    listed = [group.group_id for group in admin.list_consumer_groups().result(PATIENCE_S).valid]
    assert listed.count(group_id) <= 1
    return group_id in listed


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


def committed(client: Settings, group_id: str, topic: str) -> list[int]:
    """Return the offset of each partition, as soon as all of them are known."""
    admin = AdminClient(client)
    asked = [ConsumerGroupTopicPartitions(group_id, [TopicPartition(topic, one) for one in range(PARTITIONS)])]
    found = list[int]()

    def are_known() -> bool:
        try:
            answer = admin.list_consumer_group_offsets(asked)[group_id].result(PATIENCE_S)
        except KafkaException:
            return False
        found[:] = [one.offset for one in answer.topic_partitions]
        return all(one.error is None for one in answer.topic_partitions)  # offsets may be on their way to the first

    wait_until(are_known, "all offsets are known", PATIENCE_S)
    return found


def test_a_group_that_begins_at_a_member_reads_and_commits_at_both_nodes(nodes: SeveralNodes) -> None:
    client = at_node(nodes, 2)
    spread_topic(nodes, "read")
    _produce(client, "read", range(40))
    consumer = _member(client, "readers", "read")
    assert sorted(_take(consumer, 40)) == list(range(40))
    consumer.commit(asynchronous=False)
    consumer.close()
    for number in (1, 2):
        assert committed(at_node(nodes, number), "readers", "read") == [10] * PARTITIONS
        admin = AdminClient(at_node(nodes, number))
        wait_until(partial(_lists_once, admin, "readers"), "the group is listed, by one node", PATIENCE_S)


def test_groups_and_transactions_over_nodes_stay_whole_though_each_node_is_killed(nodes: SeveralNodes) -> None:
    client = at_node(nodes, 2)
    spread_topic(nodes, "copied")
    copier = _Copier(client, "copied", "copiers")
    copier.transact(range(8))
    copier.transact(range(8, 16), is_commit=False)
    assert committed(client, "copiers", "copied") == [8] * PARTITIONS
    reader = _member({**client, "isolation.level": "read_committed"}, "killed", "copied")
    assert sorted(_take(reader, 8)) == list(range(8))
    reader.commit(asynchronous=False)
    copier.transact(range(16, 24), lambda: kill(nodes, 2))
    copier.transact(range(24, 32), lambda: kill(nodes, 1))
    copier.transact(range(32, 40))
    expected = [*range(8), *range(16, 40)]
    for number in (1, 2):
        assert _read_committed(at_node(nodes, number), "copied", len(expected)) == expected
    assert committed(client, "copiers", "copied") == [40] * PARTITIONS
    assert sorted(_take(reader, 24)) == list(range(16, 40))
    reader.commit(asynchronous=False)
    reader.close()
    offsets = committed(client, "killed", "copied")
    again = _member({**client, "isolation.level": "read_committed"}, "killed", "copied")
    copier.transact(range(40, 48))
    assert sorted(_take(again, 8)) == list(range(40, 48))
    again.commit(asynchronous=False)
    again.close()
    assert all(after > before for before, after in zip(offsets, committed(client, "killed", "copied"), strict=True))
    copier.close()
