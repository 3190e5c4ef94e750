"""Partitions that nobody serves, as a reader reports them: once, after two looks. Nothing waits for a real second."""

import asyncio
from collections.abc import Mapping
from contextlib import closing

import pytest

from pqbroker.cli.kafka import unserved as watching
from pqbroker.cli.kafka.cluster import Cluster, TopicPartition
from pqbroker.cli.kafka.unserved import Unserved
from pqbroker.cli.refusals import CommandError
from pqbroker.protocol.errors import ErrorCode

LOST = ErrorCode.NOT_LEADER_OR_FOLLOWER
A, B = ("a", 0), ("b", 1)


class Looks:
    """Answers to looks, in order; then none is missing."""

    def __init__(self, *answers: dict[TopicPartition, ErrorCode] | CommandError) -> None:
        self._answers = list(answers)
        self.asked: list[dict[TopicPartition, int]] = []

    def look(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, ErrorCode]:
        self.asked.append(dict(offsets))
        answer = self._answers.pop(0) if self._answers else {}
        if isinstance(answer, CommandError):
            raise answer
        return answer


async def told(
    looks: Looks, count: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    moved: Mapping[TopicPartition, int] | None = None,
) -> list[str]:
    """Return the lines that `count` looks have printed."""
    monkeypatch.setattr(watching, "SILENCE_S", 0.0)
    monkeypatch.setattr(Cluster, "unserved", lambda _, offsets: looks.look(offsets))
    with closing(Unserved("127.0.0.1:1", {A: 7, B: 9})) as unserved:
        while len(looks.asked) <= count:
            unserved.note([A, B], moved or {})
            await asyncio.sleep(0)
    return capsys.readouterr().err.splitlines()


async def test_what_two_looks_miss_is_told_once_and_its_return_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    looks = Looks({A: LOST}, {A: LOST}, {A: LOST}, {A: LOST, B: LOST}, {A: LOST, B: LOST}, {B: LOST})
    first, second, third, last = await told(looks, 8, monkeypatch, capsys)
    assert first.startswith("pqbroker: waiting for a-0: the broker does not serve it now")
    assert second.startswith("pqbroker: waiting for b-1: ")
    assert (third, last) == ("pqbroker: served again: a-0", "pqbroker: served again: b-1")
    assert looks.asked[0] == {A: 7, B: 9}


async def test_an_election_between_two_looks_is_not_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await told(Looks({A: LOST}, {}, {A: LOST}, {B: LOST}), 6, monkeypatch, capsys) == []


async def test_a_look_that_no_broker_answers_says_nothing_of_partitions(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    looks = Looks({A: LOST}, {A: LOST}, CommandError("gone"), {A: LOST})
    first, back = await told(looks, 5, monkeypatch, capsys)
    assert first.startswith("pqbroker: waiting for a-0: ")
    assert back == "pqbroker: served again: a-0"


async def test_a_partition_that_gave_records_is_not_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    looks = Looks()
    await told(looks, 2, monkeypatch, capsys, {A: 8})
    assert looks.asked == [{B: 9}] * 3
