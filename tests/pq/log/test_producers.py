"""Duplicates and sequences of idempotent producers, one rule at a time (semantics A.7, clients 4.18, 4.19)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pqbroker.pq.log import producers
from pqbroker.pq.log.producers import REFUSED_MAX, Duplicate, Producer, Producers, StoredBatch
from pqbroker.protocol.errors import ErrorCode, KafkaError

pytestmark = pytest.mark.spec("A.7", "H1", "H2", "H3", "G.7", "4.18", "4.19")

LAST = (1 << 31) - 1


def after(*batches: tuple[int, int], epoch: int = 0, start: int = 0) -> Producer:
    """A producer that wrote batches of (first sequence, count); offsets run from 100 up."""
    state: Producer | None = None
    offset = 100
    for sequence, count in batches:
        first = producers.check(state, epoch, sequence, count)
        assert isinstance(first, int)
        state = producers.taken(state, epoch, StoredBatch(first, first + count - 1, offset, -1), 7, 1000)
        offset += count
    assert state is not None
    return state


def refused(state: Producer, epoch: int, sequence: int, count: int = 1) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        producers.check(state, epoch, sequence, count)
    return caught.value.code


def test_an_unknown_producer_may_begin_with_any_sequence() -> None:
    assert producers.check(None, 3, 77, 5) == 77


def test_the_next_sequence_is_taken() -> None:
    assert producers.check(after((0, 10)), 0, 10, 5) == 10


@pytest.mark.parametrize("sequence", [6, 10, 1 << 30])
def test_a_gap_is_out_of_order(sequence: int) -> None:
    assert refused(after((0, 5)), 0, sequence) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_older_epoch_is_invalid() -> None:
    assert refused(after((0, 5), epoch=2), 1, 5) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_newer_epoch_begins_at_zero() -> None:
    state = after((0, 5), (5, 5))
    assert producers.check(state, 1, 0, 3) == 0
    fresh = producers.taken(state, 1, StoredBatch(0, 2, 110, -1), 7, 2000)
    assert (fresh.epoch, fresh.first, fresh.last, len(fresh.batches)) == (1, 0, 2, 1)


def test_a_newer_epoch_that_does_not_begin_at_zero_is_out_of_order() -> None:
    assert refused(after((0, 5)), 1, 5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_each_of_the_last_five_batches_is_a_duplicate_with_its_offset() -> None:
    state = after(*((number * 10, 10) for number in range(8)))
    for number in range(3, 8):
        assert producers.check(state, 0, number * 10, 10) == Duplicate(100 + number * 10, -1)


def test_a_batch_older_than_the_last_five_is_out_of_order() -> None:
    state = after(*((number * 10, 10) for number in range(8)))
    assert refused(state, 0, 0, 10) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize(("sequence", "count"), [(2, 3), (0, 9), (1, 9), (0, 20), (5, 10)])
def test_a_batch_that_matches_a_stored_one_only_in_part_is_out_of_order(sequence: int, count: int) -> None:
    assert refused(after((0, 10), (10, 10)), 0, sequence, count) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_batch_partly_stored_is_out_of_order() -> None:
    assert refused(after((0, 10)), 0, 5, 10) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_batch_before_the_first_sequence_ever_taken_is_no_duplicate() -> None:
    assert refused(after((50, 10)), 0, 40, 10) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_wrap_to_zero() -> None:
    state = after((LAST - 4, 5))
    assert producers.check(state, 0, 0, 3) == LAST + 1
    state = after((LAST - 4, 5), (0, 3))
    assert producers.check(state, 0, LAST - 4, 5) == Duplicate(100, -1)
    assert producers.check(state, 0, 0, 3) == Duplicate(105, -1)
    assert producers.check(state, 0, 3, 1) == LAST + 4


def test_a_batch_may_wrap_inside() -> None:
    state = after((LAST, 2))
    assert producers.check(state, 0, 1, 1) == LAST + 2
    assert producers.check(state, 0, LAST, 2) == Duplicate(100, -1)


def test_a_duplicate_has_the_log_append_time_of_the_original() -> None:
    state = producers.taken(None, 0, StoredBatch(0, 3, 100, 12_345), 12_345, 12_345)
    assert producers.check(state, 0, 0, 4) == Duplicate(100, 12_345)


def test_what_is_remembered_survives_its_stored_form() -> None:
    state = after(*((number * 3, 3) for number in range(7)), epoch=9)
    assert producers.decode(producers.encode(state)) == state


def test_an_idle_producer_without_data_is_forgotten() -> None:
    held = Producers([(7, after((0, 10)))])
    assert held.expired(110, 1000 + 50, kept_ms=50, count_max=10) == [7]


@pytest.mark.parametrize(("start_offset", "now_ms"), [(109, 5000), (110, 1049)])
def test_a_producer_with_data_or_lately_active_is_kept(start_offset: int, now_ms: int) -> None:
    held = Producers([(7, after((0, 10)))])
    assert held.expired(start_offset, now_ms, kept_ms=50, count_max=10) == []


def test_over_the_count_the_oldest_by_offset_go_first_and_are_counted() -> None:
    held = Producers((number, after((0, number))) for number in range(1, 6))
    gone = held.expired(0, 0, kept_ms=50, count_max=3)
    assert gone == [1, 2]
    held.forget(gone, 0)
    assert (sorted(held.producers), held.evicted) == ([3, 4, 5], 2)
    assert (held.created, held.forgotten) == (0, 2)


def test_who_comes_and_who_is_forgotten_is_counted() -> None:
    held = Producers((number, after((0, number))) for number in range(1, 4))
    held.take({3: after((0, 5)), 4: after((0, 6)), 5: after((0, 7))})
    held.forget([1, 4], 7)
    held.take({4: after((0, 8))})
    assert (held.created, held.forgotten) == (3, 2)


def test_producers_stand_in_the_order_of_their_last_writes_also_after_a_start() -> None:
    held = Producers([(1, after((0, 30))), (2, after((0, 10))), (3, after((0, 20)))])
    assert list(held.producers) == [2, 3, 1]
    held.take({2: after((0, 40)), 4: after((0, 50))})
    assert list(held.producers) == [3, 1, 2, 4]


@pytest.mark.spec("A.7", "H4", "K.1")
@given(
    st.lists(st.tuples(st.integers(0, 8), st.integers(1, 100)), max_size=40), st.integers(0, 12), st.integers(0, 3000)
)
def test_what_expires_is_what_a_look_at_all_of_them_finds(
    writes: list[tuple[int, int]], count_max: int, start_offset: int
) -> None:
    held = Producers()
    offset = 100
    for now_ms, (producer_id, count) in enumerate(writes):
        held.take({producer_id: producers.taken(None, 0, StoredBatch(0, count - 1, offset, -1), -1, now_ms)})
        offset += count
    now_ms, kept_ms = len(writes) + 5, 10
    old = {
        producer_id
        for producer_id, state in held
        if state.last_offset < start_offset and state.written_ms + kept_ms <= now_ms
    }
    gone = held.expired(start_offset, now_ms, kept_ms, count_max)
    assert len(gone) == max(len(old), len(held.producers) - count_max, 0)
    assert old <= set(gone)
    assert gone == list(held.producers)[: len(gone)]


def test_a_new_producer_over_the_count_displaces_the_oldest_that_does_not_write_now() -> None:
    held = Producers((number, after((0, number))) for number in range(1, 4))
    assert held.displaced({9: after((0, 50))}, 4) == []
    assert held.displaced({9: after((0, 50))}, 3) == [1]
    assert held.displaced({1: after((0, 50)), 9: after((0, 50))}, 3) == [2]
    assert held.displaced({1: after((0, 50)), 2: after((0, 51))}, 3) == []


def test_refused_producers_are_remembered_up_to_a_limit() -> None:
    known = Producers()
    for producer_id in range(REFUSED_MAX + 1):
        known.refuse(producer_id, 0, 0)
    known.check_first(0, 0, 1)
    with pytest.raises(KafkaError, match="OUT_OF_ORDER"):
        known.check_first(1, 0, 1)


def test_a_row_of_version_1_is_read_without_its_last_timestamp() -> None:
    state = Producer(3, 4, 5, (StoredBatch(4, 6, 100, -1), StoredBatch(7, 7, 110, 9)), 12)
    second = producers.encode(state)
    first = b"\1" + second[1:19] + second[27:]
    assert producers.decode(second) == state
    assert producers.decode(first) == state._replace(timestamp_ms=-1)
    for wrong in (b"", b"\3" + second[1:], second[:-1], first[:-1], second + b"\0", second[:20]):
        with pytest.raises(ValueError, match="it "):
            producers.decode(wrong)
