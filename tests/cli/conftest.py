"""Two brokers, ours and Apache Kafka: the commands must do the same with both."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pqbroker.testing import broker
from tests.cli.shell import Shell
from tests.support.kafka.broker import ApacheKafka

_numbers = itertools.count(1)


@pytest.fixture(scope="package")
def ours() -> Iterator[str]:
    """HOST:PORT of a broker of ours."""
    with broker(settings={"group.initial.rebalance.delay.ms": "0"}) as running:
        yield running.kafka


@pytest.fixture(scope="package")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """HOST:PORT of Apache Kafka."""
    with ApacheKafka(tmp_path_factory.mktemp("apache"), heap="512m") as running:
        yield running.kafka


@pytest.fixture(params=["ours", "apache"])
def kafka(request: pytest.FixtureRequest) -> str:
    """Each broker in turn."""
    address: str = request.getfixturevalue(request.param)
    return address


@pytest.fixture
def shell(kafka: str, capsys: pytest.CaptureFixture[str]) -> Shell:
    """Commands at each broker."""
    return Shell(kafka, capsys)


@pytest.fixture
def our_shell(ours: str, capsys: pytest.CaptureFixture[str]) -> Shell:
    """Commands at our broker, for what does not depend on it."""
    return Shell(ours, capsys)


@pytest.fixture
def fresh_name() -> Callable[[], str]:
    """Names that no topic or group has yet."""
    return lambda: f"cli-{next(_numbers)}-name"


@pytest.fixture
def topic(shell: Shell, fresh_name: Callable[[], str]) -> str:
    """A new topic of two partitions."""
    name = fresh_name()
    assert shell("topic", "create", name, "--partitions", "2").status == 0
    return name


@pytest.fixture
def filled(shell: Shell, topic: str, tmp_path: Path) -> str:
    """A topic with a, b, c, d in partition 0 and e in partition 1."""
    for partition, lines in enumerate(["a\nb\nc\nd\n", "e\n"]):
        file = tmp_path / f"lines-{partition}"
        file.write_text(lines)
        written = shell("produce", topic, "--file", str(file), "--partition", str(partition))
        assert written.status == 0, written.errors
    return topic
