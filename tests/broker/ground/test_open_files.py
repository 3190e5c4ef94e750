"""The limit of open files: raised at the start, and never used up by connections."""

import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector

import pytest
from confluent_kafka import KafkaError, Message, Producer

from pqbroker.broker.ground.open_files import connections_max, raise_limit
from pqbroker.conf.broker import BrokerSettings

LIMIT = 300


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The soft and the hard limit, as the system would tell them."""
    now = [1024, 4096]

    def set_to(_: int, limits: tuple[int, int]) -> None:
        now[:] = limits

    monkeypatch.setattr(resource, "getrlimit", lambda _: tuple(now))
    monkeypatch.setattr(resource, "setrlimit", set_to)
    return now


def test_the_limit_is_raised_as_far_as_it_goes(limits: list[int]) -> None:
    raise_limit()
    assert limits == [4096, 4096]


def test_without_a_hard_limit_a_number_is_asked_for(limits: list[int]) -> None:
    limits[1] = resource.RLIM_INFINITY
    raise_limit()
    assert limits == [1 << 20, resource.RLIM_INFINITY]


@pytest.mark.parametrize("soft", [resource.RLIM_INFINITY, 4096])
def test_a_limit_that_is_as_high_as_can_be_stays(limits: list[int], soft: int) -> None:
    limits[0] = soft
    raise_limit()
    assert limits == [soft, 4096]


def test_a_limit_that_cannot_be_raised_is_told(
    limits: list[int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: int, limits: tuple[int, int]) -> None:
        raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr(resource, "setrlimit", refuse)
    raise_limit()
    assert "stays at 1024" in caplog.text


@pytest.mark.parametrize(
    ("limit", "allowed"), [(resource.RLIM_INFINITY, 10_000), (20_000, 10_000), (4096, 2944), (1024, 512), (300, 150)]
)
def test_connections_leave_files_to_the_broker(limits: list[int], limit: int, allowed: int) -> None:
    limits[0] = limit
    assert connections_max(BrokerSettings()) == allowed


def test_what_answers_may_hold_open_is_kept_too(limits: list[int]) -> None:
    limits[0] = 4096
    assert connections_max(BrokerSettings(sent_files_max=500, http_connections_max=40)) == 2288
    assert connections_max(BrokerSettings(sent_files_max=1000)) == 2048
    assert connections_max(BrokerSettings(max_connections=7)) == 7


@pytest.fixture
def address(tmp_path: Path) -> Iterator[tuple[str, int]]:
    """Where a broker listens that may open few files."""
    serve = [sys.executable, "-m", "pqbroker", "serve", "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    command = ["sh", "-c", f'ulimit -n {LIMIT}; exec "$@"', "sh", *serve, "--data", str(tmp_path / "data")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ready = process.stdout.readline()
        host, _, port = ready.partition("kafka=")[2].split()[0].partition(":")
        yield host, int(port)
        process.terminate()
        assert process.wait(30) == 0


def test_more_clients_than_files_leave_the_broker_working(address: tuple[str, int]) -> None:
    refused: list[str] = []

    def told(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            refused.append(str(error))

    producer = Producer({"bootstrap.servers": f"{address[0]}:{address[1]}", "log_level": 0})
    producer.produce("t", b"connected to the leader", on_delivery=told)
    assert producer.flush(20) == 0
    with ExitStack() as stack, DefaultSelector() as selector:
        for _ in range(2 * LIMIT):
            client = stack.enter_context(socket.create_connection(address))
            selector.register(client, EVENT_READ)
        cut = 0
        while cut < 2 * LIMIT - LIMIT // 2:
            closed = selector.select(10)
            assert closed, f"only {cut} clients were cut"
            cut += len(closed)
            for key, _ in closed:
                selector.unregister(key.fileobj)
        for _ in range(20):
            producer.produce("t", bytes(100_000), on_delivery=told)
        assert producer.flush(20) == 0
    assert not refused
