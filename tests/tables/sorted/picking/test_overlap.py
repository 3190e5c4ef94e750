"""Overlapping store count: chunks over one key, of Eden and of each partition (C.2, K.3)."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pqbroker.tables.sorted.picking.facts import ChunkStore, partition_of
from pqbroker.tables.sorted.picking.overlap import chunks_over, critical_keys, overlapping_store_count, overlaps
from tests.tables.sorted.picking.stores import MIB, chunk, chunks, key, numbers, store, tablet

pytestmark = pytest.mark.spec("C.2", "K.3")

KEYS = 40


def test_one_chunk_has_an_overlap_of_1_and_none_of_0() -> None:
    assert overlapping_store_count([chunk(1)]) == 1
    assert overlapping_store_count([]) == 0
    assert [each.count for each in overlaps(tablet([chunk(1)]))] == [1]
    assert [each.count for each in overlaps(tablet([]))] == [0]


def test_dynamic_stores_do_not_count() -> None:
    held = tablet([chunk(1)], facts={"active": store(1), "passive": (store(2), store(3))})
    assert overlaps(held)[0].count == 1


def test_chunks_that_do_not_overlap_count_as_one() -> None:
    held = [chunk(number, keys=(number * 10, number * 10 + 9)) for number in range(5)]
    assert overlapping_store_count(held) == 1
    assert overlapping_store_count([*held, chunk(9, keys=(5, 15))]) == 2


def test_the_first_and_the_last_key_of_a_chunk_are_in_it() -> None:
    assert overlapping_store_count([chunk(1, keys=(0, 10)), chunk(2, keys=(10, 20))]) == 2
    assert overlapping_store_count([chunk(1, keys=(0, 10)), chunk(2, keys=(11, 20))]) == 1
    assert numbers(chunks_over(key(10), [chunk(1, keys=(0, 10)), chunk(2, keys=(10, 20))])) == [1, 2]
    assert numbers(chunks_over(key(11), [chunk(1, keys=(0, 10)), chunk(2, keys=(10, 20))])) == [2]


def test_eden_counts_in_each_partition_that_it_touches() -> None:
    left, right = 10, 60_000
    held = tablet(
        [chunk(1, keys=(left, left))], [chunk(2, keys=(right, right))],
        eden=[chunk(3), chunk(4, keys=(50_000, 60_000))],
    )  # fmt: skip
    assert [(each.count, each.key) for each in overlaps(held)] == [(2, key(left)), (3, key(right))]


def test_an_eden_chunk_that_begins_left_of_a_partition_counts_at_its_pivot() -> None:
    held = tablet([], [], eden=[chunk(1, keys=(0, 32_768)), chunk(2, keys=(5, 40_000))])
    assert [each.count for each in overlaps(held)] == [2, 2]


def test_a_partition_is_critical_from_the_limit_on() -> None:
    held = tablet(chunks(*[MIB] * 29), max_overlapping_store_count=30)
    assert critical_keys(held, overlaps(held)) == {}
    held = tablet(chunks(*[MIB] * 30), max_overlapping_store_count=30)
    assert critical_keys(held, overlaps(held)) == {0: key(0)}
    held = tablet(chunks(*[MIB] * 10), [], critical_overlapping_store_count=10)
    assert critical_keys(held, overlaps(held)) == {0: key(0), 1: held.partitions[1].pivot}


CHUNKS = st.lists(
    st.tuples(st.integers(0, KEYS - 1), st.integers(0, KEYS - 1)).map(lambda pair: (min(pair), max(pair))), max_size=30
)
PIVOTS = st.sets(st.integers(1, KEYS - 1), max_size=4).map(sorted)


@given(CHUNKS, PIVOTS)
def test_overlap_is_what_counting_over_every_key_finds(ranges: list[tuple[int, int]], cuts: list[int]) -> None:
    held = [chunk(number, keys=keys) for number, keys in enumerate(ranges)]
    assert overlapping_store_count(held) == max((_covering(number, held) for number in range(KEYS)), default=0)
    pivots = [b"", *map(key, cuts)]
    places = [partition_of(each.first_key, each.last_key, pivots, None) for each in held]
    placed = list(zip(held, places, strict=True))
    of_partitions = [[each for each, place in placed if place == index] for index in range(len(pivots))]
    whole = tablet(*of_partitions, eden=[each for each, place in placed if place is None])
    ends = [*pivots[1:], None]
    partitions = tuple(
        replace(each, pivot=pivot, end=end)
        for each, pivot, end in zip(whole.partitions, pivots, ends, strict=True)
    )  # fmt: skip
    borders = [0, *cuts, KEYS]
    for index, found in enumerate(overlaps(replace(whole, partitions=partitions))):
        inside = range(borders[index], borders[index + 1])
        assert found.count == max(_covering(number, held) for number in inside)
        assert found.count == len(chunks_over(found.key, held))
        assert partition_of(found.key, found.key, pivots, None) == index


def test_a_chunk_belongs_to_the_partition_that_it_lies_within_or_to_eden() -> None:
    pivots = [b"", key(10), key(20)]
    assert partition_of(key(0), key(9), pivots, None) == 0
    assert partition_of(key(10), key(19), pivots, None) == 1
    assert partition_of(key(20), key(99), pivots, None) == 2
    assert partition_of(key(0), key(10), pivots, None) is None
    assert partition_of(key(9), key(20), pivots, None) is None


def test_a_chunk_that_crosses_the_tablets_border_belongs_to_eden() -> None:
    pivots = [key(10), key(20)]
    assert partition_of(key(20), key(29), pivots, key(30)) == 1
    assert partition_of(key(20), key(30), pivots, key(30)) is None
    assert partition_of(key(9), key(12), pivots, key(30)) is None
    assert partition_of(key(5), key(7), pivots, key(30)) is None


def _covering(number: int, held: list[ChunkStore]) -> int:
    return len([each for each in held if each.first_key <= key(number) <= each.last_key])
