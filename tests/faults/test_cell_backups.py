"""A backup of a node with several cells, made while they are written to: every cell as it was at one moment."""

import threading
from pathlib import Path

from pqbroker.cli.commands.doctor import examine_directory
from pqbroker.doctor.findings import Weight
from pqbroker.fixture.http_calls import HttpCalls
from pqbroker.storage.disk.backups.restoring import restore
from pqbroker.testing import broker
from tests.support.drivers.driver import Message
from tests.support.drivers.librdkafka_driver import LibrdkafkaDriver
from tests.support.wire import Wire

TOPIC = "celled"
CONFIG = {"pq.bundle": "b", "pq.partitions.per.tablet": "1"}
PARTITIONS = 4
BEFORE = 8


def logs(address: str) -> list[list[bytes]]:
    with Wire(address) as wire:
        return [[batch for _, batch in wire.log(TOPIC, partition)] for partition in range(PARTITIONS)]


def test_a_backup_of_several_cells_and_pools_is_restored_and_read(tmp_path: Path) -> None:
    settings = {"pqbroker.pools": f"big={tmp_path / 'big'}", "pqbroker.storage.profile": "persqueue.2=big"}
    with broker(tmp_path / "data", settings) as node:
        calls = HttpCalls(lambda: node.http)
        calls.ask("POST", "/v1/bundles", {"name": "b"})
        for _ in range(2):
            calls.ask("POST", "/v1/cells", {"bundle": "b"})
        client = LibrdkafkaDriver(node.kafka)
        client.create_topic(TOPIC, partitions=PARTITIONS, config=CONFIG)
        for number in range(BEFORE):
            client.produce(TOPIC, [Message(bytes(100_000))], partition=number % PARTITIONS)
        before, stopping = logs(node.kafka), threading.Event()
        writing = threading.Thread(target=write, args=(node.kafka, calls, stopping))
        writing.start()
        made = Path(calls.ask("POST", "/v1/backups", {"name": "one"})["directory"])
        stopping.set()
        writing.join()
        after = logs(node.kafka)
    data, big = tmp_path / "new", tmp_path / "new-big"
    restore(made, data, {"big": big}, lambda size: None)
    for place, pools in ((made, {"big": made / "pools" / "big"}), (data, {"big": big})):
        findings = examine_directory(place, pools).found
        # A topic that was being made has its place in the scheme, and tablets that the next start makes.
        assert not [finding for finding in findings if finding.weight is not Weight.HARMLESS], findings
    restored = {"pqbroker.pools": f"big={big}", "pqbroker.storage.profile": "persqueue.2=big"}
    with broker(data, restored) as node:
        calls = HttpCalls(lambda: node.http)
        assert {cell["health"] for cell in calls.ask("GET", "/v1/cells")["cells"]} == {"good"}
        found = logs(node.kafka)
        for index in range(PARTITIONS):
            assert before[index] == found[index][: len(before[index])]
            assert found[index] == after[index][: len(found[index])]
        client = LibrdkafkaDriver(node.kafka)
        for topic in calls.ask("GET", "/v1/topics")["topics"]:
            client.produce(topic["name"], [Message(b"again")], partition=topic["partition_count"] - 1)


def write(address: str, calls: HttpCalls, stopping: threading.Event) -> None:
    """Records, and topics that come and go, until the backup is whole."""
    client = LibrdkafkaDriver(address)
    number = 0
    while not stopping.is_set():
        client.produce(TOPIC, [Message(b"%d" % number)], partition=number % PARTITIONS)
        calls.ask("POST", "/v1/topics", {"name": f"new{number}", "partitions": 2, "config": CONFIG})
        if number:
            calls.ask("DELETE", f"/v1/topics/new{number - 1}")
        number += 1
