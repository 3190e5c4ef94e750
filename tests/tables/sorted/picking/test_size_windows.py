"""Chunks picked by size: the seed's examples, the maximum, the bound on how often a row is rewritten (C.5, K.3)."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pqbroker.conf.sorted_attributes import SortedAttributes, sorted_in_force
from pqbroker.tables.sorted.picking.choice import LeftOut, PickReason
from pqbroker.tables.sorted.picking.compaction import pick_in_partition, size_window
from tests.tables.sorted.picking.stores import KIB, MIB, NOW, chunks, numbers, sizes_in_mib, tablet

pytestmark = pytest.mark.spec("C.5", "K.3")


def window(*sizes: float, **attributes: object) -> list[float]:
    """Return the sizes that are picked together."""
    found = size_window([int(size) for size in sizes], sorted_in_force(attributes))
    return list(sizes[found.start : found.stop])


def is_admissible(sizes: list[int], attributes: SortedAttributes) -> bool:
    """Return what the seed's three rules say of a portion."""
    count = len(sizes)
    if not attributes.min_compaction_store_count <= count <= attributes.max_compaction_store_count:
        return False
    for index in range(1, count):
        before, size = sum(sizes[:index]), sizes[index]
        is_small = before + size <= attributes.compaction_data_size_base
        if not is_small and size > attributes.compaction_data_size_ratio * before:
            return False
    return True


def test_1_kb_1_mb_10_mb_is_admissible() -> None:
    assert window(KIB, MIB, 10 * MIB) == [KIB, MIB, 10 * MIB]


def test_10_20_50_150_mb_is_admissible() -> None:
    assert window(10 * MIB, 20 * MIB, 50 * MIB, 150 * MIB) == [10 * MIB, 20 * MIB, 50 * MIB, 150 * MIB]


def test_1_10_100_mb_is_not_admissible() -> None:
    assert window(MIB, 10 * MIB, 100 * MIB) == []


def test_of_half_half_1_15_16_30_60_the_window_with_the_most_chunks_is_taken() -> None:
    sizes = [size * MIB for size in (0.5, 0.5, 1, 15, 16, 30, 60)]
    assert window(*sizes) == [size * MIB for size in (1, 15, 16, 30, 60)]
    found = pick_in_partition(tablet(chunks(*sizes)), tablet(chunks(*sizes)).partitions[0], None, NOW)
    assert found.reason is PickReason.REGULAR
    assert sizes_in_mib(found.inputs) == [1, 15, 16, 30, 60]
    assert found.left_out == {1: LeftOut.OVER_MAXIMUM, 2: LeftOut.OVER_MAXIMUM}


def test_the_base_counts_the_sum_with_the_candidate() -> None:
    """1, 15.5 and 15.6 MB: 16.5 is above the base of 16, and 15.5 above twice 1 (H14)."""
    assert window(MIB, 15.5 * MIB, 15.6 * MIB) == []
    assert window(MIB, 15 * MIB, 16 * MIB) == [MIB, 15 * MIB, 16 * MIB]


def test_a_chunk_of_exactly_the_ratio_fits_and_one_byte_more_does_not() -> None:
    assert window(20 * MIB, 20 * MIB, 80 * MIB) == [20 * MIB, 20 * MIB, 80 * MIB]
    assert window(20 * MIB, 20 * MIB, 80 * MIB + 1) == []


def test_fewer_chunks_than_the_minimum_are_left_alone() -> None:
    assert window(MIB, MIB) == []
    assert window(MIB, MIB, min_compaction_store_count=2) == [MIB, MIB]


def test_the_leftmost_of_the_windows_with_the_most_chunks_is_taken() -> None:
    sizes = [MIB + number for number in range(7)]
    assert window(*sizes) == sizes[:5]
    assert window(MIB, 2 * MIB, 3 * MIB, 100 * MIB, 100 * MIB, 110 * MIB) == [MIB, 2 * MIB, 3 * MIB]


def test_the_maximum_is_never_exceeded_by_one() -> None:
    assert len(window(*[MIB] * 6)) == 5
    assert len(window(*[MIB] * 3, max_compaction_store_count=3)) == 3
    assert len(window(*[MIB] * 4, max_compaction_store_count=3)) == 3


def test_a_lower_ratio_and_base_take_less() -> None:
    sizes = [10 * MIB, 20 * MIB, 50 * MIB]
    assert window(*sizes) == sizes
    assert window(*sizes, compaction_data_size_ratio=1.0, compaction_data_size_base=1) == []


def test_what_is_picked_does_not_depend_on_the_order_of_the_chunks() -> None:
    held = chunks(*(size * MIB for size in (60, 1, 16, 0.5, 30, 0.5, 15)))
    found = pick_in_partition(tablet(held), tablet(held).partitions[0], None, NOW)
    assert sizes_in_mib(found.inputs) == [1, 15, 16, 30, 60]
    assert numbers(found.inputs) == [2, 7, 3, 5, 1]


SIZES = st.lists(st.integers(1, 40) | st.sampled_from([1, 2, 4, 8, 16, 100, 1000]), max_size=12).map(sorted)


RATIOS = st.sampled_from([1.0, 1.5, 2.0, 4.0])


@given(SIZES, st.integers(2, 4), st.integers(0, 3), st.sampled_from([1, 5, 16, 50]), RATIOS)
def test_a_window_is_the_longest_admissible_one(
    sizes: list[int], least: int, more: int, base: int, ratio: float
) -> None:
    attributes = sorted_in_force({
        "min_compaction_store_count": least, "max_compaction_store_count": least + more,
        "compaction_data_size_base": base, "compaction_data_size_ratio": ratio,
    })  # fmt: skip
    ranges = [range(start, end) for start in range(len(sizes)) for end in range(start, len(sizes) + 1)]
    fitting = [each for each in ranges if is_admissible([sizes[index] for index in each], attributes)]
    wanted = max(fitting, key=lambda each: (len(each), -each.start), default=range(0))
    assert size_window(sizes, attributes) == wanted


@given(st.lists(st.integers(1, 100), min_size=1, max_size=150), RATIOS)
def test_with_base_1_a_row_is_compacted_at_most_log_of_the_tablets_size_times(sizes: list[int], ratio: float) -> None:
    attributes = sorted_in_force({"compaction_data_size_base": 1, "compaction_data_size_ratio": ratio})
    growth = 1 + 1 / ratio
    held: list[tuple[int, list[tuple[int, int]]]] = []
    """Chunks: their size, and of each flush within it the size and how often it was compacted."""
    for size in sizes:
        held.append((size, [(size, 0)]))
        held.sort(key=lambda each: each[0])
        while found := size_window([each[0] for each in held], attributes):
            taken = held[found.start : found.stop]
            rows = [(flushed, count + 1) for _, parts in taken for flushed, count in parts]
            held[found.start : found.stop] = [(sum(each[0] for each in taken), rows)]
            held.sort(key=lambda each: each[0])
    for total, parts in held:
        for flushed, count in parts:
            assert flushed * growth**count <= total * (1 + 1e-9)
            assert count <= math.log(sum(sizes), growth) + 1e-9
