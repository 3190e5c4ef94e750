"""`pqbroker topic clean` and the passes that `pqbroker top` shows: what is done, what is refused, in words."""

import json
from collections.abc import Iterator, Mapping

import pytest

from pqbroker.cli.commands.top import PASSES_MAX, Inside, PassRow, screen
from pqbroker.fixture.http_calls import HttpCalls
from pqbroker.testing import FOR_TESTS, Broker, broker
from tests.cli.shell import Said, Shell

_COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1"}


@pytest.fixture(scope="module")
def running() -> Iterator[Broker]:
    with broker(settings=FOR_TESTS) as one:
        yield one


@pytest.fixture
def topic(running: Broker, request: pytest.FixtureRequest) -> str:
    """A compacted topic of two partitions, one of which has four records of two keys."""
    name = running.create_topic(f"t-{abs(hash(request.node.nodeid))}", 2, _COMPACT)
    for number in range(4):
        running.produce(name, str(number), key=f"k{number % 2}", partition=0)
    return name


@pytest.fixture
def clean(running: Broker, capsys: pytest.CaptureFixture[str]) -> "Clean":
    return Clean(running, capsys)


class Clean:
    """The command, at one broker."""

    def __init__(self, running: Broker, capsys: pytest.CaptureFixture[str]) -> None:
        self._shell = Shell(running.kafka, capsys)
        self._http = running.http

    def __call__(self, *words: str) -> Said:
        return self._shell.raw("topic", "clean", *words, "--http", self._http)


def test_a_topic_is_cleaned_and_what_became_of_it_is_shown(clean: Clean, running: Broker, topic: str) -> None:
    said = clean(topic, "--wait", "--json").object
    asked: list[Mapping[str, object]] = said["partitions"]
    assert [(one["partition"], one["is_cleaned"], one["text"]) for one in asked] == [
        (0, True, ""), (1, False, "it holds no records"),
    ]  # fmt: skip
    (done,) = said["passes"]
    assert (done["partition"], done["records"], done["records_gone"], done["failure"]) == (0, 4, 2, "")
    assert [one.value for one in running.read(topic)] == [b"2", b"3"]
    again = clean(topic, "--partition", "0", "--wait")
    assert again.status == 0
    assert "tombstones gone" in again.output


def test_waiting_ends_at_its_deadline_and_names_what_is_left(clean: Clean, running: Broker, topic: str) -> None:
    calls = HttpCalls(lambda: running.http)
    calls.ask("POST", "/v1/test/store", {"fault": "hold"})
    try:
        said = clean(topic, "--partition", "0", "--wait", "--timeout", "1")
    finally:
        calls.ask("POST", "/v1/test/store", {"fault": "clear"})
    assert said.status == 1
    assert "after 1 s partitions are not cleaned yet: 0; the broker continues" in said.errors
    assert clean(topic, "--partition", "0", "--wait").status == 0


def test_a_dry_run_begins_nothing(clean: Clean, running: Broker, topic: str) -> None:
    said = clean(topic, "--dry-run")
    assert said.status == 0
    assert said.output.splitlines()[0].split() == ["partition", "cleaned", "bodies", "bytes", "dirty", "head"]
    assert len(running.read(topic)) == 4


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (["no-such-topic"], 1, "`pqbroker topic list` lists the topics"),
        (["{topic}", "--partition", "7"], 1, "has no partition 7: it has 0 to "),
        (["{topic}", "--partition", "-1"], 2, "--partition"),
        (["{topic}", "--partition", "x"], 2, "--partition"),
        (["{plain}"], 1, "is not compacted: its cleanup.policy does not name `compact`. `pqbroker topic configs`"),
        ([], 2, "TOPIC"),
    ],
)
def test_wrong_input_is_refused_with_what_helps(
    clean: Clean, running: Broker, topic: str, words: list[str], status: int, told: str
) -> None:
    plain = running.create_topic(f"{topic}-plain")
    said = clean(*(word.format(topic=topic, plain=plain) for word in words))
    assert said.status == status
    assert told in said.errors
    assert "tablet keys" not in said.errors


def test_a_cleaner_that_is_off_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with broker(settings={"log.cleaner.enable": "false"}) as off:
        name = off.create_topic("users", 1, _COMPACT)
        said = Clean(off, capsys)(name, "--wait")
        assert said.status == 1
        assert "log.cleaner.enable is false" in said.errors


def test_top_shows_the_passes_of_a_broker_that_is_asked_over_http(
    running: Broker, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = Shell(running.kafka, capsys)
    words = ("top", "-n", "1", "-i", "0.1", "--json")
    assert shell(*words).object["passes"] == []
    assert shell(*words, "--http", running.http).object["passes"] == []
    seen = Inside(running.http, is_named=True).read(running.kafka)
    assert seen is not None
    assert seen.passes == []
    away = shell(*words, "--http", "127.0.0.1:1")
    assert (away.status, "no broker answers at 127.0.0.1:1 over HTTP" in away.errors) == (1, True)


def test_passes_are_rows_below_the_groups_and_leave_room_for_them() -> None:
    passes = [PassRow("users", number, "dirty", 0, 2048, 1024, 512) for number in range(PASSES_MAX + 5)]
    lines = screen([], [], None, None, passes[:1])
    assert lines[:4] == ["no topics", "", "no groups", ""]
    assert lines[-1].split()[:3] == ["users", "0", "dirty"]
    assert lines[-1].endswith("512 B/s")
    assert len(screen([], [], None, 24, passes)) == PASSES_MAX + 5
    assert json.dumps(passes[0]._asdict())
