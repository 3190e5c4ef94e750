"""`pqbroker table materialize` and its kin, at a broker of ours."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pqbroker.fixture.http_calls import HttpCalls
from pqbroker.testing import Broker, memory_broker
from tests.cli.test_table import TableShell
from tests.support.waiting import wait_until

SHOWN_WITHIN_S = 60.0
COLUMNS = ("--column", "id:utf8:required:ascending", "--column", "order:string")


@pytest.fixture(scope="module")
def running() -> Iterator[Broker]:
    with memory_broker() as one:
        yield one


@pytest.fixture
def shell(running: Broker, capsys: pytest.CaptureFixture[str]) -> TableShell:
    return TableShell(running, capsys)


@pytest.fixture
def topic(shell: TableShell, fresh_name: Callable[[], str]) -> str:
    name = fresh_name()
    post(shell, "/v1/topics", {"name": name})
    return name


@pytest.fixture
def table(shell: TableShell, fresh_name: Callable[[], str]) -> str:
    path = f"//cli/{fresh_name()}"
    assert shell("create", path, *COLUMNS).status == 0
    return path


def post(shell: TableShell, path: str, body: Any) -> None:
    HttpCalls(lambda: shell.http).ask("POST", path, body)


def produce(shell: TableShell, topic: str, *pairs: tuple[str | None, str | None]) -> None:
    post(shell, f"/v1/topics/{topic}/records", {"records": [{"key": key, "value": value} for key, value in pairs]})


def shown_when(shell: TableShell, table: str, **fields: Any) -> Any:
    """The materialization once its fields are these."""
    shown: list[Any] = []

    def is_so() -> bool:
        shown[:] = [shell("materializations", table, "--json").object]
        return bool(fields.items() <= shown[0].items())

    wait_until(is_so, f"materialization with {fields}", SHOWN_WITHIN_S)
    return shown[0]


ORIGINS = ("--column", "id=key", "--column", "order=value")


def test_a_topic_feeds_a_table_and_both_are_shown_paused_resumed_and_dropped(
    shell: TableShell, topic: str, table: str
) -> None:
    produce(shell, topic, ("a", "1"), ("b", "1"), ("a", "2"), (None, "lost"), ("b", None))
    said = shell("materialize", topic, "into", table, *ORIGINS)
    assert said.output.startswith(f"{table} is fed from topic {topic}; "), said
    shown_when(shell, table, lag=0, state="running")
    assert shell("lookup", table, "id=a", "id=b", "--json").objects == [{"id": "a", "order": "2"}]
    lines = [line.split() for line in shell("materializations").output.splitlines()]
    assert ["path", "topic", "state", "lag", "dead", "letters"] in lines
    assert [table, topic, "running", "0", "1"] in lines
    output = shell("materializations", table).output
    assert "id from key, order from value" in output
    assert "the record has no key" in output
    assert shell("pause-materialization", table).output == f"{table} from topic {topic}: paused, lag 0\n"
    produce(shell, topic, ("a", "3"))
    assert shell("resume-materialization", table).status == 0
    shown_when(shell, table, lag=0, state="running")
    assert shell("lookup", table, "id=a", "--json").object == {"id": "a", "order": "3"}
    assert shell("drop-materialization", table).status == 2
    assert shell("drop-materialization", table, "--yes").output == f"{table} is fed no more; its rows stay\n"
    refused = shell("materializations", table)
    assert refused.status == 1
    assert "is fed from no topic" in refused.errors


def test_what_stops_a_table_is_said_with_its_cure(shell: TableShell, topic: str, table: str) -> None:
    assert shell("materialize", topic, "into", table, *ORIGINS).status == 0
    assert shell("unmount", table).status == 0
    said = shell("materializations").output
    assert f"{table} is stopped: " in said
    assert "pqbroker table mount" in said
    assert shell("drop-materialization", table, "--yes").status == 0


def test_wrong_words_and_sources_are_refused(shell: TableShell, topic: str, table: str) -> None:
    assert shell("materialize", topic, "onto", table).status == 2
    said = shell("materialize", topic, "into", table)
    assert said.status == 1
    assert "column 'id' comes from 'id', which the topic has not" in said.errors
