"""kill -9 of a node with several cells: what was acknowledged is there, and no cell or topic is half made."""

import random
from http.client import HTTPConnection
from json import dumps
from pathlib import Path

import pytest

from pqbroker.cli.commands.doctor import examine_directory
from pqbroker.fixture.http_calls import HttpCalls
from pqbroker.testing import broker
from tests.support.drivers.driver import Message
from tests.support.drivers.librdkafka_driver import LibrdkafkaDriver
from tests.support.wire import Wire

pytestmark = pytest.mark.spec("D.5")

TOPIC = "celled"
CONFIG = {"pq.bundle": "b", "pq.partitions.per.tablet": "1"}
ROUNDS = 3
LOOKS = (0, 5, 20, 60, None)
"""Requests between the beginning of a move and the kill, each some milliseconds; None: the move has ended."""


def test_what_several_cells_acknowledged_survives_kills_in_the_middle_of_changes(tmp_path: Path) -> None:
    data, big = tmp_path / "data", tmp_path / "big"
    settings = {"pqbroker.pools": f"big={big}", "pqbroker.storage.profile": "persqueue.2=big"}
    source = random.Random(5)
    with broker(data, settings) as node:
        calls = HttpCalls(lambda: node.http)
        calls.ask("POST", "/v1/bundles", {"name": "b"})
        for _ in range(2):
            calls.ask("POST", "/v1/cells", {"bundle": "b"})
        client = LibrdkafkaDriver(node.kafka)
        client.create_topic(TOPIC, partitions=2, config=CONFIG)
        kept: list[list[bytes]] = [[], []]
        for number in range(ROUNDS):
            for partition in range(2):
                client.produce(TOPIC, [Message(source.randbytes(50_000))], partition=partition)
            with Wire(node.kafka) as wire:
                kept = [[batch for _, batch in wire.log(TOPIC, partition)] for partition in range(2)]
            asked = [
                ask(node.http, "/v1/cells", {"bundle": "b"}),
                ask(node.http, "/v1/topics", {"name": f"new{number}", "partitions": 3, "config": CONFIG}),
            ]
            node.kill()
            for connection in asked:
                connection.close()
            node.start()
            client = LibrdkafkaDriver(node.kafka)
            assert {cell["health"] for cell in calls.ask("GET", "/v1/cells")["cells"]} == {"good"}
            with Wire(node.kafka) as wire:
                assert [[batch for _, batch in wire.log(TOPIC, partition)] for partition in range(2)] == kept
            for topic in calls.ask("GET", "/v1/topics")["topics"]:
                client.produce(topic["name"], [Message(b"again")], partition=topic["partition_count"] - 1)
        assert [len(batches) for batches in kept] == [ROUNDS, 2 * ROUNDS - 1]
        assert any((big / "cells" / "1").glob("*.segment"))


@pytest.mark.spec("D.5")
def test_a_tablet_that_moves_is_whole_in_one_cell_whenever_the_node_is_killed(tmp_path: Path) -> None:
    with broker(tmp_path / "data") as node:
        calls = HttpCalls(lambda: node.http)
        calls.ask("POST", "/v1/cells", {"bundle": "default"})
        schema = [{"name": "id", "type": "int64"}, {"name": "$timestamp", "type": "uint64"}]
        calls.ask("POST", "/v1/tables", {"path": "//moved", "schema": schema})
        client = LibrdkafkaDriver(node.kafka)
        text = b'{"id": 1, "more": "%s"}' % bytes(200_000).hex().encode()
        for _ in range(20):
            client.produce("moved", [Message(text)])
        home, homes = 0, set()
        for number, looks in enumerate(LOOKS):
            with Wire(node.kafka) as wire:
                kept = [batch for _, batch in wire.log("moved", 0)]
            connection = ask(node.http, "/v1/tables/moved/mount", {"cell_id": str(1 - home)})
            if looks is None:
                connection.getresponse().read()
            for _ in range(looks or 0):
                calls.ask("GET", "/v1/cells")
            node.kill()
            connection.close()
            node.start()
            with Wire(node.kafka) as wire:
                assert [batch for _, batch in wire.log("moved", 0)] == kept
            rows = calls.ask("GET", f"/v1/tables/moved/rows?first_row_index={19 + number}")["rows"]
            assert [row["$row_index"] for row in rows] == [19 + number]
            home = int(calls.ask("GET", "/v1/tables/moved/tablets")["tablets"][0]["home_cell_id"])
            homes.add(home)
            calls.ask("POST", "/v1/tables/moved/rows", {"rows": [{"id": 2}]})
        assert homes == {0, 1}
        node.stop()
        assert examine_directory(tmp_path / "data", {}).found == []


def ask(address: str, path: str, body: object) -> HTTPConnection:
    """Send a request and do not wait for its answer."""
    connection = HTTPConnection(address)
    connection.request("POST", path, dumps(body), {"Content-Type": "application/json"})
    return connection
