"""The value of a data key: sound ones pass, and whatever differs from them by a byte or a number does not."""

from array import array
from collections.abc import Callable

import pytest

from pqbroker.doctor.contents import Damaged, check_body, check_head
from pqbroker.pq.log.body import encode_index
from pqbroker.protocol.records import stamp
from tests.pq.rig import batch

START = 100


def value(sizes: tuple[int, ...] = (1, 3, 2), epoch: int = 4) -> tuple[bytearray, list[tuple[int, int]]]:
    """Batches of so many records from START on, and where each begins with which offset."""
    found, begins, offset = bytearray(), [], START
    for count in sizes:
        view, _ = batch(*[b"value"] * count)
        stamp(view, offset, epoch)
        begins.append((len(found), offset))
        found += view
        offset += count
    return found, begins


def body(end: int = START + 6, shift: int = 0) -> bytes:
    """The same with an index behind it, whose last entry is wrong by `shift` bytes."""
    data, begins = value()
    positions = array("q", [position for position, _ in begins])
    positions[-1] += shift
    columns = positions, array("q", [offset for _, offset in begins]), array("q", [0] * len(begins))
    return bytes(data) + encode_index(columns, len(data), end)


def test_sound_values_pass() -> None:
    check_head(memoryview(value()[0]), START, START + 6, 4)
    check_body(memoryview(body()), START, START + 6, 4)


@pytest.mark.parametrize("position", [*range(8), 11, *range(16, 61), 70, -1])
def test_a_byte_that_changed_in_a_batch_is_found(position: int) -> None:
    data, _ = value()
    data[position] ^= 1
    with pytest.raises(Damaged):
        check_head(memoryview(data), START, START + 6, 4)


def test_a_byte_that_changed_in_the_index_is_found() -> None:
    data = bytearray(body())
    data[-70] ^= 1
    with pytest.raises(Damaged, match="the index behind the batches"):
        check_body(memoryview(data), START, START + 6, 4)


def cut(data: bytearray) -> None:
    del data[-1]


def cut_in_a_header(data: bytearray) -> None:
    del data[30:]


def add_a_batch(data: bytearray) -> None:
    data += value((1,))[0]


def add_the_first_again(data: bytearray) -> None:
    data += data[: value()[1][1][0]]


@pytest.mark.parametrize("change", [cut, cut_in_a_header, add_a_batch, add_the_first_again])
def test_batches_too_few_or_too_many_are_found(change: Callable[[bytearray], None]) -> None:
    data, _ = value()
    change(data)
    with pytest.raises(Damaged):
        check_head(memoryview(data), START, START + 6, 4)


@pytest.mark.parametrize(("offset", "end", "generation"), [(101, 106, 4), (100, 105, 4), (100, 107, 4), (100, 106, 3)])
def test_other_offsets_than_the_keys_and_later_epochs_are_found(offset: int, end: int, generation: int) -> None:
    for check, data in ((check_head, bytes(value()[0])), (check_body, body())):
        with pytest.raises(Damaged):
            check(memoryview(data), offset, end, generation)


def test_an_index_that_leads_elsewhere_is_found() -> None:
    with pytest.raises(Damaged, match="no batch begins with offset 104"):
        check_body(memoryview(body(shift=1)), START, START + 6, 4)
    with pytest.raises(Damaged, match="the index ends at offset 107"):
        check_body(memoryview(body(end=107)), START, START + 6, 4)
    with pytest.raises(Damaged, match="an index over"):
        check_body(memoryview(b"more" + body()), START, START + 6, 4)
