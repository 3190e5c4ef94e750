"""Reports of nodes to the first one, whose doors show the state of all: conditions, figures, lag of groups."""

import json
import os
import signal
import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, TopicPartition

from pqbroker.broker.ground.other_nodes import NodeState
from pqbroker.broker.ground.series import COUNTERS, GAUGES
from pqbroker.broker.node import reports
from pqbroker.broker.node.figures import whole_figures
from pqbroker.broker.node.reports import NodeReports, PartitionEnd
from pqbroker.broker.peers.peer_methods import PeerMethod, decode_peer_call
from tests.broker.node.test_groups_over_nodes import PATIENCE_S, at_node
from tests.broker.node.test_http_over_nodes import call, open_stream, spread, write
from tests.support.several_nodes import SeveralNodes, several_nodes
from tests.support.waiting import wait_until

CONNECTIONS_MAX = 30


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeveralNodes]:
    settings = {"pqbroker.node.silence.ms": "10000", "max.connections": str(CONNECTIONS_MAX)}
    with several_nodes(tmp_path_factory.mktemp("nodes"), settings) as running:
        yield running


class Reported:
    """Reports of a node whose parts are what a test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s, self.looks = 0.0, 0
        self.conditions: list[str] = []
        self.notes: list[PeerMethod] = []
        self.requests, self.starts = SimpleNamespace(count=0), SimpleNamespace(count=0)
        topics = SimpleNamespace(
            memory=SimpleNamespace(key_values=SimpleNamespace(requests=self.requests), starts=self.starts),
            offsets=SimpleNamespace(places=self._look),
        )
        found = lambda: [SimpleNamespace(document=lambda one=one: one) for one in self.conditions]  # noqa: E731
        node = SimpleNamespace(
            loop=SimpleNamespace(time=lambda: self.now_s), metrics=None, health=Found(found), turns=self,
            cell=SimpleNamespace(current=SimpleNamespace(topics=topics)),
        )  # fmt: skip
        monkeypatch.setattr(reports, "read_figures", lambda *_, **__: {})
        self.reports = NodeReports(cast(Any, node), self._take)

    async def look(self) -> list[PeerMethod]:
        """Have the node look for what is to be reported; return what it has."""
        self.notes.clear()
        self.reports._report_state()
        await self.reports._report_ends()
        return self.notes

    async def finish(self, steps: Iterator[None]) -> list[PartitionEnd]:
        """Return what steps return, as the turns of a node do."""
        try:
            while True:
                next(steps)
        except StopIteration as done:
            return list(done.value)

    def _take(self, payload: bytes) -> bool:
        self.notes.append(decode_peer_call(payload)[0])
        return True

    def _look(self) -> list[tuple[str, int]]:
        self.looks += 1
        return []


class Found:
    """The health of a node."""

    def __init__(self, found: Callable[[], list[Any]]) -> None:
        self._found = found

    @property
    def found(self) -> list[Any]:
        return self._found()


async def test_what_has_not_changed_is_not_reported_again_within_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Reported(monkeypatch)
    assert await node.look() == [PeerMethod.STATE]
    node.now_s = 0.5
    assert await node.look() == []
    node.conditions = ["slow disk"]
    assert await node.look() == [PeerMethod.STATE]
    node.conditions = []
    assert await node.look() == [PeerMethod.STATE]
    assert await node.look() == []
    node.now_s = 1.6
    assert await node.look() == [PeerMethod.STATE]
    node.reports.forget()
    assert await node.look() == [PeerMethod.STATE]


async def test_ends_are_looked_at_only_where_tablets_have_done_something(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Reported(monkeypatch)

    async def looks() -> int:
        node.looks = 0
        for _ in range(5):
            await node.look()
        return node.looks

    assert await looks() == 2  # what a request that is counted already moves a moment later is seen too
    assert await looks() == 0
    node.requests.count += 1
    assert await looks() == 2
    node.starts.count += 1
    assert await looks() == 2
    node.reports.forget()
    assert await looks() == 2


def address(nodes: SeveralNodes, node: int) -> tuple[str, int]:
    host, _, port = str(at_node(nodes, node)["bootstrap.servers"]).rpartition(":")
    return host, int(port)


def health(nodes: SeveralNodes) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://{nodes.http}/health", timeout=PATIENCE_S) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def places(nodes: SeveralNodes) -> set[tuple[str, str]]:
    """Return the conditions by kind and place."""
    return {(one["kind"], one["place"]) for one in health(nodes)["conditions"]}


def test_lag_of_a_group_counts_records_of_all_nodes(nodes: SeveralNodes) -> None:
    away = spread(nodes, "lagging")
    for index in away:
        for value in ("a", "b", "c"):
            write(nodes, "lagging", index, value)
    consumer = Consumer({**at_node(nodes, 1), "group.id": "late", "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition("lagging", index, 1) for index in away], asynchronous=False)
    consumer.close()

    def is_behind(lag: int) -> bool:
        status, told = call(nodes, "groups/late")
        ends = {one["end_offset"] for one in told["partitions"]} if status == 200 else set()
        (listed,) = (one for one in call(nodes, "groups")[1]["groups"] if one["name"] == "late")
        return (told.get("lag"), listed["lag"], ends) == (lag * len(away), lag * len(away), {lag + 1})

    wait_until(lambda: is_behind(2), "a lag of two records", PATIENCE_S)
    for index in away:
        write(nodes, "lagging", index, "d")
    wait_until(lambda: is_behind(3), "a lag of three records", PATIENCE_S)
    with urllib.request.urlopen(f"http://{nodes.http}/metrics", timeout=PATIENCE_S) as answer:
        lines = [line for line in answer.read().decode().splitlines() if 'group="late"' in line]
    lags = [float(line.rpartition(" ")[2]) for line in lines if line.startswith("pqbroker_group_lag_records")]
    assert sorted(lags) == [3.0] * len(away)


def test_figures_are_those_of_all_nodes(nodes: SeveralNodes) -> None:
    away = spread(nodes, "figures")
    host, port = address(nodes, 2)
    before = figures(nodes)
    with ExitStack() as stack:
        for _ in range(10):
            stack.enter_context(socket.create_connection((host, port), PATIENCE_S))
        write(nodes, "figures", away[0], "x" * 1000)
        wait_until(lambda: figures(nodes)["connections"] >= before["connections"] + 10, "connections", PATIENCE_S)
        assert figures(nodes)["stored_bytes"] > before["stored_bytes"] + 1000


def figures(nodes: SeveralNodes) -> dict[str, float]:
    with open_stream(nodes, "events") as stream:
        found: dict[str, float] = json.loads(stream.readline())["figures"]
        return found


def test_conditions_of_another_node_are_shown_with_its_number(nodes: SeveralNodes) -> None:
    host, port = address(nodes, 2)
    with ExitStack() as stack:
        for _ in range(CONNECTIONS_MAX + 5):
            stack.enter_context(socket.create_connection((host, port), PATIENCE_S))
        wait_until(lambda: ("refusing", "node 2, Kafka connections") in places(nodes), "the condition", PATIENCE_S)
        assert health(nodes)["status"] == "degraded"
        assert ("refusing", "node 2, Kafka connections") in {
            (one["kind"], one["place"]) for one in call(nodes, "node")[1]["conditions"]
        }
    wait_until(lambda: health(nodes)["status"] == "ok", "it is over", PATIENCE_S)


def test_tablets_of_all_nodes_are_listed_and_described(nodes: SeveralNodes) -> None:
    away = spread(nodes, "listed")
    rows = {row["partition"]: row["tablet"] for row in call(nodes, "topics/listed")[1]["partitions"]}
    every = call(nodes, "tablets?limit=1000")[1]["tablets"]
    by_id = {one["id"]: one for one in every}
    assert len(every) == len(by_id)
    assert {by_id[tablet]["topic"] for tablet in rows.values()} == {"listed"}
    paged: list[Any] = []
    after = "-1"
    while after != "None":
        told = call(nodes, f"tablets?limit=3{'' if after == '-1' else f'&after={after}'}")[1]
        paged, after = paged + told["tablets"], str(told["next"])
    assert paged == every
    tablet = rows[away[0]]
    cells = {str(one["id"]): one for one in call(nodes, "cells")[1]["cells"]}
    described = call(nodes, f"tablets/{tablet}")[1]
    cell = cells[described["cell"]]
    assert (cell["node"], cell["health"]) == (2, "good")
    assert cell["generation"] == described["generation"] > 0
    assert call(nodes, f"tablets/{tablet}/keys")[0] == 200
    assert call(nodes, f"blobs?tablet={tablet}")[0] == 200
    restarted = call(nodes, f"tablets/{tablet}/restart", {})[1]
    assert restarted["generation"] == described["generation"] + 1


def test_connections_and_clients_of_all_nodes_are_listed(nodes: SeveralNodes) -> None:
    """One client that is connected to both nodes is one."""
    away = spread(nodes, "clients")
    client = {**at_node(nodes, 1), "client.id": "both", "group.id": "both", "enable.auto.commit": False}
    consumer = Consumer(client)
    consumer.assign([TopicPartition("clients", index, 0) for index in range(max(away) + 2)])

    def found() -> list[Any]:
        consumer.poll(0.05)
        listed = call(nodes, "connections?limit=1000")[1]["connections"]
        ids = [one["id"] for one in listed]
        assert ids == sorted(set(ids))
        return [one for one in listed if one["client_id"] == "both"]

    def is_page_behind_first() -> bool:
        ids = [one["id"] for one in call(nodes, "connections?limit=1000")[1]["connections"]]
        page = call(nodes, f"connections?limit=1&after={ids[0]}")[1]["connections"]
        return [one["id"] for one in page] == ids[1:2]

    wait_until(lambda: {one["id"] % 2 for one in found()} == {0, 1}, "connections to both nodes", PATIENCE_S)
    wait_until(is_page_behind_first, "a page of connections", PATIENCE_S)
    (told,) = [one for one in call(nodes, "clients")[1]["clients"] if one["client_id"] == "both"]
    assert told["connections"] == len(found())
    consumer.close()


def test_another_node_is_described_and_shows_its_log(nodes: SeveralNodes) -> None:
    first, second = call(nodes, "node")[1], call(nodes, "node?node=2")[1]
    assert (first["node"], first["nodes"], first["process"]) == (1, 2, nodes.pids()[1])
    assert (second["node"], second["nodes"], second["process"]) == (2, 2, nodes.pids()[2])
    assert call(nodes, "log?node=2")[1]["node"] == 2
    status, refused = call(nodes, "node?node=3")
    assert (status, refused["error"]["code"]) == (404, "NO_NODE")
    assert call(nodes, "cleaner")[1]["threads"] == 2  # one each


def test_a_node_that_is_gone_is_a_condition(nodes: SeveralNodes) -> None:
    nodes.parent.send_signal(signal.SIGSTOP)  # it would start the node again
    waking = threading.Timer(PATIENCE_S, nodes.parent.send_signal, (signal.SIGCONT,))
    waking.start()
    try:
        os.kill(nodes.pids()[2], signal.SIGKILL)
        wait_until(lambda: places(nodes) == {("node-away", "node 2")}, "the node is away", PATIENCE_S)
        (told,) = health(nodes)["conditions"]
        assert told["cause"].startswith("it has not been linked to the first node for ")
    finally:
        waking.cancel()
        nodes.parent.send_signal(signal.SIGCONT)
    wait_until(lambda: places(nodes) == set(), "it serves again", PATIENCE_S)


def test_figures_of_nodes_are_sums_but_for_free_bytes_and_lag() -> None:
    own = dict.fromkeys((*COUNTERS, *GAUGES), 2.0)
    other = NodeState((), dict.fromkeys((*COUNTERS, *GAUGES), 3.0))
    whole = whole_figures(own, [other, NodeState()])
    assert whole.pop("free_bytes") == 2
    assert whole.pop("loop_lag_worst_seconds") == 3
    assert set(whole.values()) == {5.0}


CONDITION = {
    "kind": "refusing", "severity": "degraded", "place": "p", "since": 1, "affects": "a", "cause": "b", "cure": "c",
}  # fmt: skip


def test_a_state_is_read_as_it_was_written() -> None:
    state = NodeState([CONDITION], {"requests": 2.0})
    assert NodeState.decode(json.loads(json.dumps(state.encode()))) == state
    ends = [PartitionEnd(b"\0" * 16, 3, 5)]
    assert PartitionEnd.decode_all(json.loads(json.dumps([one.encode() for one in ends]))) == ends


@pytest.mark.parametrize(
    "told", [None, 5, [], [[], {}, 1], [[{}], {}], [["x"], {}], [[], []], [[], {"requests": "many"}], [[], {"a": None}]]
)
def test_what_is_no_state_is_refused(told: Any) -> None:
    with pytest.raises(ValueError, match="the state of a node was expected"):
        NodeState.decode(told)


@pytest.mark.parametrize("told", [None, [1], [["zz", 0, 0]], [["00", "x", 0]], [["00", 0]]])
def test_what_is_no_end_is_refused(told: Any) -> None:
    with pytest.raises(ValueError, match="ends of partitions were expected"):
        PartitionEnd.decode_all(told)
