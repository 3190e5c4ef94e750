"""Facts of rows: stored and read back, cut into ranges; the partition's follow its blobs."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pqbroker.pq.log.commit_timestamps import milliseconds_of, timestamp_of
from pqbroker.pq.log.keys import facts_key, foreign_ranges, parse_facts_key, renumbered
from pqbroker.pq.log.row_facts import RowFacts, row_weights

commits = st.lists(st.tuples(st.integers(0, 3), st.lists(st.integers(1, 1 << 31), min_size=1, max_size=5)), max_size=8)


def facts_of(commits: list[tuple[int, list[int]]], first: int = 7, before: int = 100) -> RowFacts:
    """With a gap before each commit."""
    facts = RowFacts(before)
    for number, (gap, weights) in enumerate(commits):
        first += gap
        facts.append(first, 1000 + number, weights)
        first += len(weights)
    return facts


@given(commits)
def test_facts_are_read_as_they_were_stored(commits: list[tuple[int, list[int]]]) -> None:
    facts = facts_of(commits)
    again = RowFacts.decode(facts.weight_before, facts.encode())
    assert list(again) == list(facts)
    assert again.weight_after == facts.weight_after
    assert len(again) == sum(len(weights) for _, weights in commits)
    assert facts.weight_after == 100 + sum(sum(weights) for _, weights in commits)


@example([(1, [1, 1, 1])], 10, 9)
@given(commits, st.integers(0, 60), st.integers(0, 60))
def test_a_range_has_the_facts_of_its_rows(commits: list[tuple[int, list[int]]], start: int, end: int) -> None:
    facts = facts_of(commits)
    found = facts.between(start, end)
    assert list(found) == [fact for fact in facts if start <= fact.row_index < end]
    if len(found):
        assert found.weight_after == list(found)[-1].cumulative_weight


@given(commits, st.integers(0, 30))
def test_parts_joined_are_the_whole(commits: list[tuple[int, list[int]]], cut: int) -> None:
    facts = facts_of(commits)
    joined = RowFacts(facts.weight_before)
    for part in (facts.between(0, cut), facts.between(cut, 1000)):
        joined.extend(part)
    assert list(joined) == list(facts)


@given(commits.filter(bool), st.data())
def test_damaged_facts_are_refused(commits: list[tuple[int, list[int]]], data: st.DataObject) -> None:
    stored = facts_of(commits).encode()
    cut = data.draw(st.integers(0, len(stored) - 1))
    with pytest.raises(ValueError, match=r"bytes|version|empty"):
        RowFacts.decode(0, stored[:cut])
    with pytest.raises(ValueError, match="version"):
        RowFacts.decode(0, b"\x09" + stored[1:])


def test_a_key_says_where_the_rows_begin_and_what_they_weigh() -> None:
    key = facts_key(3, 17, 100, 250)
    assert parse_facts_key(key) == (17, 100, 250)
    assert any(low <= key < high for low, high in foreign_ranges(4))
    assert parse_facts_key(renumbered(key, 4)) == (17, 100, 250)
    for wrong in (facts_key(3, 17, 250, 250), key[:-1], b"f"):
        with pytest.raises(ValueError, match=r"facts|weigh"):
            parse_facts_key(wrong)


def test_rows_that_nobody_weighed_weigh_their_stored_bytes() -> None:
    assert row_weights(None, 3, 100) == [33, 33, 33]
    assert row_weights([1, 2], 3, 100) == [33, 33, 33]
    assert row_weights([1, 2], 2, 100) == [1, 2]


def test_a_timestamp_has_seconds_milliseconds_and_room_for_a_counter() -> None:
    assert timestamp_of(1_700_000_000_123) == 1_700_000_000 << 30 | 123 << 20
    assert timestamp_of(-1) == 0
    assert timestamp_of(1 << 60) < 1 << 64


@given(st.integers(0, 1 << 43), st.integers(0, (1 << 20) - 1))
def test_a_timestamp_gives_its_milliseconds_back(now_ms: int, counter: int) -> None:
    assert milliseconds_of(timestamp_of(now_ms) + counter) == now_ms


@given(st.integers(1, 1 << 62), st.integers(0, 1 << 43))
def test_no_time_before_a_timestamps_milliseconds_has_one_as_late(timestamp: int, now_ms: int) -> None:
    if now_ms < milliseconds_of(timestamp):
        assert timestamp_of(now_ms) < timestamp


def test_facts_say_which_timestamps_may_be_among_them() -> None:
    facts = RowFacts(0)
    assert not facts.may_have_timestamp(0, 1 << 62)
    for first, timestamp in enumerate((20, 30, 10)):
        facts.append(first, timestamp, [1])
    assert facts.may_have_timestamp(0, 10)
    assert facts.may_have_timestamp(12, 13)
    assert facts.may_have_timestamp(30, 99)
    assert not facts.may_have_timestamp(0, 9)
    assert not facts.may_have_timestamp(31, 99)
