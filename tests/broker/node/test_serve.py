"""The command line in a process of its own: its one line of output, its errors, its signals."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pqbroker.fixture import process as launching
from pqbroker.testing import broker
from tests.support.drivers.driver import Message
from tests.support.drivers.librdkafka_driver import LibrdkafkaDriver

ANY = ("--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0")
TIMEOUT_S = 30


def start(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "pqbroker", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | environment,
    )  # fmt: skip


def refusal(*arguments: str, **environment: str) -> tuple[int, str]:
    """Exit status and standard error of a command that does not serve. What it loads is loaded already where it can."""
    command = [sys.executable, "-P", "-m", "pqbroker", *arguments]
    with tempfile.TemporaryFile() as errors:
        refused = launching.launch(command, errors, os.environ | environment)
        status = refused.wait(TIMEOUT_S)
        assert refused.stdout is not None
        with refused.stdout as output:
            assert output.read() == b""
        errors.seek(0)
        return status, errors.read().decode()


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    process = start("serve", *ANY, "--data", str(tmp_path / "data"))
    assert process.stdout is not None
    assert process.stdout.readline().startswith("ready kafka=127.0.0.1:")
    yield process
    process.kill()
    process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_0_and_nothing_more_on_standard_output(
    serving: subprocess.Popen[str], number: signal.Signals
) -> None:
    serving.send_signal(number)
    output, errors = serving.communicate(timeout=TIMEOUT_S)
    assert serving.returncode == 0
    assert output == ""
    assert "Traceback" not in errors


def test_the_last_of_a_repeated_option_wins_and_the_ready_line_says_all(tmp_path: Path) -> None:
    process = start("serve", *ANY, "--kafka", "nonsense", "--kafka", "localhost:0", "--data", ":memory:")
    assert process.stdout is not None
    line = process.stdout.readline()
    process.terminate()
    process.communicate(timeout=TIMEOUT_S)
    word, kafka, http, data = line.split()
    assert word == "ready"
    assert kafka.startswith("kafka=localhost:")
    assert kafka != "kafka=localhost:0"
    assert http.startswith("http=127.0.0.1:")
    assert data == "data=:memory:"


FAILED, WRONG = 1, 2


def assert_one_line(expected: int, refused: tuple[int, str], *words: str) -> None:
    status, errors = refused
    assert status == expected, errors
    assert errors.startswith("pqbroker: ")
    assert errors.count("\n") == 1, errors
    assert all(word in errors for word in words), errors


def test_a_second_process_on_the_directory_is_refused(serving: subprocess.Popen[str], tmp_path: Path) -> None:
    refused = refusal("serve", *ANY, "--data", str(tmp_path / "data"), "--log-level", "error")
    assert_one_line(FAILED, refused, "data")


@pytest.mark.parametrize("option", ["--kafka", "--http"])
def test_a_port_in_use_is_refused(option: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert_one_line(FAILED, refusal("serve", *ANY, option, address, "--data", ":memory:"), address, "in use")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--kafka", "nonsense"), ("'nonsense'", "HOST:PORT")),
        (("--http", "127.0.0.1:99999"), ("99999", "HOST:PORT")),
        (("--config", "/no/such/file"), ("/no/such/file",)),
        (("--set", "no.such.name=1"), ("no.such.name",)),
        (("--set", "num.partitions=x"), ("num.partitions", "'x'")),
        (("--set", "advertised.listeners=nonsense"), ("advertised.listeners", "'nonsense'", "HOST:PORT")),
        (("--set", "pqbroker.pools=nonsense"), ("pqbroker.pools", "'nonsense'")),
        (("--set", "pqbroker.storage.profile=nonsense"), ("pqbroker.storage.profile", "'nonsense'")),
        (("--data", ""), ("--data is empty",)),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_line(arguments: tuple[str, ...], words: tuple[str, ...]) -> None:
    data = () if "--data" in arguments else ("--data", ":memory:")
    assert_one_line(WRONG, refusal("serve", *ANY, *data, *arguments), *words)


def test_a_data_directory_that_cannot_be_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for place in (str(tmp_path / "file"), "/proc/no/such/place"):
        assert_one_line(FAILED, refusal("serve", *ANY, "--data", place), place)


def test_a_bad_value_in_a_file_or_the_environment_names_its_place(tmp_path: Path) -> None:
    config = tmp_path / "broker.properties"
    config.write_text("node.id=1\nnum.partitions=0\n")
    assert_one_line(WRONG, refusal("serve", "--config", str(config)), f"{config}:2", "num.partitions")
    assert_one_line(WRONG, refusal("serve", PQBROKER_NUM_PARTITIONS="0"), "PQBROKER_NUM_PARTITIONS")


@pytest.mark.parametrize("arguments", [("serve", "--nonsense"), ("serve", "--log-level", "loud"), ("serve", "more")])
def test_wrong_usage_exits_with_2(arguments: tuple[str, ...]) -> None:
    status, errors = refusal(*arguments)
    assert status == 2
    assert "\nusage: pqbroker serve" in errors


def test_a_weaker_durability_is_said_at_start(tmp_path: Path) -> None:
    """So is a file that a registry lacks."""
    settings = ("pqbroker.durability=none", "pqbroker.registry.config.files=main=/nowhere/of-main")
    set_ = [text for each in settings for text in ("--set", each)]
    process = start("serve", *ANY, "--data", str(tmp_path / "data"), *set_)
    assert process.stdout is not None
    process.stdout.readline()
    process.terminate()
    _, errors = process.communicate(timeout=TIMEOUT_S)
    assert "durability=none" in errors
    assert "registry main: cannot read /nowhere/of-main: No such file or directory" in errors


def test_a_second_interrupt_ends_it_at_once(tmp_path: Path) -> None:
    """A client that has sent half a request and a held answer would keep the drain waiting."""
    process = start("serve", *ANY, "--data", ":memory:", "--set", "pqbroker.drain.timeout.ms=60000")
    assert process.stdout is not None
    port = int(process.stdout.readline().split()[1].rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)) as client:
        _never_take_the_answers(client)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        while "stopping" not in process.stderr.readline():
            pass
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130


def _never_take_the_answers(client: socket.socket) -> None:
    """Ask for more than the sockets' buffers hold, and read nothing."""
    from pqbroker.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
    from tests.broker.wire import request_frame

    resources = [DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)] * 100
    request = request_frame(DescribeConfigsRequest(resources=resources, include_documentation=True), 4)
    client.settimeout(5)
    for _ in range(20):
        client.sendall(request)
    client.recv(1)


def test_what_is_small_needs_no_segment_and_no_sync_of_one(tmp_path: Path) -> None:
    with broker(tmp_path / "data") as node, LibrdkafkaDriver(node.kafka) as client:
        client.create_topic("sizes")
        client.produce("sizes", [Message(bytes(5_000))], partition=0)
        assert list(tmp_path.rglob("*.segment")) == []
        client.produce("sizes", [Message(bytes(20_000))], partition=0)
        assert len(list(tmp_path.rglob("*.segment"))) == 1
