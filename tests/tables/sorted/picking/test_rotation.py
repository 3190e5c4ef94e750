"""Rotation of dynamic stores: overflow, period, memory (C.3, C.4)."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pqbroker.conf.sorted_attributes import DYNAMIC_STORES_MAX
from pqbroker.tables.sorted.picking.due_times import splay
from pqbroker.tables.sorted.picking.rotation import (
    RotationReason,
    StoreMemory,
    is_full,
    is_memory_ample,
    rotation_reason,
    rotations_for_memory,
)
from tests.tables.sorted.picking.stores import MIB, NOW, store, tablet

pytestmark = pytest.mark.spec("C.3", "C.4")


def reason(now_ms: int = NOW, facts: dict[str, Any] | None = None, **attributes: Any) -> RotationReason | None:
    """Return what rotates a store of these facts, the only one of its tablet."""
    return rotation_reason(tablet(facts={"active": store(**(facts or {}))}, **attributes), now_ms)


def test_699_999_rows_stay_and_700_000_rotate() -> None:
    assert reason(facts={"rows": 699_999}) is None
    assert reason(facts={"rows": 700_000}) is RotationReason.OVERFLOW


def test_the_same_for_bytes() -> None:
    """Seven tenths of 1 GiB are 751 619 276.8 bytes."""
    assert reason(facts={"size": 751_619_276}) is None
    assert reason(facts={"size": 751_619_277}) is RotationReason.OVERFLOW


def test_values_and_versions_overflow_too() -> None:
    assert reason(facts={"values": 700_000_000}) is RotationReason.OVERFLOW
    assert reason(facts={"timestamps": 6_999_999}) is None
    assert reason(facts={"timestamps": 7_000_000}) is RotationReason.OVERFLOW


@pytest.mark.parametrize("percent", range(1, 101))
def test_a_threshold_in_percent_is_exact(percent: int) -> None:
    attributes: dict[str, Any] = {"max_dynamic_store_row_count": 100, "dynamic_store_overflow_threshold": percent / 100}
    assert reason(facts={"rows": percent}, **attributes) is RotationReason.OVERFLOW
    assert reason(facts={"rows": percent - 1}, **attributes) is None


def test_the_periodic_flush_comes_at_period_and_splay() -> None:
    window = 900_000 + 60_000 * splay(7, 1)
    assert reason(NOW + int(window) - 1) is None
    assert reason(NOW + int(window) + 1) is RotationReason.PERIODIC
    assert reason(NOW + 899_999, dynamic_store_flush_period_splay=0) is None
    assert reason(NOW + 900_000, dynamic_store_flush_period_splay=0) is RotationReason.PERIODIC
    assert reason(NOW + 960_000) is RotationReason.PERIODIC


def test_without_a_period_age_rotates_nothing() -> None:
    assert reason(NOW + 10**12, dynamic_store_auto_flush_period=None) is None


def test_an_empty_store_never_rotates() -> None:
    assert reason(NOW + 10**12, facts={"rows": 0, "size": 1 << 40}) is None
    assert rotations_for_memory([StoreMemory(1, "a", 0)], 1) == []


def test_nothing_rotates_without_an_active_store_or_while_it_is_switched_off() -> None:
    assert rotation_reason(tablet(), NOW) is None
    assert reason(facts={"rows": 700_000}, enable_store_rotation=False) is None


def test_stores_that_wait_for_their_flush_are_bounded() -> None:
    full = store(rows=700_000)
    passive = tuple(store(number) for number in range(2, DYNAMIC_STORES_MAX + 1))
    held = tablet(facts={"active": full, "passive": passive[:-1]})
    assert rotation_reason(held, NOW) is RotationReason.OVERFLOW
    assert rotation_reason(replace(held, passive=passive), NOW) is None


def test_a_store_is_full_at_its_hard_limit() -> None:
    attributes = tablet().attributes
    assert not is_full(store(rows=999_999), attributes)
    assert is_full(store(rows=1_000_000), attributes)
    assert is_full(store(size=1 << 30), attributes)


def test_when_memory_is_short_the_largest_store_rotates_first_and_no_more_than_needed() -> None:
    held = [StoreMemory(1, "a", 30 * MIB), StoreMemory(2, "b", 35 * MIB), StoreMemory(3, "c", 10 * MIB)]
    assert rotations_for_memory(held, 100 * MIB) == []
    held.append(StoreMemory(4, "d", 1))
    assert rotations_for_memory(held, 100 * MIB) == [2]
    assert rotations_for_memory(held, 50 * MIB) == [2, 1]


def test_one_table_takes_at_most_half() -> None:
    held = [StoreMemory(1, "a", 20 * MIB), StoreMemory(2, "a", 18 * MIB), StoreMemory(3, "b", 25 * MIB)]
    assert rotations_for_memory(held, 100 * MIB) == [1]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 1000)), max_size=8), st.integers(1, 9000))
def test_no_store_rotates_while_memory_is_ample(sizes: list[tuple[int, int]], limit: int) -> None:
    held = [StoreMemory(number, str(table), size) for number, (table, size) in enumerate(sizes)]
    if is_memory_ample(sum(size for _, size in sizes), limit):
        assert rotations_for_memory(held, limit) == []
    assert not is_memory_ample(limit // 2 + 1, limit), "a table that alone has its half is looked at"


def test_a_tablet_that_cannot_rotate_is_passed_over() -> None:
    held = [StoreMemory(1, "a", 80 * MIB, can_rotate=False), StoreMemory(2, "b", 20 * MIB)]
    assert rotations_for_memory(held, 100 * MIB) == [2]


def test_small_stores_rotate_too_when_they_are_many() -> None:
    held = [StoreMemory(number, str(number), 1000) for number in range(1000)]
    assert rotations_for_memory(held, 1_000_000) == list(range(250))


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 1000)), max_size=20), st.integers(1, 3000))
def test_what_is_left_active_is_small_enough(sizes: list[tuple[int, int]], limit: int) -> None:
    held = [StoreMemory(number, str(table), size) for number, (table, size) in enumerate(sizes)]
    rotated = set(rotations_for_memory(held, limit))
    left = [each for each in held if each.tablet_id not in rotated]
    assert sum(each.active_bytes for each in left) <= limit * 0.75
    for table in range(6):
        assert sum(each.active_bytes for each in left if each.table == str(table)) <= limit * 0.75 / 2
    assert min((held[number].active_bytes for number in rotated), default=1) > 0
