"""Several nodes whose first one, which has the system cell, is stopped, killed, or cannot start."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.several_nodes import SeveralNodes, is_running, several_nodes
from tests.support.waiting import wait_until

PATIENCE_S = 60.0
SILENCE_S = 3.0
"""The rule: so long a node answers that hears nothing from the first one."""
HASTY: dict[str, str | int | float | bool] = {
    "log_level": 0, "linger.ms": 0, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20, "retry.backoff.max.ms": 100, "topic.metadata.refresh.fast.interval.ms": 50,
}  # fmt: skip


class AtMember:
    """A producer of one partition that the second node leads. `acknowledged_at`: when records were."""

    def __init__(self, nodes: SeveralNodes, topic: str) -> None:
        client = {**HASTY, "bootstrap.servers": nodes.kafka}
        admin = AdminClient(client)
        (created,) = admin.create_topics([NewTopic(topic, 4, config={"pq.partitions.per.tablet": "1"})]).values()
        created.result(PATIENCE_S)

        def led_by_second() -> list[int]:
            partitions = admin.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions.values()
            return [one.id for one in partitions if one.leader == 2]

        wait_until(led_by_second, "the second node leads a partition", PATIENCE_S)
        self._producer, self._topic, self._partition = Producer(client), topic, led_by_second()[0]
        self.acknowledged_at: list[float] = []

    def produce(self) -> None:
        """Write a record, and take what has been acknowledged."""
        self._producer.produce(self._topic, b"x", partition=self._partition, on_delivery=self._take)
        self._producer.poll(0.02)

    def until_acknowledged(self) -> None:
        """Write until a record is acknowledged that was written from now on."""
        seen = len(self.acknowledged_at)

        def is_acknowledged() -> bool:
            self.produce()
            return len(self.acknowledged_at) > seen

        wait_until(is_acknowledged, "an acknowledgement of the second node", PATIENCE_S)

    def flush(self) -> None:
        """Have all that waits acknowledged."""
        assert self._producer.flush(PATIENCE_S) == 0

    def _take(self, error: object, message: Message) -> None:
        assert error is None
        self.acknowledged_at.append(time.monotonic())


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeveralNodes]:
    settings = {"pqbroker.node.silence.ms": str(int(SILENCE_S * 1000))}
    with several_nodes(tmp_path_factory.mktemp("nodes"), settings) as running:
        yield running


def test_a_member_serves_while_its_mirror_is_fresh_and_a_parent_that_was_stopped_kills_nobody(
    nodes: SeveralNodes,
) -> None:
    member, pids = AtMember(nodes, "stopped"), nodes.pids()
    member.until_acknowledged()
    nodes.parent.send_signal(signal.SIGSTOP)  # it would kill the first node, and start it again
    os.kill(pids[1], signal.SIGSTOP)
    stopped_at = time.monotonic()
    try:

        def is_stale() -> bool:
            member.produce()
            return "this node has not heard of the first one for too long, so it answers nothing" in nodes.log

        wait_until(is_stale, "the member answers nothing more", PATIENCE_S)
        assert member.acknowledged_at[-1] > stopped_at
        assert member.acknowledged_at[-1] < stopped_at + 2 * SILENCE_S  # 3 s, and what waits on a busy machine
    finally:
        turns = _turns(nodes.parent.pid)
        nodes.parent.send_signal(signal.SIGCONT)
        wait_until(lambda: _turns(nodes.parent.pid) > turns + 1, "the parent looks before the node runs", PATIENCE_S)
        os.kill(pids[1], signal.SIGCONT)
    member.until_acknowledged()
    member.flush()
    assert nodes.pids() == pids
    assert all(map(is_running, pids.values()))


def test_a_first_node_that_cannot_start_is_tried_ever_more_seldom_and_the_log_says_what_it_means(
    nodes: SeveralNodes,
) -> None:
    member = AtMember(nodes, "crash-loop")
    member.until_acknowledged()
    meaning = (
        "It has the system cell: the other nodes serve their partitions for 3 s without it, and then nothing until it "
        "serves again"
    )
    facts = nodes.directory / "cell"
    copy, kept = nodes.directory / "cell.copy", facts.read_bytes()
    kept_copy = copy.read_bytes()
    facts.write_text("no cell")
    copy.write_text("no cell")
    os.kill(nodes.pids()[1], signal.SIGKILL)
    wait_until(lambda: "It has ended 3 times in a row soon after its start" in nodes.log, "three ends", PATIENCE_S)
    assert meaning in nodes.log
    assert "it is started again in 0.4 s" in nodes.log
    assert is_running(nodes.pids()[2])
    nodes.parent.send_signal(signal.SIGHUP)
    wait_until(lambda: "the other nodes are not restarted" in nodes.log, "a restart is refused", PATIENCE_S)
    facts.write_bytes(kept)
    copy.write_bytes(kept_copy)
    wait_until(lambda: nodes.answers(PATIENCE_S), "the first node serves again", PATIENCE_S)
    member.until_acknowledged()
    member.flush()


def test_the_first_node_has_its_address_of_http_after_each_start(nodes: SeveralNodes) -> None:
    before = nodes.pids()[1]
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: nodes.pids()[1] != before, "another process", PATIENCE_S)
    wait_until(lambda: nodes.answers(PATIENCE_S), "HTTP answers at the address of the start", PATIENCE_S)


def test_a_node_that_waits_for_the_first_one_ends_with_its_parent(tmp_path: Path) -> None:
    """Else it would wait for ever, and no other broker could have the directory."""
    several = SeveralNodes(tmp_path / "data", 2, {"pqbroker.node.silence.ms": "60000"}, tmp_path / "log")
    try:
        several.start()
        before = several.pids()
        os.kill(before[1], signal.SIGSTOP)
        os.kill(before[2], signal.SIGKILL)
        wait_until(lambda: several.pids()[2] != before[2], "the second node is started again", PATIENCE_S)
        second = several.pids()[2]
        wait_until(lambda: "rocksdict" in Path(f"/proc/{second}/maps").read_text(), "its orders", PATIENCE_S)
        turns = _turns(second)
        wait_until(lambda: _turns(second) > turns + 10, "looks for the first node", PATIENCE_S)
        several.parent.kill()
        os.kill(before[1], signal.SIGKILL)
        wait_until(lambda: not is_running(second), "the second node is gone", PATIENCE_S)
    finally:
        several.end()


def _turns(pid: int) -> int:
    """Return how often a process has waited for something."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])
