"""The stored form of prepared batches: what is written is read again, and nothing else is."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pqbroker.pq.log.keys import (
    foreign_ranges,
    outcome_key,
    outcome_range,
    parse_transaction_key,
    prepared_key,
    prepared_range,
    renumbered,
)
from pqbroker.pq.log.prepared_batches import PreparedBatches
from pqbroker.pq.log.sessions import Fence, ProducerState
from pqbroker.pq.transactions.stored_forms import TransactionId
from tests.pq.rig import batch

TRANSACTION = TransactionId(bytes(range(16)))
owners = st.none() | st.builds(ProducerState, st.integers(0, (1 << 63) - 1), st.binary(max_size=60))
fences = st.none() | st.builds(Fence, st.text(max_size=60), st.integers(0, (1 << 63) - 1), owners)
rows = st.lists(st.lists(st.binary(max_size=30), min_size=1, max_size=4), min_size=1, max_size=4)


def prepared(values: Sequence[Sequence[bytes]], fence: Fence | None, weighed: Sequence[bool]) -> PreparedBatches:
    batches = [batch(*some) for some in values]
    weights = [
        list(range(len(some))) if number < len(weighed) and weighed[number] else None
        for number, some in enumerate(values)
    ]
    return PreparedBatches(fence, batches, weights)


def stored(given: PreparedBatches) -> bytes:
    return b"".join(map(bytes, given.encode()))


@given(values=rows, fence=fences, weighed=st.lists(st.booleans(), max_size=4))
def test_what_is_written_is_read_again(
    values: Sequence[Sequence[bytes]], fence: Fence | None, weighed: Sequence[bool]
) -> None:
    given = prepared(values, fence, weighed)
    found = PreparedBatches.decode(stored(given))
    assert found.fence == fence
    assert [(bytes(view), header) for view, header in found.batches] == [
        (bytes(view), header) for view, header in given.batches
    ]
    assert [None if one is None else list(one) for one in found.weights] == given.weights
    found.batches[0][0][0] = 1  # they are stamped


@given(values=rows, fence=fences, place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), cut=st.booleans())
def test_what_was_cut_or_flipped_is_refused(
    values: Sequence[Sequence[bytes]], fence: Fence | None, place: float, bit: int, cut: bool
) -> None:
    whole = bytearray(stored(prepared(values, fence, [True])))
    at = int(place * len(whole))
    if cut:
        del whole[at:]
    else:
        whole[at] ^= 1 << bit
    with pytest.raises(ValueError, match=r"bytes|checksum|version|empty"):
        PreparedBatches.decode(bytes(whole))


def test_what_is_no_batch_is_refused_though_its_checksum_holds() -> None:
    view, header = batch(b"a", b"b")
    short = PreparedBatches(None, [(view[:-1], header)], [None])
    stranger = PreparedBatches(None, [(memoryview(b"PQT1"), header)], [None])
    weights = PreparedBatches(None, [(view, header)], [[1]])
    for wrong in (short, stranger, weights, PreparedBatches(None, [], [])):
        with pytest.raises(ValueError, match="prepared batch"):
            PreparedBatches.decode(stored(wrong))


@pytest.mark.parametrize("partition", [0, 7, 2_147_483_647])
def test_keys_lie_in_their_ranges_and_are_renumbered(partition: int) -> None:
    for key, (lo, hi) in (
        (prepared_key(partition, TRANSACTION), prepared_range(partition)),
        (outcome_key(partition, TRANSACTION), outcome_range(partition)),
    ):
        assert lo <= key < hi
        assert parse_transaction_key(key) == TRANSACTION
        assert not any(low <= key < high for low, high in foreign_ranges(partition))
        assert any(low <= key < high for low, high in foreign_ranges(partition + 1))
        assert renumbered(renumbered(key, partition + 1), partition) == key


@pytest.mark.parametrize(
    "key", [b"", b"p", b"p0000000000_00", b"r0000000000_" + b"0" * 32, b"p0000000000_" + b"G" * 32]
)
def test_what_is_no_key_of_a_transaction_is_refused(key: bytes) -> None:
    with pytest.raises(ValueError, match="no key of a transaction"):
        parse_transaction_key(key)
