"""C.8 with the seed's numbers, and what readers see before and after a clean-up."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pqbroker.pq.log.commit_timestamps import TIMESTAMP_MAX, timestamp_of
from pqbroker.tables.sorted.packed_rows import ABSENT
from pqbroker.tables.sorted.versions import (
    CleanUp,
    TooManyVersions,
    Version,
    check_counts,
    clean,
    merge_deletes,
    seen,
)
from tests.support.depth import examples

pytestmark = pytest.mark.spec("C.8")

MINUTE_MS = 60_000
NOW_MS = 1_000_000_000_000
DEFAULTS = CleanUp(
    now_ms=NOW_MS, min_data_ttl=30 * MINUTE_MS, max_data_ttl=30 * MINUTE_MS, min_data_versions=1, max_data_versions=1,
    major=TIMESTAMP_MAX, retained=TIMESTAMP_MAX, hidden_before=TIMESTAMP_MAX,
)  # fmt: skip
NEWEST_ALONE = replace(DEFAULTS, min_data_ttl=0, max_data_ttl=0)


def aged(age_ms: int) -> int:
    """The timestamp of what was written so long ago."""
    return timestamp_of(NOW_MS - age_ms)


def write(timestamp: int, *values: Any) -> Version:
    return Version(timestamp, values)


def delete(timestamp: int) -> Version:
    return Version(timestamp, None)


def left(versions: Sequence[Version], rules: CleanUp, columns: int = 1) -> list[int]:
    """Timestamps of the versions that stay."""
    return [version.timestamp for version in clean(versions, columns, rules)]


def below(major: int, rules: CleanUp = NEWEST_ALONE) -> CleanUp:
    """Rules of a merge of chunks with this major timestamp."""
    return replace(rules, major=major, hidden_before=major)


def test_a_delete_stays_while_a_store_elsewhere_holds_what_it_deletes() -> None:
    """The seed's example: writes at 10 and 20, a delete at 30, in three chunks, of which the first and third merge."""
    assert left([delete(30), write(10, 1)], below(20)) == [30]
    assert left([delete(30), write(20, 2), write(10, 1)], below(TIMESTAMP_MAX)) == []


@pytest.mark.parametrize(("major", "expected"), [(9, [30, 10]), (10, [30, 10]), (11, [30]), (30, [30]), (31, [])])
def test_versions_go_below_the_major_timestamp_and_not_at_it(major: int, expected: list[int]) -> None:
    assert left([delete(30), write(10, 1)], below(major)) == expected


def test_repeated_versions_in_new_chunks_stay_above_the_major_timestamp_of_a_big_old_one() -> None:
    assert left([write(30, 3), write(20, 2), write(10, 1)], below(10)) == [30, 20, 10]
    assert left([write(30, 3), write(20, 2), write(10, 1)], below(20)) == [30, 20]


def test_a_flush_drops_what_newer_versions_hide_whatever_older_chunks_hold() -> None:
    rules = replace(NEWEST_ALONE, major=5)
    assert left([write(30, 3), write(20, 2), delete(10)], rules) == [30]
    assert left([delete(30), write(20, 2)], rules) == [30]
    assert left([write(30, 3)], replace(rules, min_data_versions=0)) == [30], "expired, but an older one might appear"


def test_the_defaults_keep_the_newest_value_for_ever_and_what_the_last_half_hour_wrote() -> None:
    ages = [0, 10, 29, 31, 40, 1_000_000]
    versions = [write(aged(minutes * MINUTE_MS), minutes) for minutes in ages]
    assert left(versions, DEFAULTS) == [version.timestamp for version in versions[:4]]
    assert left(versions[5:], DEFAULTS) == [versions[5].timestamp]


@pytest.mark.parametrize(("age_ms", "stays"), [(999, True), (1000, False), (1001, False)])
def test_a_version_of_min_data_ttl_is_old_enough_to_be_hidden(age_ms: int, stays: bool) -> None:
    rules = replace(DEFAULTS, min_data_ttl=1000, max_data_ttl=10**9)
    versions = [write(aged(0), 2), write(aged(500), 1)]
    assert left([*versions, write(aged(age_ms), 0), write(aged(5000), 0)], rules)[2:] == (
        [aged(age_ms), aged(5000)] if stays else [aged(age_ms)]
    ), "the guard keeps the newest of those that are old enough"


@pytest.mark.parametrize(("age_ms", "stays"), [(999, True), (1000, True), (1001, False)])
def test_a_version_older_than_max_data_ttl_is_expired(age_ms: int, stays: bool) -> None:
    rules = replace(DEFAULTS, min_data_ttl=0, max_data_ttl=1000, min_data_versions=0, max_data_versions=5)
    assert left([write(aged(age_ms), 0)], rules) == ([aged(age_ms)] if stays else [])


def test_what_min_data_versions_guards_does_not_expire() -> None:
    rules = replace(DEFAULTS, min_data_ttl=0, max_data_ttl=10, min_data_versions=2, max_data_versions=9)
    assert left([write(aged(age), 0) for age in (100, 200, 300)], rules) == [aged(100), aged(200)]


def test_the_guard_counts_from_versions_older_than_min_data_ttl() -> None:
    rules = replace(DEFAULTS, min_data_ttl=100, max_data_ttl=100, min_data_versions=2, max_data_versions=2)
    assert left([write(aged(age), 0) for age in (1, 2, 3, 100, 101, 102)], rules) == [
        aged(age) for age in (1, 2, 3, 100, 101)
    ]


def test_max_data_versions_counts_from_the_newest_version() -> None:
    rules = replace(DEFAULTS, min_data_ttl=100, max_data_ttl=10**9, min_data_versions=0, max_data_versions=4)
    assert left([write(aged(age), 0) for age in (1, 2, 300, 400, 500)], rules) == [
        aged(age) for age in (1, 2, 300, 400)
    ]


def test_what_a_reader_at_the_retained_timestamp_sees_stays_until_it_expires() -> None:
    rules = replace(NEWEST_ALONE, retained=25, min_data_versions=0, max_data_ttl=NOW_MS)
    versions = [write(40, 4), write(30, 3), write(20, 2), write(10, 1)]
    assert left(versions, rules) == [40, 30, 20]
    assert left(versions, replace(rules, max_data_ttl=NOW_MS - 1)) == [40, 30]


def test_a_young_delete_stays_and_an_old_one_goes_with_what_it_deletes() -> None:
    assert left([delete(aged(10)), write(aged(20), 1)], DEFAULTS) == [aged(10), aged(20)]
    old = 31 * MINUTE_MS
    assert left([delete(aged(old)), write(aged(old + 1), 1)], DEFAULTS) == []
    assert left([write(aged(1), 2), delete(aged(old)), write(aged(old + 1), 1)], DEFAULTS) == [aged(1)]


def test_a_delete_stays_above_an_older_write_that_stays() -> None:
    rules = replace(NEWEST_ALONE, min_data_versions=2, max_data_versions=2)
    assert left([delete(30), write(20, 2), write(10, 1)], rules) == [30, 20]


def test_columns_that_updates_wrote_at_different_times_are_cleaned_one_by_one() -> None:
    versions = [write(40, 4, ABSENT), write(30, ABSENT, 3), write(20, 2, ABSENT), write(10, 1, 1)]
    cleaned = clean(versions, 2, NEWEST_ALONE)
    assert [(version.timestamp, list(version.values or ())) for version in cleaned] == [
        (40, [4, ABSENT]), (30, [ABSENT, 3]),
    ]  # fmt: skip
    kept = clean([write(40, 4, ABSENT), write(10, 1, 1)], 2, NEWEST_ALONE)
    assert [list(version.values or ()) for version in kept] == [[4, ABSENT], [ABSENT, 1]]


def test_a_row_of_key_columns_alone_is_kept() -> None:
    assert left([write(20), write(10)], NEWEST_ALONE, columns=0) == [20]
    assert seen([write(20)], 20, []) == []
    assert seen([write(20)], 19, []) is None


def test_deletes_that_follow_one_another_merge_into_the_oldest() -> None:
    versions = [delete(60), delete(50), write(40, 1), delete(30), delete(20), delete(10)]
    merged = merge_deletes(versions)
    assert [version.timestamp for version in merged] == [50, 40, 10]
    for timestamp in range(10, 70, 5):
        assert seen(merged, timestamp, [0]) == seen(versions, timestamp, [0])


def test_a_reader_sees_the_newest_value_of_each_column_since_the_last_delete() -> None:
    versions = [write(50, ABSENT, 5), delete(40), write(30, ABSENT, None), write(20, 2, 2)]
    at = {50: [None, 5], 49: None, 40: None, 39: [2, None], 29: [2, 2], 19: None}
    assert {timestamp: seen(versions, timestamp, [0, 1]) for timestamp in at} == at
    assert seen(versions, 39, [1]) == [None]


@pytest.mark.parametrize(("kind", "version"), [("write", write(1, 0)), ("delete", delete(1))])
def test_a_key_with_too_many_versions_is_refused_by_the_seeds_text_with_its_cure(kind: str, version: Version) -> None:
    check_counts([write(1, 0), delete(1)] * 30_000, 30_000)
    with pytest.raises(TooManyVersions, match=f"^Too many {kind} timestamps in a versioned row: 30001; ") as refusal:
        check_counts([version] * 30_001, 30_000)
    for name in ("merge_rows_on_flush", "min_data_ttl", "merge_deletions_on_flush"):
        assert name in refusal.value.cure


COLUMNS = 2
TIMES = range(0, 400, 10)


@st.composite
def histories(draw: st.DrawFn) -> list[Version]:
    """Versions of one key, the newest first; milliseconds of timestamps are their tens."""
    times = draw(st.lists(st.sampled_from(TIMES), unique=True, max_size=12))
    value = st.one_of(st.just(ABSENT), st.none(), st.integers(0, 9))
    kinds = st.one_of(st.none(), st.lists(value, min_size=COLUMNS, max_size=COLUMNS))
    return [Version(timestamp_of(time), draw(kinds)) for time in sorted(times, reverse=True)]


@st.composite
def rules(draw: st.DrawFn) -> CleanUp:
    min_ttl, max_ttl = sorted(draw(st.tuples(*[st.sampled_from([0, 10, 100, 200])] * 2)))
    least, most = sorted(draw(st.tuples(*[st.integers(0, 3)] * 2)))
    times = st.sampled_from([*TIMES, 1000]).map(timestamp_of)
    major = draw(times)
    return CleanUp(
        now_ms=draw(st.sampled_from(TIMES)), min_data_ttl=min_ttl, max_data_ttl=max_ttl, min_data_versions=least,
        max_data_versions=most, major=major, retained=draw(times),
        hidden_before=draw(st.sampled_from([major, TIMESTAMP_MAX])),
    )  # fmt: skip


@settings(max_examples=examples(2000))
@given(histories(), rules(), st.data())
def test_no_clean_up_changes_what_is_read_at_the_retained_timestamp_or_later(
    versions: list[Version], rules: CleanUp, data: st.DataObject
) -> None:
    """Other stores hold what is as new as the major timestamp, or newer; nothing expires."""
    rules = replace(rules, max_data_ttl=10**9)
    elsewhere = {
        version.timestamp for version in versions if version.timestamp >= rules.major and data.draw(st.booleans())
    }
    here = [version for version in versions if version.timestamp not in elsewhere]
    others = [version for version in versions if version.timestamp in elsewhere]
    merged = sorted([*clean(here, COLUMNS, rules), *others], key=lambda version: -version.timestamp)
    for time in TIMES:
        if (timestamp := timestamp_of(time)) >= rules.retained:
            assert seen(merged, timestamp, range(COLUMNS)) == seen(versions, timestamp, range(COLUMNS))


@settings(max_examples=examples(2000))
@given(histories(), rules())
def test_a_second_clean_up_by_the_same_rules_finds_nothing(versions: list[Version], rules: CleanUp) -> None:
    once = clean(versions, COLUMNS, rules)
    assert clean(once, COLUMNS, rules) == once


@settings(max_examples=examples(500))
@given(histories(), rules())
def test_young_versions_stay_as_they_are(versions: list[Version], rules: CleanUp) -> None:
    left = clean(versions, COLUMNS, rules)
    assert [version for version in versions if rules.is_young(version.timestamp)] == [
        version for version in left if rules.is_young(version.timestamp)
    ]
