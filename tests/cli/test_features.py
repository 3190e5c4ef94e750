"""`pqbroker features`, at a broker of ours."""

from collections.abc import Iterator

import pytest

from pqbroker.testing import Broker, memory_broker
from tests.cli.shell import Shell


@pytest.fixture
def running() -> Iterator[Broker]:
    with memory_broker() as one:
        yield one


def test_levels_are_listed_raised_and_lowered(running: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    shell = Shell(running.kafka, capsys)

    def run(*words: str) -> tuple[int, str, str]:
        said = shell.raw("features", *words, "--http", running.http)
        return said.status, said.output, said.errors

    assert run("downgrade", "transaction.version=1", "--dry-run")[1] == "transaction.version can be set to 1\n"
    assert ["transaction.version", "0", "2", "2"] in [line.split() for line in run("list")[1].splitlines()]
    assert run("downgrade", "transaction.version=1")[1] == "transaction.version is at level 1\n"
    assert ["transaction.version", "0", "2", "1"] in [line.split() for line in run("list")[1].splitlines()]
    status, _, errors = run("upgrade", "transaction.version=0")
    assert status == 1
    assert "without setting the upgrade type" in errors
    assert run("upgrade", "transaction.version=two")[0] == 2
    assert "supports versions 0-2. `pqbroker features list` lists" in run("upgrade", "transaction.version=9")[2]
    assert '"level": 2' in run("upgrade", "transaction.version=2", "--json")[1]
