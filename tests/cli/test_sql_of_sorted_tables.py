"""`pqbroker sql` over a sorted table of a real broker: at a timestamp, and explained."""

from collections.abc import Callable, Iterator

import pytest

from pqbroker.testing import Broker, memory_broker
from tests.cli.shell import Said
from tests.cli.test_table import TableShell


@pytest.fixture(scope="module")
def running() -> Iterator[Broker]:
    with memory_broker() as one:
        yield one


@pytest.fixture
def shell(running: Broker, capsys: pytest.CaptureFixture[str]) -> TableShell:
    return TableShell(running, capsys)


def test_a_timestamp_of_a_write_is_read_at(
    running: Broker, shell: TableShell, fresh_name: Callable[[], str]
) -> None:
    name = fresh_name()
    said = shell("create", f"//{name}", "--column", "id:int64:ascending", "--column", "n:int64", "--pivot", "[5]")
    assert said.status == 0, said
    first = shell("insert", f"//{name}", "--row", '{"id": 1, "n": 1}').output.split()[-1]
    shell("insert", f"//{name}", "--row", '{"id": 1, "n": 2}')

    def sql(*arguments: str) -> Said:
        return shell.raw("sql", f"SELECT n FROM [//{name}] WHERE id < 3", *arguments, "--http", running.http)

    assert sql("--json").objects == [{"n": 2}]
    assert sql("--json", "--at", first).objects == [{"n": 1}]
    explained = sql("--explain", "--at", first).output.splitlines()[-1]
    assert explained == f"{name} at {first}: 1 of 2 tablets, 0 of 0 chunks, 0 of 0 blocks"
    assert sql("--at", "-1").status == 2
    assert "names no sorted table" in shell.raw("sql", "SELECT 1 AS n", "--at", first, "--http", running.http).errors
