"""Pauses of acknowledgements while a cell moves and when a node is killed. The marks hold on a quiet machine."""

import json
import os
import signal
import threading
import time
import urllib.request
from collections.abc import Iterator
from typing import Self

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.crowding import Crowding
from tests.support.several_nodes import SeveralNodes, several_nodes
from tests.support.waiting import wait_until

PATIENCE_S = 90.0
MOVED_S, KILLED_S, OTHERS_S = 0.5, 2.0, 0.3
"""Marks: a cell that moves to another node, a node that is killed, and partitions of nodes that are not."""
SETTLED_S = 6.0
"""A node that has served for 5 s is started again at once."""
PARTITIONS = 6
Client = dict[str, str | int | float | bool]
HASTY: Client = {
    "log_level": 0, "linger.ms": 0, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 50,
    "retry.backoff.ms": 20, "retry.backoff.max.ms": 50, "topic.metadata.refresh.fast.interval.ms": 20,
}  # fmt: skip

pytestmark = pytest.mark.alone


class Pauses:
    """Producers, one for each partition, that write without end. Pauses between acknowledgements are measured."""

    def __init__(self, nodes: SeveralNodes, topic: str) -> None:
        self.client: Client = {**HASTY, "bootstrap.servers": nodes.kafka}
        self._topic = topic
        self._admin = AdminClient(self.client)
        config = {"pq.partitions.per.tablet": "1"}
        (created,) = self._admin.create_topics([NewTopic(topic, PARTITIONS, config=config)]).values()
        created.result(PATIENCE_S)
        wait_until(lambda: set(self.leaders().values()) == {1, 2}, "two nodes lead partitions", PATIENCE_S)
        self._producers = [Producer({**self.client, "enable.idempotence": True}) for _ in range(PARTITIONS)]
        self._written, self._acknowledged = [0] * PARTITIONS, [0] * PARTITIONS
        self._refused: list[object] = []
        self._ends = threading.Event()
        self._writing = threading.Thread(target=self._write, daemon=True)
        self._last = [time.monotonic()] * PARTITIONS
        self._longest = [0.0] * PARTITIONS

    def leaders(self) -> dict[int, int]:
        """Return the node of each partition."""
        partitions = self._admin.list_topics(self._topic, timeout=PATIENCE_S).topics[self._topic].partitions
        return {one.id: one.leader for one in partitions.values()}

    def __enter__(self) -> Self:
        self._writing.start()
        self.begin()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._writing.join(PATIENCE_S)
        for producer in self._producers:
            assert producer.flush(PATIENCE_S) == 0
        assert self._refused == []

    def begin(self) -> None:
        """Measure from now on, when all partitions are acknowledged."""
        self.until_acknowledged()
        self._longest = [0.0] * PARTITIONS

    def until_acknowledged(self) -> None:
        """Return when each partition has acknowledged all that was written before, and more."""
        wanted = list(self._written)
        wait_until(
            lambda: all(done > least for done, least in zip(self._acknowledged, wanted, strict=True)),
            "acknowledgements of all partitions", PATIENCE_S,
        )  # fmt: skip

    def _write(self) -> None:
        while not self._ends.is_set():
            for partition, producer in enumerate(self._producers):
                producer.produce(self._topic, b"x", partition=partition, on_delivery=self._take)
                self._written[partition] += 1
                producer.poll(0.002)

    def longest_s(self, leaders: dict[int, int], node: int) -> float:
        """Return the longest pause of a partition that a node led."""
        return max(self._longest[partition] for partition, leader in leaders.items() if leader == node)

    def _take(self, error: object, message: Message) -> None:
        if error is not None:
            self._refused.append(error)
            return
        partition, now = message.partition() or 0, time.monotonic()
        self._acknowledged[partition] += 1
        self._longest[partition] = max(self._longest[partition], now - self._last[partition])
        self._last[partition] = now


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeveralNodes]:
    with several_nodes(tmp_path_factory.mktemp("nodes"), {"pqbroker.node.return.ms": "1000"}) as running:
        yield running


def test_a_planned_move_pauses_its_partitions_for_less_than_half_a_second(nodes: SeveralNodes) -> None:
    cell = next(cell["id"] for cell in _cells(nodes) if cell["node"] == 2)
    with Crowding() as crowding, Pauses(nodes, "moved") as pauses:
        leaders = pauses.leaders()
        for node in (1, 2):
            _move(nodes, cell, node)
            pauses.until_acknowledged()
        longest = pauses.longest_s(leaders, 2), pauses.longest_s(leaders, 1)
    _check(longest, (MOVED_S, OTHERS_S), crowding)


def test_a_member_that_is_killed_pauses_its_partitions_for_less_than_two_seconds(nodes: SeveralNodes) -> None:
    with Crowding() as crowding, Pauses(nodes, "member-killed") as pauses:
        leaders, killed = pauses.leaders(), _settled(nodes, 2)
        pauses.begin()
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: set(pauses.leaders().values()) == {1}, "the first node leads all partitions", PATIENCE_S)
        pauses.until_acknowledged()
        longest = pauses.longest_s(leaders, 2), pauses.longest_s(leaders, 1)
        pauses.begin()
        wait_until(lambda: pauses.leaders() == leaders, "the node has its cells again", PATIENCE_S)
        pauses.until_acknowledged()
        coming_back = pauses.longest_s(leaders, 2), pauses.longest_s(leaders, 1)
    _check(longest, (KILLED_S, OTHERS_S), crowding)
    _check(coming_back, (MOVED_S, OTHERS_S), crowding)


def test_a_first_node_that_is_killed_pauses_what_it_has_for_less_than_two_seconds(nodes: SeveralNodes) -> None:
    """Its partitions, the groups, and HTTP; partitions of the other node are served meanwhile."""
    with Crowding() as crowding, Pauses(nodes, "first-killed") as pauses:
        leaders, killed = pauses.leaders(), _settled(nodes, 1)
        consumer = Consumer({**pauses.client, "group.id": "committing", "enable.auto.commit": False})
        wait_until(lambda: _commit(consumer, "first-killed"), "a group commits", PATIENCE_S)
        pauses.begin()
        os.kill(killed, signal.SIGKILL)
        killed_at = time.monotonic()
        wait_until(lambda: nodes.pids()[1] != killed and nodes.answers(PATIENCE_S), "HTTP answers", PATIENCE_S)
        answered_s = time.monotonic() - killed_at
        wait_until(lambda: _commit(consumer, "first-killed"), "a group commits again", PATIENCE_S)
        committed_s = time.monotonic() - killed_at
        pauses.until_acknowledged()
        longest = pauses.longest_s(leaders, 1), pauses.longest_s(leaders, 2), answered_s, committed_s
        consumer.close()
    _check(longest, (KILLED_S, OTHERS_S, KILLED_S, KILLED_S), crowding)


def _check(measured: tuple[float, ...], marks: tuple[float, ...], crowding: Crowding) -> None:
    """Check pauses against their marks, which are longer on a machine that others use."""
    assert all(pause < mark * crowding.times for pause, mark in zip(measured, marks, strict=True)), measured


def _move(nodes: SeveralNodes, cell: int, node: int) -> None:
    body = json.dumps({"node": node}).encode()
    request = urllib.request.Request(
        f"http://{nodes.http}/v1/cells/{cell}/move", body, headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_S):
        pass


def _settled(nodes: SeveralNodes, node: int) -> int:
    """Return the process id of a node, once it has served long enough to be started again at once."""
    pid = nodes.pids()[node]
    wait_until(lambda: _age_s(pid) > SETTLED_S, "the node has served well", PATIENCE_S)
    return pid


def _age_s(pid: int) -> float:
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat, open("/proc/uptime", encoding="ascii") as uptime:
        started = int(stat.read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
        return float(uptime.read().split()[0]) - started


def _commit(consumer: Consumer, topic: str) -> bool:
    try:
        consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    except KafkaException:
        return False
    return True


def _cells(nodes: SeveralNodes) -> list[dict[str, int]]:
    with urllib.request.urlopen(f"http://{nodes.http}/v1/cells", timeout=PATIENCE_S) as answer:
        found: list[dict[str, int]] = json.loads(answer.read())["cells"]
        return [cell for cell in found if cell["id"]]
