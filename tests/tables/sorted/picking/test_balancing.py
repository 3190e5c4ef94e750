"""Splits and merges of partitions (C.7, K.3)."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pqbroker.conf.sorted_attributes import sorted_in_force
from pqbroker.tables.sorted.picking.balancing import PartitionSplit, pick_merges, pick_splits, split_parts
from pqbroker.tables.sorted.picking.facts import ChunkStore, TabletStores
from pqbroker.tables.sorted.picking.overlap import overlaps
from tests.tables.sorted.picking.stores import KEYS_END, MIB, NOW, chunk, key, tablet

pytestmark = pytest.mark.spec("C.7", "K.3")

LIMITS = sorted_in_force({})


def splits(whole: TabletStores, now_ms: int = NOW) -> tuple[PartitionSplit, ...]:
    return pick_splits(whole, overlaps(whole), now_ms)


def merges(whole: TabletStores, now_ms: int = NOW) -> list[tuple[int, int]]:
    """Return the pairs of partitions that are merged, by index."""
    pivots = [each.pivot for each in whole.partitions]
    found = pick_merges(whole, splits(whole, now_ms), now_ms)
    return [(pivots.index(each.left.pivot), pivots.index(each.right.pivot)) for each in found]


def row(*sizes: float) -> tuple[ChunkStore, ...]:
    """Return chunks side by side that do not overlap."""
    width = KEYS_END // len(sizes)
    return tuple(
        chunk(number, size, keys=(number * width, number * width + width - 1)) for number, size in enumerate(sizes)
    )


def test_a_partition_of_320_mib_stays_and_one_byte_more_splits_it_in_two() -> None:
    assert splits(tablet([chunk(1, 320 * MIB)])) == ()
    (found,) = splits(tablet([chunk(1, 320 * MIB + 1)]))
    assert (found.parts, found.pivots) == (2, ())
    assert found.least_share == pytest.approx(96 / 320)


def test_a_partition_splits_into_more_than_two_only_far_past_the_threshold() -> None:
    assert split_parts(512 * MIB, 100, LIMITS) == 2
    assert split_parts(640 * MIB, 100, LIMITS) == 2
    assert split_parts(640 * MIB + 1, 100, LIMITS) == 3
    assert split_parts(2560 * MIB, 100, LIMITS) == 11
    assert split_parts(320 * MIB, 100, LIMITS) == 1


def test_parts_have_room_for_the_least_size() -> None:
    sizes = {"min_partition_data_size": 200 * MIB, "desired_partition_data_size": 201 * MIB}
    attributes = sorted_in_force({**sizes, "max_partition_data_size": 202 * MIB})
    assert split_parts(399 * MIB, 100, attributes) == 1
    assert split_parts(799 * MIB, 100, attributes) == 3


def test_partitions_are_at_most_max_partition_count() -> None:
    large = chunk(1, 2560 * MIB)
    assert splits(tablet([large], max_partition_count=1)) == ()
    assert [each.parts for each in splits(tablet([large], max_partition_count=4))] == [4]
    whole = tablet([large], [chunk(2, 2560 * MIB, keys=(40_000, 50_000))], max_partition_count=14)
    assert [each.parts for each in splits(whole)] == [11, 3]


def test_no_partition_is_split_while_eden_is_partitioned() -> None:
    whole = tablet([chunk(1, 400 * MIB)])
    assert splits(whole)
    assert splits(replace(whole, is_eden_partitioning=True)) == ()


def test_a_partition_that_a_task_reads_or_that_backs_off_is_not_split() -> None:
    assert splits(tablet([chunk(1, 400 * MIB, is_busy=True)])) == ()
    whole = tablet([chunk(1, 400 * MIB)])
    later = replace(whole, partitions=(replace(whole.partitions[0], backoff_until_ms=NOW + 1),))
    assert splits(later) == ()
    assert len(splits(later, NOW + 1)) == 1


def test_a_partition_with_its_limit_of_chunks_over_a_key_is_not_split() -> None:
    held = [chunk(number, 200 * MIB) for number in range(3)]
    assert splits(tablet(held, max_overlapping_store_count=4))
    assert splits(tablet(held, max_overlapping_store_count=3)) == ()


def test_eden_takes_the_chunks_of_splits_within_its_limits() -> None:
    whole = tablet([chunk(1, 400 * MIB)], [chunk(2, 400 * MIB, keys=(40_000, 50_000))])
    assert len(splits(whole)) == 2
    for limit in ({"max_eden_stores_per_tablet": 2}, {"max_eden_data_size_for_splitting": 400 * MIB}):
        attributes = sorted_in_force(limit)
        assert len(splits(replace(whole, attributes=attributes))) == 1
    full = replace(whole, attributes=sorted_in_force({"max_eden_data_size_for_splitting": MIB}), eden=(chunk(9, MIB),))
    assert splits(full) == ()


def test_a_partition_too_large_for_eden_leaves_room_for_the_next_one() -> None:
    many = [chunk(number, 100 * MIB, keys=(0, 10)) for number in range(10)]
    whole = tablet(many, [chunk(20, 400 * MIB, keys=(40_000, 50_000))], max_eden_stores_per_tablet=5)
    assert [each.partition.pivot for each in splits(whole)] == [whole.partitions[1].pivot]


def test_a_partition_of_more_than_20_chunks_is_split_between_them_at_once() -> None:
    whole = tablet(row(*[20 * MIB] * 20))
    assert [each.pivots for each in splits(whole)] == [()]
    whole = tablet(row(*[20 * MIB] * 21))
    (found,) = splits(whole)
    width = KEYS_END // 21
    assert found.pivots == (key(13 * width),)
    assert found.parts == 2


def test_between_chunks_that_overlap_there_is_no_border() -> None:
    across = chunk(99, MIB, keys=(0, KEYS_END))
    (found,) = splits(tablet([*row(*[20 * MIB] * 21), across]))
    assert (found.parts, found.pivots) == (2, ())


def test_parts_between_chunks_have_at_least_the_least_size() -> None:
    """Smaller ones would be merged at once, and split again."""
    small = tablet(row(*[5 * MIB] * 30))
    assert splits(small) == ()
    left_over = tablet(row(*[14 * MIB] * 25))
    (found,) = splits(left_over)
    assert found.pivots == ()


def test_a_split_between_chunks_waits_for_no_backoff_and_needs_no_room_in_eden() -> None:
    whole = tablet(row(*[20 * MIB] * 21), max_eden_stores_per_tablet=2)
    later = replace(whole, partitions=(replace(whole.partitions[0], backoff_until_ms=NOW + 1),))
    assert splits(later)[0].pivots


def test_a_partition_below_96_mib_with_eden_is_merged_with_its_right_neighbour() -> None:
    large = chunk(2, 200 * MIB, keys=(40_000, 50_000))
    assert merges(tablet([chunk(1, 96 * MIB - 1)], [large])) == [(0, 1)]
    assert merges(tablet([chunk(1, 96 * MIB)], [large])) == []
    assert merges(tablet([chunk(1, 95 * MIB)], [large], eden=[chunk(9, MIB)])) == []
    assert merges(tablet([chunk(1, 94 * MIB)], [large], eden=[chunk(9, MIB)])) == [(0, 1)]


def test_the_last_partition_is_merged_with_its_left_neighbour_and_the_only_one_with_none() -> None:
    assert merges(tablet([chunk(1, 200 * MIB, keys=(0, 9))], [])) == [(0, 1)]
    assert merges(tablet([])) == []


def test_each_partition_is_merged_once_at_a_time() -> None:
    assert merges(tablet([], [], [], [], [])) == [(0, 1), (2, 3)]
    assert merges(tablet([], [], [], [])) == [(0, 1), (2, 3)]


def test_a_partition_that_is_split_now_is_not_merged() -> None:
    assert merges(tablet([], [chunk(1, 400 * MIB, keys=(40_000, 50_000))])) == []


def test_no_partition_is_merged_that_a_task_reads_or_that_backs_off() -> None:
    assert merges(tablet([chunk(1, MIB, keys=(0, 9), is_busy=True)], [])) == []
    whole = tablet([], [])
    right = replace(whole.partitions[1], backoff_until_ms=NOW + 1)
    assert merges(replace(whole, partitions=(whole.partitions[0], right))) == []


def test_the_switch_turns_splits_and_merges_off() -> None:
    off: dict[str, Any] = {"enable_compaction_and_partitioning": False}
    assert splits(tablet([chunk(1, 400 * MIB)], **off)) == ()
    assert merges(tablet([], [], **off)) == []


@given(st.lists(st.integers(1, 330), min_size=21, max_size=60))
def test_parts_between_chunks_are_neither_split_between_nor_merged_again(sizes: list[int]) -> None:
    whole = tablet(row(*(size * MIB for size in sizes)))
    found = splits(whole)
    if not found or not found[0].pivots:
        return
    borders = [b"", *found[0].pivots, b"\xff" * 5]
    for left, right in pairwise(borders):
        part = [each for each in whole.partitions[0].chunks if left <= each.first_key < right]
        assert all(each.last_key < right for each in part)
        assert sum(each.compressed_bytes for each in part) >= 96 * MIB
