"""The broker for tests is a real one: it starts, dies, comes back, and tells what went wrong."""

import asyncio
import json
import os
import signal
import socket
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from pqbroker.testing import MEMORY, Broker, BrokerFailedError, broker

pytestmark = pytest.mark.timeout(60)


def _write(address: str, value: bytes) -> int:
    async def write() -> int:
        async with AIOKafkaProducer(bootstrap_servers=address) as producer:
            return int((await producer.send_and_wait("topic", value, partition=0)).offset)

    return asyncio.run(write())


def _read(address: str, count: int) -> list[bytes]:
    async def read() -> list[bytes]:
        consumer = AIOKafkaConsumer(bootstrap_servers=address, auto_offset_reset="earliest")
        await consumer.start()
        consumer.assign([TopicPartition("topic", 0)])
        values = [(await consumer.getone()).value for _ in range(count)]
        await consumer.stop()
        return values

    return asyncio.run(read())


def _health(running: Broker) -> dict[str, object]:
    with urllib.request.urlopen(f"http://{running.http}/health") as answer:
        health: dict[str, object] = json.load(answer)
        return health


def test_a_broker_serves_until_the_block_ends() -> None:
    with broker() as running:
        assert running.running
        os.kill(running.pid, 0)
        assert _write(running.kafka, b"one") == 0
        assert _health(running)["status"] == "ok"
    assert not running.running
    host, _, port = running.kafka.partition(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=5).close()


def test_what_was_acknowledged_is_there_after_kill_9_at_the_same_address() -> None:
    with broker() as running:
        address = running.kafka
        assert _write(address, b"one") == 0
        running.kill()
        assert not running.running
        running.start()
        assert running.kafka == address
        assert _write(address, b"two") == 1
        assert _read(address, 2) == [b"one", b"two"]


def test_a_given_directory_is_kept_and_can_be_opened_again(tmp_path: Path) -> None:
    with broker(tmp_path / "data") as running:
        _write(running.kafka, b"one")
        running.restart()
        assert _read(running.kafka, 1) == [b"one"]
    with broker(tmp_path / "data") as running:
        assert _read(running.kafka, 1) == [b"one"]


def test_a_broker_in_memory_needs_no_directory() -> None:
    with broker(MEMORY) as running:
        assert _write(running.kafka, b"one") == 0


def test_settings_are_those_given_and_not_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PQBROKER_NODE_ID", "not a number")
    with broker(settings={"node.id": "7"}) as running:
        assert _health(running)["node"] == 7


def test_a_broker_that_does_not_start_says_why() -> None:
    why = r"exited with 2 before it was ready; .*\n.*unknown setting no.such"
    with pytest.raises(BrokerFailedError, match=why), broker(settings={"no.such": "1"}):
        pass


def test_a_second_broker_on_a_directory_is_refused(tmp_path: Path) -> None:
    why = "exited with 1 before it was ready"
    with broker(tmp_path), pytest.raises(BrokerFailedError, match=why), broker(tmp_path):
        pass


def test_a_broker_that_was_killed_on_purpose_is_no_failure() -> None:
    with broker() as running:
        running.kill()


def test_a_broker_that_died_on_its_own_is_a_failure() -> None:
    with pytest.raises(BrokerFailedError, match="exited with -9"), broker() as running:
        os.kill(running.pid, signal.SIGKILL)


def test_the_log_spans_restarts() -> None:
    with broker(log_level="info") as running:
        before = running.log
        running.restart()
        assert running.log.startswith(before)
        assert "stopped" in running.log


class TestFixture:
    """The fixture of the pytest plugin."""

    @pytest.fixture
    def pqbroker_settings(self) -> Mapping[str, str]:
        return {"node.id": "8"}

    def test_gives_a_broker_with_the_settings_of_the_test(self, pqbroker_broker: Broker) -> None:
        assert _health(pqbroker_broker)["node"] == 8
