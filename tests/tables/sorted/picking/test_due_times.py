"""Times of periodic work, and what is forced (C.3, C.6, K.3)."""

import pytest

from pqbroker.conf.sorted_attributes import sorted_in_force
from pqbroker.tables.sorted.picking.due_times import (
    compaction_due_ms,
    flush_due_ms,
    is_due,
    is_forced,
    splay,
)
from tests.tables.sorted.picking.stores import DAY, NOW, chunk, store

pytestmark = pytest.mark.spec("C.3", "C.6", "K.3")


def test_splay_is_from_0_to_1_and_the_same_at_each_look() -> None:
    found = [splay(7, number) for number in range(1000)]
    assert found == [splay(7, number) for number in range(1000)]
    assert min(found) >= 0
    assert max(found) <= 1


def test_splay_is_spread_evenly_over_chunks_and_over_tablets() -> None:
    for found in ([splay(7, number) for number in range(1000)], [splay(number, 1) for number in range(1000)]):
        tenths = [sum(tenth / 10 <= each < (tenth + 1) / 10 for each in found) for tenth in range(10)]
        assert min(tenths) > 50
        assert max(tenths) < 150


def test_compaction_is_due_at_creation_plus_period_times_one_plus_r() -> None:
    attributes = sorted_in_force({"auto_compaction_period": DAY, "auto_compaction_period_splay_ratio": 0.5})
    held = chunk(3)
    due_ms = compaction_due_ms(7, held, attributes)
    assert due_ms == NOW + DAY * (1 + 0.5 * splay(7, 3))
    assert NOW + DAY <= due_ms <= NOW + 1.5 * DAY
    assert not is_due(7, held, attributes, int(due_ms) - 1)
    assert is_due(7, held, attributes, int(due_ms) + 1)


def test_without_a_splay_ratio_a_chunk_is_due_at_the_period_exactly() -> None:
    attributes = sorted_in_force({"auto_compaction_period": DAY, "auto_compaction_period_splay_ratio": 0})
    assert not is_due(7, chunk(3), attributes, NOW + DAY - 1)
    assert is_due(7, chunk(3), attributes, NOW + DAY)


@pytest.mark.parametrize("mode", ["store", "partition"])
def test_the_mode_alone_makes_nothing_due(mode: str) -> None:
    attributes = sorted_in_force({"periodic_compaction_mode": mode})
    assert compaction_due_ms(7, chunk(1), attributes) is None
    assert not is_due(7, chunk(1), attributes, NOW + 1000 * DAY)


def test_the_periodic_flush_comes_within_the_window_of_period_and_splay() -> None:
    attributes = sorted_in_force({})
    found = [flush_due_ms(7, store(number), attributes) for number in range(300)]
    offsets = [due - NOW for due in found if due is not None]
    assert len(offsets) == 300
    assert 900_000 <= min(offsets) < 902_000
    assert 958_000 < max(offsets) <= 960_000


def test_without_a_period_no_flush_is_due() -> None:
    assert flush_due_ms(7, store(), sorted_in_force({"dynamic_store_auto_flush_period": None})) is None


def test_chunks_of_before_the_forced_revision_are_forced_and_those_made_since_are_not() -> None:
    attributes = sorted_in_force({"forced_compaction_revision": 5})
    assert [is_forced(chunk(1, revision=revision), attributes) for revision in (4, 5, 6)] == [True, False, False]
    assert not is_forced(chunk(1, revision=4), sorted_in_force({}))
