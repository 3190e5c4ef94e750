"""Reasons of compactions in their order, and what keeps a chunk out (C.5, C.6, K.3)."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pqbroker.tables.sorted.picking.choice import Choice, LeftOut, PickReason
from pqbroker.tables.sorted.picking.compaction import pick_in_eden, pick_in_partition
from pqbroker.tables.sorted.picking.facts import ChunkStore
from pqbroker.tables.sorted.picking.overlap import critical_keys, overlaps
from tests.support.depth import examples
from tests.tables.sorted.picking.stores import DAY, MIB, NOW, chunk, chunks, key, numbers, tablet

pytestmark = pytest.mark.spec("C.5", "C.6", "K.3")

PERIODIC: dict[str, Any] = {"auto_compaction_period": DAY, "auto_compaction_period_splay_ratio": 0.0}
OLD: dict[str, Any] = {"created_ms": NOW - DAY}


def pick(*held: ChunkStore, now_ms: int = NOW, **attributes: Any) -> Choice:
    """Pick in a tablet that has one partition."""
    whole = tablet(held, **attributes)
    return pick_in_partition(whole, whole.partitions[0], critical_keys(whole, overlaps(whole)).get(0), now_ms)


def pick_eden(*eden: ChunkStore, now_ms: int = NOW, **attributes: Any) -> Choice:
    """Pick in Eden of a tablet that has two empty partitions."""
    whole = tablet([], [], eden=eden, **attributes)
    return pick_in_eden(whole, critical_keys(whole, overlaps(whole)), now_ms)


def test_an_empty_partition_has_nothing_to_compact() -> None:
    assert pick() == Choice(None, (), {})


def test_a_choice_names_its_reason_its_inputs_and_what_it_leaves_out() -> None:
    found = pick(*chunks(MIB, MIB, MIB, 500 * MIB))
    assert (found.reason, numbers(found.inputs), found.left_out) == (PickReason.REGULAR, [1, 2, 3], {4: LeftOut.SIZE})
    assert found.compressed_bytes == 3 * MIB
    found = pick(*chunks(MIB, 500 * MIB))
    assert (found.reason, found.inputs, found.left_out) == (None, (), {1: LeftOut.SIZE, 2: LeftOut.SIZE})


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"is_busy": True}, LeftOut.BUSY),
        ({"backoff_until_ms": NOW + 1}, LeftOut.BACKING_OFF),
        ({"is_damaged": True}, LeftOut.DAMAGED),
    ],
)
def test_a_chunk_that_is_busy_backing_off_or_damaged_is_never_picked(facts: dict[str, Any], reason: LeftOut) -> None:
    held = [*chunks(MIB, MIB, MIB), chunk(9, MIB, revision=0, **OLD, **facts)]
    for attributes in ({}, {"forced_compaction_revision": 100}, {**PERIODIC}):
        found = pick(*held, **attributes)
        assert 9 not in numbers(found.inputs)
        assert found.left_out[9] is reason


def test_a_backoff_ends_at_its_time() -> None:
    held = [*chunks(MIB, MIB), chunk(9, MIB, backoff_until_ms=NOW)]
    assert numbers(pick(*held).inputs) == [1, 2, 9]


def test_forced_takes_every_chunk_of_before_up_to_the_maximum_the_oldest_first() -> None:
    held = [chunk(number, MIB, revision=1, created_ms=NOW - number) for number in range(1, 8)]
    found = pick(*held, chunk(8, MIB, revision=9), forced_compaction_revision=9)
    assert (found.reason, numbers(found.inputs)) == (PickReason.FORCED, [7, 6, 5, 4, 3])
    assert found.left_out[2] is LeftOut.OVER_MAXIMUM


def test_forced_ignores_the_minimum_and_sizes() -> None:
    found = pick(chunk(1, MIB, revision=1), chunk(2, 900 * MIB, revision=1), forced_compaction_revision=2)
    assert numbers(found.inputs) == [1, 2]
    found = pick(chunk(1, MIB, revision=1), chunk(2, MIB, revision=2), forced_compaction_revision=2)
    assert (numbers(found.inputs), found.left_out) == ([1], {2: LeftOut.NOT_CALLED_FOR})


def test_a_chunk_is_forced_once_and_removing_the_revision_cancels_the_rest() -> None:
    held = [chunk(number, 900 * MIB, revision=1) for number in range(1, 8)]
    found = pick(*held, forced_compaction_revision=2)
    made = chunk(9, found.compressed_bytes, revision=2)
    rest = [*(each for each in held if each not in found.inputs), made]
    assert numbers(pick(*rest, forced_compaction_revision=2).inputs) == [6, 7]
    assert pick(*rest, forced_compaction_revision=None, compaction_data_size_ratio=1.0).inputs == ()
    assert pick(made, chunk(10, 2 * MIB, revision=2), forced_compaction_revision=2).inputs == ()


def test_a_remount_of_tablets_1_to_2_forces_those_alone() -> None:
    """Attributes act by tablet: those of tablets that were not remounted have no forced revision."""
    held = [chunk(1, MIB, revision=1)]
    remounted = {1, 2}
    picked = [
        numbers(pick(*held, forced_compaction_revision=2 if index in remounted else None).inputs)
        for index in range(4)
    ]  # fmt: skip
    assert picked == [[], [1], [1], []]


def test_a_chunk_outside_the_tablets_range_is_rewritten() -> None:
    whole = tablet([chunk(1)], [chunk(2)])
    whole = replace(whole, partitions=(replace(whole.partitions[0], pivot=key(5)), whole.partitions[1]))
    found = pick_in_partition(whole, whole.partitions[0], None, NOW)
    assert (found.reason, numbers(found.inputs)) == (PickReason.OUT_OF_RANGE, [1])


def test_forced_comes_before_periodic_in_mode_store() -> None:
    held = [chunk(1, MIB, revision=9, created_ms=NOW - 2 * DAY), chunk(2, MIB, revision=1)]
    found = pick(*held, forced_compaction_revision=9, **PERIODIC)
    assert (found.reason, numbers(found.inputs)) == (PickReason.FORCED, [2, 1])


def test_mode_store_takes_the_chunks_that_are_due_alone() -> None:
    held = [chunk(1, 900 * MIB, **OLD), chunk(2, MIB, created_ms=NOW - DAY + 1), chunk(3, MIB)]
    found = pick(*held, **PERIODIC)
    assert (found.reason, numbers(found.inputs)) == (PickReason.PERIODIC, [1])
    assert found.left_out == {2: LeftOut.NOT_CALLED_FOR, 3: LeftOut.NOT_CALLED_FOR}


def test_mode_store_respects_the_maximum() -> None:
    found = pick(*(chunk(number, MIB, **OLD) for number in range(8)), **PERIODIC)
    assert numbers(found.inputs) == [0, 1, 2, 3, 4]


def test_mode_partition_takes_all_chunks_as_soon_as_one_is_due_whatever_the_maximum_says() -> None:
    held = [chunk(1, 900 * MIB, **OLD), *chunks(*[MIB] * 8, first=2)]
    found = pick(*held, periodic_compaction_mode="partition", **PERIODIC)
    assert found.reason is PickReason.WHOLE_PARTITION
    assert sorted(numbers(found.inputs)) == list(range(1, 10))
    assert found.left_out == {}


def test_mode_partition_comes_before_forced() -> None:
    held = [chunk(1, MIB, **OLD), chunk(2, MIB, revision=0)]
    found = pick(*held, periodic_compaction_mode="partition", forced_compaction_revision=1, **PERIODIC)
    assert (found.reason, numbers(found.inputs)) == (PickReason.WHOLE_PARTITION, [1, 2])


def test_mode_partition_without_one_that_is_due_is_regular() -> None:
    held = [chunk(1, 900 * MIB, created_ms=NOW - DAY + 1), *chunks(*[MIB] * 3, first=2)]
    found = pick(*held, periodic_compaction_mode="partition", **PERIODIC)
    assert (found.reason, numbers(found.inputs)) == (PickReason.REGULAR, [2, 3, 4])


@pytest.mark.parametrize("facts", [{"is_busy": True}, {"backoff_until_ms": NOW + 1}])
def test_mode_partition_waits_until_it_can_have_all_chunks(facts: dict[str, Any]) -> None:
    """A chunk that is away might have the value of a deletion among the others."""
    held = [chunk(1, MIB, **OLD), *chunks(*[MIB] * 3, first=2), chunk(9, MIB, **facts)]
    attributes: dict[str, Any] = {"periodic_compaction_mode": "partition", **PERIODIC}
    found = pick(*held, **attributes)
    assert (found.reason, found.inputs) == (None, ())
    assert {found.left_out[number] for number in (1, 2, 3, 4)} == {LeftOut.WAITING}
    critical = pick(*held, max_overlapping_store_count=5, **attributes)
    assert (critical.reason, numbers(critical.inputs)) == (PickReason.CRITICAL, [1, 2, 3, 4])


def test_mode_partition_does_without_a_damaged_chunk_and_does_not_begin_again() -> None:
    attributes: dict[str, Any] = {"periodic_compaction_mode": "partition", **PERIODIC}
    damaged = chunk(9, MIB, is_damaged=True, **OLD)
    assert numbers(pick(chunk(1, MIB, **OLD), chunk(2, MIB), damaged, **attributes).inputs) == [1, 2]
    assert pick(chunk(3, 2 * MIB), damaged, **attributes).inputs == ()


def test_at_the_critical_overlap_sizes_and_the_minimum_do_not_hold() -> None:
    held = chunks(1, MIB, 100 * MIB, 10_000 * MIB)
    assert pick(*held, max_overlapping_store_count=5).inputs == ()
    found = pick(*held, max_overlapping_store_count=4)
    assert (found.reason, numbers(found.inputs)) == (PickReason.CRITICAL, [1, 2, 3, 4])
    found = pick(*chunks(1, 100 * MIB), max_overlapping_store_count=2)
    assert (found.reason, numbers(found.inputs)) == (PickReason.CRITICAL, [1, 2])


def test_a_critical_compaction_takes_the_smallest_over_the_key_up_to_the_maximum() -> None:
    elsewhere = chunk(99, 1, keys=(60_000, 60_001))
    held = [*(chunk(number, 10**number, keys=(0, 100)) for number in range(1, 8)), elsewhere]
    found = pick(*held, max_overlapping_store_count=7)
    assert (found.reason, numbers(found.inputs)) == (PickReason.CRITICAL, [1, 2, 3, 4, 5])
    assert found.left_out[6] is LeftOut.OVER_MAXIMUM


def test_the_critical_overlap_counts_eden() -> None:
    whole = tablet(chunks(1, 100 * MIB), [], eden=chunks(MIB, MIB, first=9), max_overlapping_store_count=4)
    found = pick_in_partition(whole, whole.partitions[0], critical_keys(whole, overlaps(whole)).get(0), NOW)
    assert (found.reason, numbers(found.inputs)) == (PickReason.CRITICAL, [1, 2])


def test_a_partition_with_one_chunk_over_the_critical_key_is_left_to_eden() -> None:
    whole = tablet([chunk(1)], [], eden=chunks(MIB, MIB, first=9), max_overlapping_store_count=3)
    critical = critical_keys(whole, overlaps(whole))
    assert pick_in_partition(whole, whole.partitions[0], critical[0], NOW).inputs == ()
    found = pick_in_eden(whole, critical, NOW)
    assert (found.reason, numbers(found.inputs)) == (PickReason.CRITICAL, [9, 10])


def test_eden_leaves_chunks_of_min_partitioning_data_size_to_partitioning() -> None:
    held = [*chunks(60 * MIB, 60 * MIB, 64 * MIB - 1), chunk(4, 64 * MIB), chunk(5, 65 * MIB, revision=0)]
    found = pick_eden(*held)
    assert numbers(found.inputs) == [1, 2, 3]
    assert found.left_out == {4: LeftOut.LARGE, 5: LeftOut.LARGE}
    assert pick_eden(held[4], forced_compaction_revision=1).inputs == ()


def test_mode_partition_in_eden_does_not_wait_for_chunks_that_are_partitioned() -> None:
    small = [chunk(1, MIB, **OLD), chunk(2, MIB)]
    attributes: dict[str, Any] = {"periodic_compaction_mode": "partition", **PERIODIC}
    found = pick_eden(*small, chunk(3, 500 * MIB, is_busy=True), chunk(4, 500 * MIB), **attributes)
    assert (found.reason, numbers(found.inputs)) == (PickReason.WHOLE_PARTITION, [1, 2])
    assert found.left_out == {3: LeftOut.BUSY, 4: LeftOut.LARGE}
    assert pick_eden(*small, chunk(3, MIB, is_busy=True), **attributes).inputs == ()


def test_eden_leaves_what_partitioning_was_given() -> None:
    whole = tablet([], [], eden=chunks(*[MIB] * 4))
    found = pick_in_eden(whole, {}, NOW, elsewhere=[1])
    assert numbers(found.inputs) == [2, 3, 4]
    assert found.left_out == {1: LeftOut.BUSY}


def test_eden_with_as_many_chunks_as_it_may_have_is_critical() -> None:
    held = [chunk(number, 10**number, keys=(number * 10, number * 10 + 1)) for number in range(1, 5)]
    attributes: dict[str, Any] = {"min_partitioning_data_size": 1 << 40, "max_partitioning_data_size": 1 << 40}
    attributes["compaction_data_size_base"] = 1
    assert pick_eden(*held, max_eden_stores_per_tablet=5, **attributes).inputs == ()
    found = pick_eden(*held, max_eden_stores_per_tablet=4, **attributes)
    assert (found.reason, numbers(found.inputs)) == (PickReason.CRITICAL, [1, 2, 3, 4])


MADE = st.builds(
    lambda number, size, age, revision, state: chunk(number, size, created_ms=NOW - age, revision=revision, **state),
    st.just(0), st.integers(1, 100) | st.integers(1, 1000 * MIB), st.integers(0, 2 * DAY), st.integers(0, 9),
    st.sampled_from([{}, {}, {}, {"is_busy": True}, {"is_damaged": True}, {"backoff_until_ms": NOW + 1}]),
)  # fmt: skip


@settings(max_examples=examples(300))
@given(
    st.lists(MADE, max_size=12),
    st.sampled_from(["store", "partition"]),
    st.sampled_from([None, None, DAY]),
    st.sampled_from([None, None, 5]),
    st.sampled_from([2, 5, 30]),
)
def test_whatever_the_reason_each_chunk_is_taken_or_left_out_with_a_reason(
    made: list[ChunkStore], mode: str, period: int | None, revision: int | None, limit: int
) -> None:
    held = [replace(each, number=number) for number, each in enumerate(made)]
    found = pick(
        *held, periodic_compaction_mode=mode, auto_compaction_period=period, forced_compaction_revision=revision,
        max_overlapping_store_count=limit,
    )  # fmt: skip
    taken = set(numbers(found.inputs))
    assert len(taken) == len(found.inputs)
    assert taken | found.left_out.keys() == set(range(len(held)))
    assert taken.isdisjoint(found.left_out)
    assert (found.reason is None) == (not taken)
    for each in found.inputs:
        assert not each.is_busy
        assert not each.is_damaged
        assert each.backoff_until_ms <= NOW
    if found.reason is not PickReason.WHOLE_PARTITION:
        assert len(taken) <= 5
    if found.reason is PickReason.REGULAR:
        assert len(taken) >= 3
