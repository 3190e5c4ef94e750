"""The major timestamp of a portion, and partitions that are dropped unread (C.8)."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pqbroker.pq.log.commit_timestamps import timestamp_of
from pqbroker.tables.sorted.picking.choice import PickReason
from pqbroker.tables.sorted.picking.facts import ChunkStore, TabletStores
from pqbroker.tables.sorted.picking.major_timestamp import expired, major_timestamp, major_timestamp_of_flush
from tests.tables.sorted.picking.stores import FAR_BARRIER, MIB, NOW, chunk, numbers, store, tablet

pytestmark = pytest.mark.spec("C.8")

HALF_AN_HOUR = 1_800_000
LEFT, RIGHT = (0, 9), (40_000, 40_001)
"""Keys in each of two partitions."""


def of(timestamp: int, number: int, **facts: Any) -> ChunkStore:
    """Return a chunk whose versions have one timestamp."""
    return chunk(number, MIB, least_timestamp=timestamp, greatest_timestamp=timestamp, **facts)


def major(whole: TabletStores, *inputs: int) -> int:
    return major_timestamp(whole, inputs)


def test_writes_at_10_and_20_and_a_deletion_at_30_give_a_major_timestamp_of_20() -> None:
    whole = tablet([of(10, 1), of(20, 2), of(30, 3)])
    assert major(whole, 1, 3) == 20
    assert major(whole, 2, 3) == 10
    assert major(whole, 1, 2) == 30


def test_it_never_passes_the_barrier() -> None:
    whole = tablet([of(10, 1), of(20, 2)], facts={"barrier": 15})
    assert major(whole, 1) == 15
    assert major(whole, 1, 2) == 15
    assert major(replace(whole, barrier=FAR_BARRIER), 1, 2) == FAR_BARRIER


def test_dynamic_stores_count_the_passive_ones_too() -> None:
    stores = {"active": store(1, least_timestamp=25), "passive": (store(2, least_timestamp=15),)}
    whole = tablet([of(30, 1)], facts=stores)
    assert major(whole, 1) == 15
    assert major(replace(whole, passive=()), 1) == 25


def test_an_empty_store_holds_nothing_back() -> None:
    whole = tablet([of(30, 1)], facts={"active": store(1, rows=0), "barrier": 40})
    assert major(whole, 1) == 40


def test_eden_counts_and_other_partitions_do_not() -> None:
    whole = tablet([of(30, 1, keys=LEFT)], [of(5, 2, keys=RIGHT)], eden=[of(12, 3)])
    assert major(whole, 1) == 12


def test_partition_mode_keeps_deletions_while_eden_holds_older_data() -> None:
    """All chunks of the partition are in the portion, and a deletion at 30 stays: Eden may have a value of 12."""
    deletion = 30
    whole = tablet([of(10, 1, keys=LEFT), of(deletion, 2, keys=LEFT)], [], eden=[of(12, 3)])
    assert major(whole, 1, 2) == 12 < deletion
    assert deletion < major(replace(whole, eden=()), 1, 2)


def test_a_portion_of_eden_minds_the_partitions_that_it_touches() -> None:
    whole = tablet([of(5, 2, keys=LEFT)], [of(7, 3, keys=RIGHT)], eden=[of(50, 1, keys=LEFT), of(60, 4)])
    assert major_timestamp(whole, [1]) == 5
    assert major_timestamp(whole, [4]) == 5
    right = replace(whole, eden=(replace(whole.eden[0], first_key=whole.partitions[1].pivot, last_key=b"\xff" * 4),))
    assert major_timestamp(right, [1]) == 7


def test_chunks_of_eden_that_are_not_in_the_portion_count() -> None:
    assert major_timestamp(tablet([], [], eden=[of(50, 1), of(20, 2)]), [1]) == 20


def test_one_large_old_chunk_holds_the_major_timestamp() -> None:
    """Fresh chunks that are compacted with each other have no version below it, so nothing of them is removed."""
    old = chunk(1, 900 * MIB, least_timestamp=timestamp_of(NOW - 10 * HALF_AN_HOUR))
    fresh = [of(timestamp_of(NOW) + number, number) for number in range(2, 5)]
    whole = tablet([old, *fresh])
    assert major(whole, 2, 3, 4) == old.least_timestamp < min(each.least_timestamp for each in fresh)
    assert major(whole, 1, 2, 3, 4) == FAR_BARRIER


def test_the_flush_of_a_store_minds_every_other_store_of_the_tablet() -> None:
    stores = {"active": store(1, least_timestamp=60), "passive": (store(2, least_timestamp=50),), "barrier": 70}
    whole = tablet([of(40, 3)], [], eden=[of(45, 4)], facts=stores)
    assert major_timestamp_of_flush(whole, 2) == 40
    assert major_timestamp_of_flush(tablet(facts=stores), 2) == 60
    assert major_timestamp_of_flush(tablet(facts=stores), 1) == 50
    assert major_timestamp_of_flush(tablet(facts={**stores, "active": None}), 2) == 70


def test_a_portion_is_of_chunks_that_the_tablet_has() -> None:
    with pytest.raises(AssertionError):
        major_timestamp(tablet([of(10, 1)]), [2])


EXPIRING: dict[str, Any] = {"min_data_versions": 0}
PAST = timestamp_of(NOW - HALF_AN_HOUR - 1)


def dropped(whole: TabletStores) -> list[int]:
    found = expired(whole, whole.partitions[0], NOW)
    assert found.reason is (PickReason.EXPIRED if found.inputs else None)
    return numbers(found.inputs)


def test_a_partition_of_expired_chunks_is_dropped_unread() -> None:
    assert dropped(tablet([of(PAST, 1), of(PAST - 5, 2)], **EXPIRING)) == [1, 2]


def test_at_the_age_itself_nothing_has_expired() -> None:
    edge = timestamp_of(NOW - HALF_AN_HOUR)
    assert dropped(tablet([of(edge, 1)], **EXPIRING)) == []
    assert dropped(tablet([of(PAST, 1), of(edge, 2)], **EXPIRING)) == []


def test_the_greater_of_both_ages_counts() -> None:
    assert dropped(tablet([of(PAST, 1)], min_data_ttl=HALF_AN_HOUR + 1, **EXPIRING)) == []
    assert dropped(tablet([of(PAST, 1)], max_data_ttl=HALF_AN_HOUR + 1, **EXPIRING)) == []


@pytest.mark.parametrize(
    "attributes", [{"min_data_versions": 1}, {**EXPIRING, "enable_discarding_expired_partitions": False}]
)
def test_nothing_is_dropped_where_a_version_is_kept_or_the_switch_is_off(attributes: dict[str, Any]) -> None:
    assert dropped(tablet([of(PAST, 1)], **attributes)) == []


@pytest.mark.parametrize("facts", [{"is_busy": True}, {"is_damaged": True}, {"backoff_until_ms": NOW + 1}])
def test_nothing_is_dropped_while_one_chunk_cannot_be_taken(facts: dict[str, Any]) -> None:
    assert dropped(tablet([of(PAST, 1), of(PAST, 2, **facts)], **EXPIRING)) == []


def test_nothing_is_dropped_while_another_store_has_older_versions() -> None:
    """A deletion among the chunks might hide them."""
    assert dropped(tablet([of(PAST, 1)], [], eden=[of(PAST - 1, 2)], **EXPIRING)) == []
    assert dropped(tablet([of(PAST, 1)], [], eden=[of(PAST, 2)], **EXPIRING)) == []
    assert dropped(tablet([of(PAST, 1)], [], eden=[of(PAST + 1, 2)], **EXPIRING)) == [1]
    assert dropped(tablet([of(PAST, 1)], facts={"active": store(1, least_timestamp=PAST - 1)}, **EXPIRING)) == []
    assert dropped(tablet([of(PAST, 1)], facts={"barrier": PAST}, **EXPIRING)) == []


def test_an_empty_partition_has_nothing_to_drop() -> None:
    assert dropped(tablet([], **EXPIRING)) == []


MADE = st.lists(st.tuples(st.integers(1, 50), st.booleans(), st.booleans()), min_size=1, max_size=10)


@given(MADE, st.integers(1, 60))
def test_no_store_beside_the_portion_has_a_version_below_the_major_timestamp(
    made: list[tuple[int, bool, bool]], barrier: int
) -> None:
    held = [of(timestamp, number, keys=LEFT) for number, (timestamp, _, _) in enumerate(made)]
    in_eden = {number for number, (_, is_in_eden, _) in enumerate(made) if is_in_eden}
    inputs = {number for number, (_, _, is_taken) in enumerate(made) if is_taken} - in_eden
    assume(inputs)
    whole = tablet(
        [each for each in held if each.number not in in_eden], [of(1, 99, keys=RIGHT)],
        eden=[each for each in held if each.number in in_eden], facts={"barrier": barrier},
    )  # fmt: skip
    found = major(whole, *inputs)
    others = [each.least_timestamp for each in held if each.number not in inputs]
    assert found == min([*others, barrier])
