"""The 192-bit id: order, bytes, text; and the histories that say which group holds a blob."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pqbroker.storage.blobs.blob_id import (
    CHANNEL_MAX,
    COOKIE_MAX,
    CRC_MODE_MAX,
    GENERATION_MAX,
    PART_MAX,
    SIZE_MAX,
    STEP_MAX,
    BlobId,
    after_step,
    blob_size,
    channel_bounds,
    tablet_bounds,
)
from pqbroker.storage.blobs.channel_history import ChannelHistory
from pqbroker.storage.ids import TabletId

ids = st.builds(
    BlobId,
    st.integers(0, (1 << 64) - 3),
    st.integers(0, CHANNEL_MAX),
    st.integers(0, GENERATION_MAX),
    st.integers(0, STEP_MAX),
    st.integers(0, COOKIE_MAX),
    st.integers(0, SIZE_MAX),
    st.integers(0, CRC_MODE_MAX),
    st.integers(0, PART_MAX),
)


@given(ids)
def test_an_id_comes_back_from_its_bytes(blob: BlobId) -> None:
    assert len(blob.key()) == 24
    assert BlobId.from_key(blob.key()) == blob
    assert blob_size(b"row" + blob.key(), 3) == blob.size


@pytest.mark.spec("B.2")
@given(ids, ids)
def test_bytes_sort_as_ids_do(one: BlobId, other: BlobId) -> None:
    assert (one.key() < other.key()) == (spec_order(one) < spec_order(other))


@given(ids, st.integers(0, SIZE_MAX), st.integers(0, CRC_MODE_MAX), st.integers(0, PART_MAX))
def test_ids_of_one_blob_sort_by_crc_mode_size_and_part(blob: BlobId, size: int, crc_mode: int, part: int) -> None:
    other = blob._replace(size=size, crc_mode=crc_mode, part=part)
    assert (blob.key() < other.key()) == (spec_order(blob) < spec_order(other))


def spec_order(blob: BlobId) -> tuple[int, ...]:
    return (*blob[:5], blob.crc_mode, blob.size, blob.part)


@given(ids)
def test_an_id_comes_back_from_its_text_but_for_the_crc_mode(blob: BlobId) -> None:
    assert BlobId.parse(str(blob)) == blob._replace(crc_mode=0)


@pytest.mark.spec("B.2")
def test_the_text_form_is_the_specs() -> None:
    assert str(BlobId(TabletId(12345), 0, 1, 1, 0, 1000)) == "[12345:1:1:0:0:1000:0]"


@pytest.mark.parametrize(
    "text",
    ["", "12345:1:1:0:0:1000:0", "[1:2:3:4:5:6]", "[1:2:3:4:5:6:x]", "[1:2:3:4:5:6:-1]", "[1:2:3:4:5:6:²]",
     "[1:2:3:256:5:6:0]", "[1:2:3:4:16777216:6:0]", "[1:2:3:4:5:67108864:0]", "[1:2:3:4:5:6:16]"],
)  # fmt: skip
def test_a_text_that_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no blob id|does not fit"):
        BlobId.parse(text)


@pytest.mark.spec("B.2")
@pytest.mark.parametrize(
    ("field", "value"),
    [("tablet", 1 << 64), ("channel", 256), ("generation", 1 << 32), ("step", 1 << 32), ("cookie", 1 << 24),
     ("size", 1 << 26), ("crc_mode", 4), ("part", 16), ("step", -1)],
)  # fmt: skip
def test_a_field_out_of_range_is_refused(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        BlobId(TabletId(1), 2, 3, 4, 5, 6)._replace(**{field: value}).key()


@given(ids)
def test_bounds_hold_what_is_theirs_and_nothing_else(blob: BlobId) -> None:
    key = blob.key()
    for lo, hi in (tablet_bounds(blob.tablet), channel_bounds(blob.tablet, blob.channel)):
        assert lo <= key < hi
    other = channel_bounds(blob.tablet, blob.channel ^ 1)
    assert not other[0] <= key < other[1]
    other = tablet_bounds(TabletId(blob.tablet ^ 1))
    assert not other[0] <= key < other[1]


@given(ids, st.integers(0, GENERATION_MAX), st.integers(0, STEP_MAX))
def test_a_position_divides_a_channel(blob: BlobId, generation: int, step: int) -> None:
    end = after_step(blob.tablet, blob.channel, generation, step)
    assert (blob.key() < end) == ((blob.generation, blob.step) <= (generation, step))


def test_a_position_at_the_end_of_a_generation_divides_it_from_the_next() -> None:
    end = after_step(TabletId(1), 0, 3, STEP_MAX)
    assert BlobId(TabletId(1), 0, 3, STEP_MAX, COOKIE_MAX, 5).key() < end <= BlobId(TabletId(1), 0, 4, 0, 0, 1).key()


@pytest.mark.spec("B.5", "J.2", "G.2")
def test_old_blobs_stay_in_the_group_they_were_written_to() -> None:
    history = ChannelHistory(((1, 7),)).moved(4, 2).moved(9, 7)
    assert [history.pool_at(generation) for generation in (1, 3, 4, 8, 9, 100)] == [7, 7, 2, 2, 7, 7]
    with pytest.raises(ValueError, match="began in generation 1"):
        history.pool_at(0)


def test_ranges_of_a_history_rise() -> None:
    with pytest.raises(AssertionError):
        ChannelHistory(((3, 0), (3, 1)))
    with pytest.raises(AssertionError):
        ChannelHistory(((3, 0),)).moved(2, 1)


def test_the_last_word_on_a_generation_to_come_counts() -> None:
    history = ChannelHistory(((1, 0),))
    assert history.moved(4, 1).moved(4, 2) == history.moved(4, 2)
    assert history.moved(4, 1).moved(4, 0) == history.moved(4, 0) == history
