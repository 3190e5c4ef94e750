"""A broker of several node processes under its parent: how clients reach it, and how its processes end and begin."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Self

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from pqbroker.broker.ground.listeners import Address, Listener, parse_listeners
from pqbroker.broker.node.first_user import FirstUser
from pqbroker.broker.node.orders import Orders
from pqbroker.broker.node.parent import count_nodes
from pqbroker.broker.node.serve import WrongSettings
from pqbroker.cli.kafka.cluster import Cluster
from pqbroker.cli.kafka.configs import BROKER, alter_configs, describe_configs
from pqbroker.cli.refusals import CommandError
from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.peers import NODES_MAX
from pqbroker.protocol.codec import decoder, encoder
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from pqbroker.storage.engine_kinds import MEMORY
from tests.support.several_nodes import SeveralNodes, is_running, several_nodes
from tests.support.waiting import wait_until
from tests.support.wire import LATEST, Wire

PATIENCE_S = 60.0
FOR_TESTS = BrokerSettings(cells_max=2 * NODES_MAX)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeveralNodes]:
    settings = {
        "pqbroker.node.silence.ms": "10000",
        "pqbroker.node.return.ms": "1000",
        "log.retention.check.interval.ms": "200",
    }
    with several_nodes(tmp_path_factory.mktemp("nodes"), settings) as running:
        yield running


def test_clients_learn_of_each_node_by_its_own_port_wherever_they_begin(nodes: SeveralNodes) -> None:
    host, _, port = nodes.kafka.rpartition(":")
    for begun_at in range(3):
        found = AdminClient({"bootstrap.servers": f"{host}:{int(port) + begun_at}"}).list_topics(timeout=PATIENCE_S)
        known = {node.id: f"{node.host}:{node.port}" for node in found.brokers.values()}
        assert known == {1: f"{host}:{int(port) + 1}", 2: f"{host}:{int(port) + 2}"}


def test_what_a_node_does_not_serve_itself_another_one_answers(nodes: SeveralNodes) -> None:
    host, _, port = nodes.kafka.rpartition(":")
    at_second: dict[str, str | int | float | bool] = {"bootstrap.servers": f"{host}:{int(port) + 2}"}
    admin = AdminClient(at_second)
    (created,) = admin.create_topics([NewTopic("by-second", 3)]).values()
    created.result(PATIENCE_S)
    producer, refused = Producer({**at_second, "enable.idempotence": True}), list[object]()
    for number in range(30):
        producer.produce(
            "by-second", str(number), partition=number % 3, on_delivery=lambda error, _: refused.append(error)
        )
    assert producer.flush(PATIENCE_S) == 0
    assert set(refused) == {None}
    assert _read(at_second, "by-second", 3, 30) == sorted(range(30))


def test_each_node_names_the_leaders_while_the_first_one_says_nothing(nodes: SeveralNodes) -> None:
    host, _, port = nodes.kafka.rpartition(":")
    admin = AdminClient({"bootstrap.servers": nodes.kafka})
    (created,) = admin.create_topics([NewTopic("known", 4, config={"pq.partitions.per.tablet": "1"})]).values()
    created.result(PATIENCE_S)
    at_second = AdminClient({"bootstrap.servers": f"{host}:{int(port) + 2}"})
    wait_until(lambda: _leaders(admin, "known") == {1, 2}, "two nodes lead partitions", PATIENCE_S)
    wait_until(lambda: _leaders(at_second, "known") == {1, 2}, "the other node says so", PATIENCE_S)
    leaders = {index: one.leader for index, one in admin.list_topics("known").topics["known"].partitions.items()}
    second = int(port) + 2
    wait_until(lambda: _ask_for_leaders(host, second, "known") == leaders, "the second names each", PATIENCE_S)
    first = nodes.pids()[1]
    os.kill(first, signal.SIGSTOP)
    try:
        found = _ask_for_leaders(host, second, "known")
    finally:
        os.kill(first, signal.SIGCONT)
    assert found == leaders
    assert at_second.list_topics("unknown", timeout=PATIENCE_S).topics["unknown"].partitions  # the first one makes it


def test_a_node_names_no_offsets_of_partitions_that_another_one_runs(nodes: SeveralNodes) -> None:
    host, _, port = nodes.kafka.rpartition(":")
    client, admin = _client_of_spread(nodes, "offsets")
    partitions = admin.list_topics("offsets").topics["offsets"].partitions
    producer = Producer(client)
    for index in partitions:
        producer.produce("offsets", b"x", partition=index)
    assert producer.flush(PATIENCE_S) == 0
    for node in (1, 2):
        with Wire(f"{host}:{int(port) + node}") as wire:
            found = {index: wire.offset("offsets", index, LATEST) for index in partitions}
        right = (0, 1), (int(ErrorCode.NOT_LEADER_OR_FOLLOWER), -1)
        assert found == {index: right[partitions[index].leader != node] for index in partitions}


def test_settings_that_are_changed_hold_at_each_node_or_at_the_named_one(nodes: SeveralNodes) -> None:
    with Cluster(nodes.kafka) as cluster:
        assert set(cluster.nodes()) == {1, 2}
        alter_configs(cluster, BROKER, "", {"log.retention.ms": "172800000"}, 2)
        alter_configs(cluster, BROKER, "2", {"message.max.bytes": "2000000"}, 2)

        def found(node: int) -> dict[str, str | None]:
            names = ("log.retention.ms", "message.max.bytes")
            known = describe_configs(cluster, BROKER, str(node), None, node)
            return {one.name: one.value for one in known if one.name in names}

        of_second = {"log.retention.ms": "172800000", "message.max.bytes": "2000000"}
        wait_until(lambda: found(2) == of_second, "the second node has both", PATIENCE_S)
        assert found(1) == {"log.retention.ms": "172800000", "message.max.bytes": "1048588"}
        alter_configs(cluster, BROKER, "", {"log.retention.ms": None}, 1)
        with pytest.raises(CommandError, match="Unexpected broker id"):
            alter_configs(cluster, BROKER, "3", {"log.retention.ms": "1000"}, 1)


def test_metrics_are_those_of_all_nodes_by_number(nodes: SeveralNodes) -> None:
    with urllib.request.urlopen(f"http://{nodes.http}/metrics", timeout=PATIENCE_S) as answer:
        lines = answer.read().decode().splitlines()
    for node in (1, 2):
        named = [line for line in lines if line.startswith("pqbroker_durability{") and f'node="{node}"' in line]
        assert len(named) == 1
    assert not [line for line in lines if line and not line.startswith("#") and 'node="' not in line]


def test_a_second_parent_on_the_directory_is_refused(nodes: SeveralNodes) -> None:
    second = subprocess.run(nodes.command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert second.returncode == 1
    assert "is served by another `pqbroker serve --nodes`" in second.stderr


@pytest.mark.parametrize("numbers", [(2,), (1,), (1, 2)])
def test_what_killed_nodes_acknowledged_is_read_once_and_in_order(
    nodes: SeveralNodes, numbers: tuple[int, ...]
) -> None:
    topic = f"spread-{len(numbers)}-{numbers[0]}"
    client, admin = _client_of_spread(nodes, topic)
    producer, refused = Producer({**client, "enable.idempotence": True, "linger.ms": 2}), list[object]()
    for number in range(2000):
        producer.produce(
            topic, str(number), partition=number % 4, on_delivery=lambda error, _: refused.append(error)
        )
        producer.poll(0)
        if number == 1000:
            wait_until(lambda: producer.poll(0.05) is None or refused, "an acknowledgement", PATIENCE_S)
            killed = {node: nodes.pids()[node] for node in numbers}
            for pid in killed.values():
                os.kill(pid, signal.SIGKILL)
    assert producer.flush(PATIENCE_S) == 0
    assert set(refused) == {None}
    assert not any(map(is_running, killed.values()))
    assert _read(client, topic, 4, 2000) == list(range(2000))
    wait_until(lambda: _leaders(admin, topic) == {1, 2}, "two nodes lead partitions again", PATIENCE_S)
    assert all(nodes.pids()[node] != pid for node, pid in killed.items())
    assert f"retention of {topic}" not in nodes.log  # each node looks after its own partitions


def test_the_cells_of_a_node_that_is_gone_are_served_by_another_one_until_it_is_back(nodes: SeveralNodes) -> None:
    client, admin = _client_of_spread(nodes, "taken-over")
    with _Load(client, "taken-over") as load:
        nodes.parent.send_signal(signal.SIGSTOP)  # so that nobody starts it again
        try:
            os.kill(nodes.pids()[2], signal.SIGKILL)
            load.until_acknowledged_everywhere()
            assert _leaders(admin, "taken-over") == {1}
        finally:
            nodes.parent.send_signal(signal.SIGCONT)
        wait_until(lambda: _leaders(admin, "taken-over") == {1, 2}, "the node has its cells again", PATIENCE_S)
        load.until_acknowledged_everywhere()
    assert _read(client, "taken-over", 4, load.count) == list(range(load.count))


def test_an_owner_of_the_past_acknowledges_nothing_more(nodes: SeveralNodes) -> None:
    client, admin = _client_of_spread(nodes, "past")
    owner, cells = nodes.pids()[2], _cells_of(nodes, 2)
    with _Load(client, "past") as load:
        os.kill(owner, signal.SIGSTOP)
        try:
            load.produce(400)  # half of it waits at the node that is stopped
            for cell in cells:
                (nodes.directory / "cells" / str(cell) / "lock").unlink()  # a stopped process would keep it
                assert _run_cli(nodes, "cell", "move", str(cell), "--node", "1").startswith(f"cell {cell} is at node 1")
        finally:
            os.kill(owner, signal.SIGCONT)
        load.until_acknowledged_everywhere()
        assert is_running(owner)
        assert _leaders(admin, "past") == {1}
    assert _read(client, "past", 4, load.count) == list(range(load.count))
    for cell in cells:
        _run_cli(nodes, "cell", "move", str(cell), "--node", "2")


def test_a_cell_moves_between_nodes_while_its_clients_see_no_error(nodes: SeveralNodes) -> None:
    client, admin = _client_of_spread(nodes, "moving")
    (cell, *_) = _cells_of(nodes, 2)
    with _Load(client, "moving") as load:
        for node in (1, 2):
            shown = _run_cli(nodes, "cell", "move", str(cell), "--node", str(node))
            assert shown == f"cell {cell} is at node {node}, good\n"
            load.until_acknowledged_everywhere()
    assert _read(client, "moving", 4, load.count) == list(range(load.count))
    wait_until(lambda: _leaders(admin, "moving") == {1, 2}, "two nodes lead partitions", PATIENCE_S)


def test_all_nodes_are_restarted_one_by_one_while_clients_see_no_error(nodes: SeveralNodes) -> None:
    client, admin = _client_of_spread(nodes, "restarted")
    before = nodes.pids()
    with _Load(client, "restarted") as load:
        nodes.parent.send_signal(signal.SIGHUP)

        def are_restarted() -> bool:
            load.produce(4)
            return "all nodes were restarted" in nodes.log

        wait_until(are_restarted, "the restart", 2 * PATIENCE_S)
        load.until_acknowledged_everywhere()
    assert _read(client, "restarted", 4, load.count) == list(range(load.count))
    assert not any(map(is_running, before.values()))
    wait_until(lambda: _leaders(admin, "restarted") == {1, 2}, "both nodes have their cells", PATIENCE_S)


def test_a_topic_that_is_made_again_has_nothing_of_the_one_before(nodes: SeveralNodes) -> None:
    client: dict[str, str | int | float | bool] = {"bootstrap.servers": nodes.kafka, "log_level": 0}
    admin = AdminClient(client)
    for life in range(2):
        (created,) = admin.create_topics([NewTopic("again", 4, config={"pq.partitions.per.tablet": "1"})]).values()
        created.result(PATIENCE_S)
        producer = Producer(client)
        for number in range(4):
            producer.produce("again", str(10 * life + number), partition=number)
        assert producer.flush(PATIENCE_S) == 0
        assert _read(client, "again", 4, 4) == list(range(10 * life, 10 * life + 4))
        (deleted,) = admin.delete_topics(["again"]).values()
        deleted.result(PATIENCE_S)


def test_a_node_that_does_not_answer_is_killed_and_started_again(nodes: SeveralNodes) -> None:
    stopped = nodes.pids()[2]
    os.kill(stopped, signal.SIGSTOP)
    wait_until(lambda: not is_running(stopped) and nodes.pids()[2] != stopped, "another process", PATIENCE_S)
    assert "node 2 is killed: nothing came for" in nodes.log


def test_a_parent_that_is_killed_takes_its_nodes_with_it(nodes: SeveralNodes) -> None:
    """The last test of this broker; while nodes still stop, no other parent starts."""
    pids = nodes.pids().values()
    os.kill(next(iter(pids)), signal.SIGSTOP)
    nodes.parent.kill()
    second = subprocess.run(nodes.command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert "or its nodes still stop" in second.stderr
    os.kill(next(iter(pids)), signal.SIGCONT)
    wait_until(lambda: not any(map(is_running, pids)), "all nodes are gone", PATIENCE_S)
    assert "the link to the parent process closed" in nodes.log
    nodes.start()
    assert nodes.stop() == 0
    assert not any(map(is_running, nodes.pids().values()))


def test_a_request_to_restart_neither_ends_a_start_nor_comes_beside_another(tmp_path: Path) -> None:
    several = SeveralNodes(tmp_path / "data", 3, {}, tmp_path / "log")
    starting = threading.Thread(target=several.start)
    starting.start()
    try:
        wait_until(lambda: (tmp_path / "log").exists() and 1 in several.pids(), "the first node", PATIENCE_S)
        several.parent.send_signal(signal.SIGHUP)
        starting.join()
        assert several.kafka
        assert "the nodes are not restarted: they start for the first time, or stop" in several.log
        dead = several.pids()
        os.kill(dead[2], signal.SIGKILL)
        several.parent.send_signal(signal.SIGHUP)
        wait_until(lambda: "node 3 is restarted" in several.log, "the restart begins", PATIENCE_S)
        several.parent.send_signal(signal.SIGHUP)
        wait_until(lambda: "all nodes were restarted" in several.log, "the restart", 2 * PATIENCE_S)
        assert "the nodes are being restarted already" in several.log
        assert not any(map(is_running, dead.values()))
        assert several.stop() == 0
    finally:
        several.end()


def test_a_start_that_fails_ends_all_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "cell").write_text("no cell")
    several = SeveralNodes(tmp_path, 2, {}, tmp_path / "log")
    failed = subprocess.run(several.command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert failed.returncode == 1
    assert "pqbroker: node 1 ended with status 1 before it served; its lines above say why" in failed.stderr


@pytest.mark.parametrize(("text", "count"), [("1", 1), ("2", 2), (str(NODES_MAX), NODES_MAX)])
def test_so_many_nodes_are_taken(text: str, count: int) -> None:
    assert count_nodes(text, FOR_TESTS, "data") == count


def test_auto_is_a_node_for_each_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert count_nodes("auto", FOR_TESTS, "data") == 3
    monkeypatch.setattr(os, "cpu_count", lambda: 1000)
    assert count_nodes("auto", FOR_TESTS, "data") == NODES_MAX
    assert count_nodes("auto", BrokerSettings(), "data") == 16  # as many as cells, by default
    assert count_nodes("auto", FOR_TESTS, MEMORY) == 1


@pytest.mark.parametrize(
    ("text", "data", "settings", "cause"),
    [
        ("0", "data", FOR_TESTS, "--nodes is 0; a broker has 1 to 32"),
        (str(NODES_MAX + 1), "data", FOR_TESTS, "--nodes is 33; a broker has 1 to 32"),
        ("-1", "data", FOR_TESTS, "give a number from 1 to 32, or auto"),
        ("two", "data", FOR_TESTS, "give a number from 1 to 32, or auto"),
        ("", "data", FOR_TESTS, "give a number from 1 to 32, or auto"),
        ("9" * 5000, "data", FOR_TESTS, "give a number from 1 to 32, or auto"),
        ("2", MEMORY, FOR_TESTS, "nodes share no memory: give --data a directory"),
        ("17", "data", BrokerSettings(), "needs as many data cells, and pqbroker.cells.max is 16: raise it"),
    ],
)
def test_other_numbers_of_nodes_are_refused(text: str, data: str, settings: BrokerSettings, cause: str) -> None:
    with pytest.raises(WrongSettings, match=cause):
        count_nodes(text, settings, data)


def test_orders_reach_a_node_as_they_were_given() -> None:
    listeners = parse_listeners("IN://127.0.0.1:9092,SSL://[::1]:9192")
    http = Listener("HTTP", Address("127.0.0.1", 8092))
    given = Orders(
        0, 3, {"node.id": "7"}, listeners, http, "/data", "debug", "/tmp/peers", bytes(range(32)), FirstUser("a", "b")
    )
    assert Orders.decode(given.encode()) == given
    second = given.for_node(2)
    assert second.http is None
    assert [listener.node for listener in second.kafka] == [2, 2]
    assert replace(second, http=http, kafka=listeners, node=0) == given
    assert "b'" not in repr(given)
    assert given.for_node(1).http == http


def test_a_node_without_its_parents_secret_ends() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        ours.close()
        command = [sys.executable, "-P", "-m", "pqbroker.broker.node.child", str(theirs.fileno())]
        ended = subprocess.run(command, pass_fds=[theirs.fileno()], timeout=PATIENCE_S, check=False)
    assert ended.returncode == 1


class _Load:
    """A producer that writes numbers to four partitions in turn; each has to be acknowledged."""

    def __init__(self, client: Mapping[str, str | int | float | bool], topic: str) -> None:
        self._producer = Producer({**client, "enable.idempotence": True, "linger.ms": 2})
        self._topic = topic
        self._refused: list[object] = []
        self._acknowledged = [0] * 4
        self.count = 0

    def __enter__(self) -> Self:
        self.until_acknowledged_everywhere()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._producer.flush(PATIENCE_S) == 0
        assert self._refused == []

    def produce(self, count: int) -> None:
        for _ in range(count):
            self._producer.produce(
                self._topic, str(self.count), partition=self.count % 4, on_delivery=self._take
            )
            self.count += 1
        self._producer.poll(0.05)

    def until_acknowledged_everywhere(self) -> None:
        """Write to all partitions; return when each has acknowledged what was written from now on."""
        wanted = self.count // 4 + 1

        def are_acknowledged() -> bool:
            self.produce(4)
            return min(self._acknowledged) >= wanted

        wait_until(are_acknowledged, "acknowledgements of all partitions", PATIENCE_S)

    def _take(self, error: object, message: Message) -> None:
        if error is not None:
            self._refused.append(error)
        else:
            self._acknowledged[message.partition() or 0] += 1


def _client_of_spread(
    nodes: SeveralNodes, topic: str
) -> tuple[dict[str, str | int | float | bool], AdminClient]:
    """Make a topic of four partitions whose leaders are both nodes, once both have cells that are open."""
    wait_until(lambda: _have_cells(nodes), "each node has open cells", PATIENCE_S)
    client: dict[str, str | int | float | bool] = {"bootstrap.servers": nodes.kafka, "log_level": 0}
    admin = AdminClient(client)
    (created,) = admin.create_topics([NewTopic(topic, 4, config={"pq.partitions.per.tablet": "1"})]).values()
    created.result(PATIENCE_S)
    wait_until(lambda: _leaders(admin, topic) == {1, 2}, "two nodes lead partitions", PATIENCE_S)
    return client, admin


def _ask_for_leaders(host: str, port: int, topic: str) -> dict[int, int]:
    """Ask the node at this port, and no other one, for the leaders of a topic's partitions."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    body = b"\0\3\0\7\0\0\0\1\xff\xff" + b"".join(encoder(MetadataRequest, 7)(request))
    with socket.create_connection((host, port), PATIENCE_S) as connection:
        connection.sendall(len(body).to_bytes(4) + body)
        size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL))
        answer = connection.recv(size, socket.MSG_WAITALL)
    response = decoder(MetadataResponse, 7)(memoryview(answer)[4:])
    return {partition.partition_index: partition.leader_id for partition in response.topics[0].partitions}


def _run_cli(nodes: SeveralNodes, *arguments: str) -> str:
    command = [sys.executable, "-P", "-m", "pqbroker", *arguments, "--http", nodes.http]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def _have_cells(nodes: SeveralNodes) -> bool:
    every = map(json.loads, _run_cli(nodes, "cell", "list", "--json").splitlines())
    cells = [cell for cell in every if cell["id"]]
    return {cell["node"] for cell in cells} == {1, 2} and {cell["health"] for cell in cells} == {"good"}


def _cells_of(nodes: SeveralNodes, node: int) -> list[int]:
    cells = map(json.loads, _run_cli(nodes, "cell", "list", "--json").splitlines())
    return [cell["id"] for cell in cells if cell["node"] == node]


def _leaders(admin: AdminClient, topic: str) -> set[int]:
    found = admin.list_topics(topic, timeout=PATIENCE_S).topics[topic]
    return {partition.leader for partition in found.partitions.values()}


def _read(client: Mapping[str, str | int | float | bool], topic: str, partitions: int, count: int) -> list[int]:
    """Return the numbers that a topic has, sorted; each partition has its own in order."""
    consumer = Consumer({**client, "group.id": "unused"})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    found, last = list[int](), dict.fromkeys(range(partitions), -1)
    while len(found) < count:
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        assert message.error() is None
        found.append(int(message.value() or b""))
        assert found[-1] > last[message.partition() or 0]
        last[message.partition() or 0] = found[-1]
    consumer.close()
    return sorted(found)
