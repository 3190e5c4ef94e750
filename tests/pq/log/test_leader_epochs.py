"""Leader epochs: history, trimming, ends (clients 4.29)."""

import pytest

from pqbroker.pq.log.leader_epochs import Epochs

pytestmark = pytest.mark.spec("4.29")


def test_the_current_epoch_begins_at_the_end_and_ends_there() -> None:
    assert Epochs([], 4, 17).end_of(4, 20) == (4, 20)


def test_an_earlier_epoch_ends_where_the_next_begins() -> None:
    epochs = Epochs([(1, 0), (3, 10)], 5, 20)
    assert [epochs.end_of(epoch, 25) for epoch in (1, 2, 3, 4, 5)] == [(1, 10), (1, 10), (3, 20), (3, 20), (5, 25)]


@pytest.mark.parametrize("epoch", [-1, 6])
def test_an_epoch_that_is_none_or_in_the_future_is_unknown(epoch: int) -> None:
    assert Epochs([(1, 0)], 5, 20).end_of(epoch, 25) == (-1, -1)


def test_an_epoch_before_all_known_ends_where_they_begin() -> None:
    assert Epochs([(3, 10)], 5, 20).end_of(2, 25) == (2, 10)


def test_each_offset_has_the_epoch_that_wrote_it() -> None:
    epochs = Epochs([(1, 0), (3, 10)], 5, 20)
    assert [epochs.epoch_at(offset) for offset in (0, 9, 10, 19, 20, 99)] == [1, 1, 3, 3, 5, 5]


def test_an_epoch_that_wrote_nothing_leaves_no_trace() -> None:
    epochs = Epochs([(1, 0)], 5, 20)
    assert epochs.to_store() == [(1, 0)]
    assert Epochs(epochs.to_store(), 6, 20).entries == [(1, 0), (6, 20)]


def test_an_epoch_that_has_written_goes_on_when_its_tablet_could_not_start_again() -> None:
    epochs = Epochs([(1, 0), (3, 10)], 3, 20)
    assert epochs.entries == [(1, 0), (3, 10)]
    assert epochs.is_stored
    epochs = Epochs([(1, 0)], 3, 20)
    assert epochs.entries == [(1, 0), (3, 20)]
    assert not epochs.is_stored


def test_a_stored_epoch_without_records_left_is_forgotten_at_start() -> None:
    assert Epochs([(1, 0), (3, 20)], 5, 20).entries == [(1, 0), (5, 20)]


def test_trimming_forgets_epochs_whose_records_are_gone() -> None:
    epochs = Epochs([(1, 0), (3, 10)], 5, 20)
    epochs.trim(12)
    assert epochs.entries == [(3, 12), (5, 20)]
    epochs.trim(20)
    assert epochs.entries == [(5, 20)]
