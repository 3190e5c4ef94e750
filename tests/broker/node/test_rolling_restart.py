"""A rolling restart of three nodes: no client meets an error, nothing is lost or doubled, cells are where they were."""

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from pqbroker.broker.node.rolling_restart import RollingRestart
from pqbroker.broker.peers.peer_link import PeerRefused
from pqbroker.broker.peers.peer_methods import PeerMethod
from tests.support.several_nodes import SeveralNodes, is_running, several_nodes
from tests.support.strict_clients import PRODUCERS, StrictClients
from tests.support.waiting import wait_until

PATIENCE_S = 120.0
NODES, PARTITIONS = 3, 6


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeveralNodes]:
    settings = {
        "pqbroker.node.silence.ms": "10000", "pqbroker.node.return.ms": "600000",
        "group.initial.rebalance.delay.ms": "0",
    }  # fmt: skip
    with several_nodes(tmp_path_factory.mktemp("nodes"), settings, NODES) as running:
        yield running


def test_a_rolling_restart_of_three_nodes_shows_no_client_an_error(nodes: SeveralNodes) -> None:
    wait_until(lambda: set(_cells(nodes).values()) == {1, 2, 3}, "each node has cells", PATIENCE_S)
    admin = AdminClient({"bootstrap.servers": nodes.kafka})
    admin.create_topics([NewTopic("t", PARTITIONS, config={"pq.partitions.per.tablet": "1"})])["t"].result(PATIENCE_S)
    wait_until(lambda: _leaders(admin) == {1, 2, 3}, "all nodes lead partitions", PATIENCE_S)
    cells, pids = _cells(nodes), nodes.pids()
    clients = StrictClients(nodes.kafka, "t", PARTITIONS)
    with clients.running():
        wait_until(lambda: len(clients.steps()) == len(clients.names) or clients.errors, "all clients", PATIENCE_S)
        shown = _restart(nodes)
        assert _cells(nodes) == cells
        before = clients.steps()
        wait_until(
            lambda: all(clients.steps()[name] > before[name] for name in before) or clients.errors, "all clients go on",
            PATIENCE_S,
        )  # fmt: skip
    assert clients.errors == []
    assert json.loads(shown) == {"state": "done", "nodes": NODES, "restarted": [3, 2, 1], "failure": ""}
    assert not any(map(is_running, pids.values()))
    _check_records(_read(nodes.kafka), clients.written)


def test_a_restart_is_not_begun_twice(nodes: SeveralNodes) -> None:
    assert _ask(nodes, "POST") == (202, {"state": "running", "nodes": NODES, "restarted": [], "failure": ""})
    status, refusal = _ask(nodes, "POST")
    assert (status, refusal["error"]["code"]) == (409, "RESTART_REFUSED")
    assert "are being restarted already" in refusal["error"]["message"]
    wait_until(lambda: _is_done(nodes), "the restart", PATIENCE_S)


class _Node:
    """A node that notes what is asked; `refused` names what it refuses."""

    def __init__(self, number: int, asked: list[str], refused: str = "") -> None:
        self.number = number
        self._asked = asked
        self._refused = refused

    async def ask(self, method: PeerMethod, head: Any, timeout_s: float) -> None:
        self._note(f"{method.name} {head}")
        if self._asked[-1] == self._refused:
            raise PeerRefused("cell 4 is not open")

    async def restart(self, allowed_s: float) -> bool:
        self._note(f"restart {self.number}")
        return self._asked[-1] != self._refused

    def _note(self, text: str) -> None:
        self._asked.append(text)


ALL = ("EMPTY_NODE 2", "restart 2", "FILL_NODE 2", "EMPTY_NODE 1", "restart 1", "FILL_NODE 1")


@pytest.mark.parametrize(
    ("refused", "restarted", "failure"),
    [
        ("", [2, 1], ""),
        ("EMPTY_NODE 2", [], "node 2 is not restarted: cell 4 is not open"),
        ("restart 2", [], "node 2 does not serve again; its own lines in the log say why"),
        ("FILL_NODE 2", [], "node 2 serves again, but has not all its cells: cell 4 is not open"),
        ("EMPTY_NODE 1", [2], "node 1 is not restarted: cell 4 is not open"),
    ],
)
async def test_what_a_node_cannot_do_keeps_the_others_from_a_restart(
    refused: str, restarted: Sequence[int], failure: str
) -> None:
    asked: list[str] = []
    restarting = RollingRestart(1.0)
    restarting.allow([_Node(number, asked, refused) for number in (1, 2)])
    restarting.begin()
    assert restarting.document()["state"] == "running"
    await restarting.ended()
    state = "failed" if failure else "done"
    assert restarting.document() == {"state": state, "restarted": restarted, "failure": failure}
    assert asked == list(ALL[: ALL.index(refused) + 1 if refused else None])


async def test_nodes_that_start_or_stop_are_not_restarted() -> None:
    restarting = RollingRestart(1.0)
    for _ in range(2):
        with pytest.raises(PeerRefused, match="they start for the first time, or stop"):
            restarting.begin()
        restarting.close()
    assert restarting.document() == {"state": "idle", "restarted": [], "failure": ""}


def _restart(nodes: SeveralNodes) -> str:
    """Run the command that restarts all nodes."""
    command = [sys.executable, "-P", "-m", "pqbroker", "cluster", "restart", "--json", "--http", nodes.http]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def _ask(nodes: SeveralNodes, method: str) -> tuple[int, Any]:
    request = urllib.request.Request(f"http://{nodes.http}/v1/restart", method=method)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        return refused.code, json.load(refused)


def _is_done(nodes: SeveralNodes) -> bool:
    try:
        status, found = _ask(nodes, "GET")
    except OSError:
        return False
    return status == 200 and found["state"] == "done"


def _cells(nodes: SeveralNodes) -> dict[int, int]:
    """Return the node of each cell that is open."""
    with urllib.request.urlopen(f"http://{nodes.http}/v1/cells", timeout=PATIENCE_S) as answer:
        return {cell["id"]: cell["node"] for cell in json.load(answer)["cells"] if cell["health"] == "good"}


def _leaders(admin: AdminClient) -> set[int]:
    found = admin.list_topics("t", timeout=PATIENCE_S).topics["t"]
    return {partition.leader for partition in found.partitions.values()}


def _read(address: str) -> dict[str, dict[int, list[int]]]:
    """Return the numbers of each key that readers of committed records find, by partition."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "unused", "enable.partition.eof": True})
    consumer.assign([TopicPartition("t", partition, 0) for partition in range(PARTITIONS)])
    found: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    ends = set[int]()
    while len(ends) < PARTITIONS:
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        partition = message.partition() or 0
        if message.error() is not None:
            ends.add(partition)
            continue
        found[(message.key() or b"").decode()][partition].append(int(message.value() or b""))
    consumer.close()
    return found


def _check_records(found: dict[str, dict[int, list[int]]], written: Counter[str]) -> None:
    """Check that what each producer knows to be written is there once and in order, and nothing else."""
    assert set(found) == set(PRODUCERS)
    for name, partitions in found.items():
        assert sum(map(len, partitions.values())) == written[name], name
        assert all(numbers == sorted(set(numbers)) for numbers in partitions.values()), name
