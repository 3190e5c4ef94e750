"""Pivots from samples (C.7, D.3, K.3)."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pqbroker.tables.sorted.picking.pivots import KeySample, choose_pivots, split_pivots
from tests.tables.sorted.picking.stores import key

pytestmark = pytest.mark.spec("C.7", "D.3", "K.3")


def samples(*weights: int, first: int = 0) -> list[KeySample]:
    return [KeySample(key(number), weight) for number, weight in enumerate(weights, first)]


def test_pivots_divide_the_weight_evenly() -> None:
    assert choose_pivots(samples(*[1] * 100), 2, b"", None) == (key(50),)
    assert choose_pivots(samples(*[1] * 100), 4, b"", None) == (key(25), key(50), key(75))


def test_weights_count_and_not_the_number_of_keys() -> None:
    assert choose_pivots(samples(10, 10, 10, 30), 2, b"", None) == (key(3),)
    assert choose_pivots(samples(30, 10, 10, 10), 2, b"", None) == (key(1),)


def test_samples_of_several_chunks_add_up() -> None:
    held = [*samples(1, 1, 1, 1), *samples(1, 1, 1, 1), *samples(0, 0, 100)]
    assert choose_pivots(held, 2, b"", None) in {(key(2),), (key(3),)}


def test_pivots_lie_within_the_range() -> None:
    assert choose_pivots(samples(*[1] * 100), 2, key(40), key(60)) == (key(50),)
    assert choose_pivots(samples(5, 5, first=10), 2, key(10), None) == (key(11),)
    assert choose_pivots(samples(5), 2, key(0), None) == ()


def test_one_key_gives_no_pivot_and_few_keys_few_of_them() -> None:
    assert choose_pivots([], 2, b"", None) == ()
    assert choose_pivots(samples(5), 3, key(0), None) == ()
    assert choose_pivots(samples(1, 1), 5, key(0), None) == (key(1),)


def test_a_split_whose_parts_would_be_merged_again_is_none() -> None:
    assert split_pivots(samples(*[1] * 100), 2, b"", None, 0.3) == (key(50),)
    assert split_pivots(samples(1, 98, 1), 2, b"", None, 0.3) == ()


def test_a_split_into_too_many_parts_is_made_into_fewer() -> None:
    held = samples(50, 30, 20)
    assert split_pivots(held, 3, b"", None, 0.2) == (key(1), key(2))
    assert split_pivots(held, 3, b"", None, 0.25) == (key(1),)


WEIGHTS = st.lists(st.integers(0, 100), max_size=40)


@given(WEIGHTS, st.integers(1, 8), st.integers(0, 40), st.integers(0, 40))
def test_pivots_ascend_within_the_range_and_are_as_many_as_keys_allow(
    weights: list[int], parts: int, low: int, high: int
) -> None:
    found = choose_pivots(samples(*weights), parts, key(low), key(high))
    assert list(found) == sorted(set(found))
    assert all(key(low) < each < key(high) for each in found)
    inside = len([number for number in range(len(weights)) if low < number < high])
    assert len(found) == min(parts - 1, inside)


@given(st.lists(st.integers(1, 3), min_size=60, max_size=200), st.integers(2, 8))
def test_parts_of_even_samples_are_about_equal(weights: list[int], parts: int) -> None:
    found = choose_pivots(samples(*weights), parts, b"", None)
    borders = [0, *(int.from_bytes(each, "big") for each in found), len(weights)]
    for left, right in pairwise(borders):
        assert abs(sum(weights[left:right]) - sum(weights) / parts) <= 3
