"""Chunks of Eden that are partitioned (C.7)."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pqbroker.conf.sorted_attributes import sorted_in_force
from pqbroker.tables.sorted.picking.choice import Choice, LeftOut, PickReason
from pqbroker.tables.sorted.picking.facts import ChunkStore
from pqbroker.tables.sorted.picking.overlap import critical_keys, overlaps
from pqbroker.tables.sorted.picking.partitioning import pick_partitioning, portion_count
from tests.tables.sorted.picking.stores import DAY, GIB, MIB, NOW, chunk, chunks, numbers, tablet

pytestmark = pytest.mark.spec("C.7")

PERIODIC: dict[str, Any] = {"auto_compaction_period": DAY, "auto_compaction_period_splay_ratio": 0.0}


def pick(*eden: ChunkStore, of_partition: tuple[ChunkStore, ...] = (), **attributes: Any) -> Choice:
    whole = tablet(of_partition, [], eden=eden, **attributes)
    return pick_partitioning(whole, critical_keys(whole, overlaps(whole)), NOW)


def test_a_chunk_below_64_mib_waits_and_one_of_64_mib_is_partitioned() -> None:
    assert pick(chunk(1, 64 * MIB - 1)) == Choice(None, (), {1: LeftOut.SIZE})
    found = pick(chunk(1, 64 * MIB))
    assert (found.reason, numbers(found.inputs)) == (PickReason.REGULAR, [1])


def test_the_largest_chunks_are_taken_up_to_the_count() -> None:
    found = pick(*chunks(*(size * MIB for size in (10, 50, 20, 40, 30, 60))))
    assert numbers(found.inputs) == [6, 2, 4, 5, 3]
    assert found.left_out == {1: LeftOut.OVER_MAXIMUM}


def test_the_sum_has_at_most_max_partitioning_data_size() -> None:
    found = pick(*chunks(500 * MIB, 500 * MIB, 24 * MIB, 1 * MIB))
    assert numbers(found.inputs) == [2, 1, 3]
    assert found.left_out == {4: LeftOut.SIZE}


def test_the_greatest_sum_does_not_hold_for_the_least_number_of_chunks() -> None:
    assert numbers(pick(chunk(1, 3 * GIB), chunk(2, MIB)).inputs) == [1]
    assert numbers(pick(*chunks(3 * GIB, 2 * GIB, MIB), min_partitioning_store_count=2).inputs) == [1, 2]


def test_the_least_number_of_chunks_holds() -> None:
    assert pick(chunk(1, 900 * MIB), min_partitioning_store_count=2).inputs == ()


def test_small_chunks_wait_for_each_other() -> None:
    assert pick(*chunks(*[12 * MIB] * 5)).inputs == ()
    assert len(pick(*chunks(*[13 * MIB] * 5)).inputs) == 5


def test_one_partitioning_runs_at_a_time() -> None:
    whole = replace(tablet([], [], eden=[chunk(1, 500 * MIB)]), is_eden_partitioning=True)
    assert pick_partitioning(whole, {}, NOW) == Choice(None, (), {1: LeftOut.BUSY})


@pytest.mark.parametrize("facts", [{"is_busy": True}, {"is_damaged": True}, {"backoff_until_ms": NOW + 1}])
def test_what_no_task_may_read_is_left_out(facts: dict[str, Any]) -> None:
    found = pick(chunk(1, 500 * MIB, **facts), chunk(2, 70 * MIB))
    assert numbers(found.inputs) == [2]


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [({"forced_compaction_revision": 5}, PickReason.FORCED), (PERIODIC, PickReason.PERIODIC)],
)
def test_forced_and_due_chunks_come_first_whatever_their_size(attributes: dict[str, Any], reason: PickReason) -> None:
    old: dict[str, Any] = {"revision": 1, "created_ms": NOW - DAY}
    found = pick(chunk(1, MIB, **old), chunk(2, 900 * MIB, revision=9), **attributes)
    assert (found.reason, numbers(found.inputs)) == (reason, [1])
    assert found.left_out == {2: LeftOut.NOT_CALLED_FOR}


def test_forced_chunks_are_as_many_as_the_count_allows() -> None:
    found = pick(*(chunk(number, 70 * MIB, revision=1) for number in range(8)), forced_compaction_revision=5)
    assert numbers(found.inputs) == [0, 1, 2, 3, 4]
    assert found.left_out[5] is LeftOut.OVER_MAXIMUM


def test_many_small_chunks_that_are_forced_are_compacted_first() -> None:
    small = [chunk(number, MIB, revision=1) for number in range(3)]
    assert pick(*small, forced_compaction_revision=5).inputs == ()
    assert numbers(pick(*small[:2], forced_compaction_revision=5).inputs) == [0, 1]
    large = chunk(9, 70 * MIB, revision=1)
    assert numbers(pick(*small, large, forced_compaction_revision=5).inputs) == [9]


def test_one_small_chunk_over_a_critical_key_is_partitioned_where_no_compaction_helps() -> None:
    found = pick(chunk(1, MIB), of_partition=(chunk(2, MIB, keys=(0, 9)),), max_overlapping_store_count=2)
    assert (found.reason, numbers(found.inputs)) == (PickReason.CRITICAL, [1])


def test_while_a_compaction_can_help_a_small_chunk_is_not_partitioned() -> None:
    below = (chunk(2, MIB, keys=(0, 9)), chunk(3, MIB, keys=(0, 9)))
    assert pick(chunk(1, MIB), of_partition=below, max_overlapping_store_count=3).inputs == ()
    assert pick(*chunks(MIB, MIB), of_partition=below[:1], max_overlapping_store_count=3).inputs == ()
    busy = chunk(4, MIB, is_busy=True)
    assert pick(chunk(1, MIB), busy, of_partition=below[:1], max_overlapping_store_count=3).inputs == ()


def test_eden_at_its_own_limit_is_partitioned_though_the_least_number_is_not_reached() -> None:
    attributes: dict[str, Any] = {"min_partitioning_store_count": 5, "max_eden_stores_per_tablet": 2}
    apart = chunk(1, 70 * MIB, keys=(0, 40_000)), chunk(2, 80 * MIB, keys=(50_000, 60_000))
    found = pick(*apart, **attributes)
    assert (found.reason, numbers(found.inputs)) == (PickReason.CRITICAL, [2, 1])
    assert pick(apart[0], **attributes).inputs == ()


@given(
    st.lists(st.integers(1, 2000), max_size=12).map(lambda sizes: sorted(sizes, reverse=True)),
    st.integers(1, 4), st.integers(0, 3), st.integers(1, 500), st.integers(0, 1000),
)  # fmt: skip
def test_a_portion_is_the_largest_prefix_within_all_bounds(
    sizes: list[int], least: int, more: int, least_size: int, more_size: int
) -> None:
    attributes = sorted_in_force({
        "min_partitioning_store_count": least, "max_partitioning_store_count": least + more,
        "min_partitioning_data_size": least_size, "max_partitioning_data_size": least_size + more_size,
    })  # fmt: skip
    fitting = [
        count
        for count in range(least, min(least + more, len(sizes)) + 1)
        if sum(sizes[:count]) >= least_size and (sum(sizes[:count]) <= least_size + more_size or count == least)
    ]
    assert portion_count(sizes, attributes) == max(fitting, default=0)
