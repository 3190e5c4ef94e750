"""Logs that our cleaner leaves beside those that Apache Kafka's left in the last comparison."""

from collections.abc import Iterator

import pytest

from tests.kafka_comparison.cleaned_logs import recorded
from tests.kafka_comparison.cleaned_logs.__main__ import named
from tests.kafka_comparison.cleaned_logs.cleaners import our_cleaner
from tests.kafka_comparison.cleaned_logs.differences import expected
from tests.kafka_comparison.cleaned_logs.playing import Clean, LeftBatch, Stage, play
from tests.kafka_comparison.cleaned_logs.scripts import AT_ONCE, LATER, SCRIPTS, T0_MS, Script
from tests.kafka_comparison.side import Side

KAFKAS = recorded.read()


@pytest.fixture(scope="module")
def cleaner() -> Iterator[tuple[Side, Clean]]:
    """Our broker."""
    with our_cleaner() as found:
        yield found


@pytest.mark.parametrize(("topic", "name"), named())
def test_our_cleaner_leaves_what_kafkas_does_but_for_what_is_listed(
    topic: str, name: str, cleaner: tuple[Side, Clean]
) -> None:
    side, clean = cleaner
    assert play(side, topic, SCRIPTS[name], clean) == expected(SCRIPTS[name], KAFKAS[name])


def test_every_script_has_logs_of_kafkas() -> None:
    assert KAFKAS.keys() == SCRIPTS.keys()
    words = {answer.split()[0] for stages in KAFKAS.values() for stage in stages for answer in stage.answers}
    assert words == {"NONE", "INVALID_RECORD", "POLICY_VIOLATION", "OUT_OF_ORDER_SEQUENCE_NUMBER"}


def test_tombstones_that_may_go_at_once_are_a_listed_difference() -> None:
    left = [batch(0, [0, 5, "a", "1", []], [1, 6, "b", None, []]), batch(2, [2, 7, "c", None, []])]
    assert expected(Script([], LATER), [Stage([], left, [])]) == [Stage([], left, [])]
    (changed,) = expected(Script([], AT_ONCE), [Stage([], left, [])])
    assert [each.records for each in changed.left] == [[[0, 5, "a", "1", []]], []]
    assert [each.max_time for each in changed.left] == [5, -1 - T0_MS]


def test_a_producers_last_batch_that_lost_its_records_is_a_listed_difference() -> None:
    left = [batch(0)._replace(flags=""), batch(2, [2, 7, "c", "1", []])]
    assert expected(Script([]), [Stage([], left, [])]) == [Stage([], left[1:], [])]


def batch(base_offset: int, *records: object) -> LeftBatch:
    last = base_offset + max(len(records), 1) - 1
    return LeftBatch(base_offset, last, 0, "horizon", [-1, -1, -1], 7, list(records))
