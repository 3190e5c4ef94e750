"""Frames come out the same however the stream is cut."""

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pqbroker.protocol.codec import decoder, encoder
from pqbroker.protocol.errors import ProtocolError
from pqbroker.protocol.frames import (
    FREE_FRAME_BYTES,
    HELD_STEP_BYTES,
    LARGE_FRAME_BYTES,
    FrameReader,
    frame,
    receive_buffer,
)
from pqbroker.protocol.messages.metadata import MetadataRequest
from tests.protocol.strategies import values
from tests.support.depth import examples

LIMIT = 8 << 20

sizes = st.integers(0, 300) | st.sampled_from(
    [LARGE_FRAME_BYTES - 1, LARGE_FRAME_BYTES, LARGE_FRAME_BYTES + 1, 65_531, 65_532, 65_533, 200_000]
)


def receive(reader: FrameReader, data: bytes, chunk_bytes_max: int = LIMIT) -> list[memoryview]:
    """Feed bytes as a transport does: as many as fit where the reader says."""
    frames = []
    while data:
        buffer = reader.get_buffer(-1)
        count = min(len(buffer), len(data), chunk_bytes_max)
        assert count > 0
        buffer[:count] = data[:count]
        data = data[count:]
        frames += reader.received(count)
    return frames


def stream(contents: list[bytes]) -> bytes:
    return b"".join(b"".join(frame([content])) for content in contents)


@settings(max_examples=examples(100), deadline=None, database=None)
@given(data=st.data(), lengths=st.lists(sizes, max_size=6))
def test_any_chunking_gives_the_same_frames(data: st.DataObject, lengths: list[int]) -> None:
    contents = [bytes([index + 1]) * length for index, length in enumerate(lengths)]
    whole = stream(contents)
    reader, frames = FrameReader(LIMIT), []
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    for start, stop in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        frames += receive(reader, whole[start:stop])
    assert [bytes(found) for found in frames] == contents


@settings(max_examples=examples(50), deadline=None, database=None)
@given(sent=st.lists(values(MetadataRequest, 12), max_size=5), chunk=st.integers(1, 50))
def test_any_chunking_gives_the_same_requests(sent: list[MetadataRequest], chunk: int) -> None:
    encode, decode = encoder(MetadataRequest, 12), decoder(MetadataRequest, 12)
    whole = b"".join(b"".join(frame(encode(request))) for request in sent)
    frames = receive(FrameReader(LIMIT), whole, chunk)
    assert [decode(found) for found in frames] == sent


def test_frames_stay_valid_and_writable() -> None:
    reader = FrameReader(LIMIT)
    (first,) = receive(reader, stream([b"one"]))
    receive(reader, stream([b"two"]))
    assert (bytes(first), first.readonly) == (b"one", False)


def test_a_large_frame_is_received_into_its_own_memory() -> None:
    reader = FrameReader(LIMIT)
    assert receive(reader, stream([bytes(100_000)])[:20_000]) == []
    rest = reader.get_buffer(-1)
    assert len(rest) == 100_000 + 4 - 20_000
    rest[-1] = 7
    (whole,) = reader.received(len(rest))
    assert whole.obj is rest.obj
    assert whole[-1] == 7


@pytest.mark.parametrize("length", ["ffffffff", "80000000", "00800001"])
def test_a_length_out_of_range_is_a_protocol_error(length: str) -> None:
    with pytest.raises(ProtocolError, match="the most allowed"):
        receive(FrameReader(LIMIT), bytes.fromhex(length))


def test_a_claimed_length_alone_takes_no_memory() -> None:
    reader = FrameReader(100 << 20, receive_buffer())
    tracemalloc.start()
    try:
        receive(reader, bytes.fromhex("06400000") + bytes(100))
        assert tracemalloc.get_traced_memory()[1] < 2000
        assert reader.held_bytes == 104
    finally:
        tracemalloc.stop()


def test_readers_share_a_buffer() -> None:
    buffer = receive_buffer()
    readers = [FrameReader(LIMIT, buffer) for _ in range(3)]
    whole = stream([b"one", bytes(40_000), b"two"])
    frames: list[list[memoryview]] = [[], [], []]
    for start in range(0, len(whole), 7001):
        for reader, found in zip(readers, frames, strict=True):
            found += receive(reader, whole[start : start + 7001])
    assert [[bytes(frame) for frame in found] for found in frames] == [[b"one", bytes(40_000), b"two"]] * 3


def test_a_frame_that_needs_leave_waits_for_it_and_a_smaller_one_does_not() -> None:
    reader = FrameReader(LIMIT, grant=lambda size: size == 1)
    receive(reader, stream([bytes(FREE_FRAME_BYTES)])[:20_000])
    assert (reader.claimed_bytes, reader.held_bytes) == (0, FREE_FRAME_BYTES)
    reader = FrameReader(LIMIT, grant=lambda size: size == 1)
    content = bytes(range(256)) * 300
    data = stream([content])
    reader.get_buffer(-1)[:20_000] = data[:20_000]
    assert reader.received(20_000) == []
    assert (reader.claimed_bytes, reader.held_bytes) == (len(content), 20_000)
    reader.begin_claimed()
    assert (reader.claimed_bytes, reader.held_bytes) == (0, len(content))
    (whole,) = receive(reader, data[20_000:])
    assert bytes(whole) == content
    assert reader.held_bytes == 0


def test_memory_of_a_very_large_frame_counts_as_its_bytes_arrive() -> None:
    reader = FrameReader(100 << 20)
    held = set()
    receive(reader, stream([bytes(5 << 20)])[:20_004])
    for filled in range(20_000, 5 << 20, 10_000):
        held.add((reader.held_bytes, -(-filled // HELD_STEP_BYTES)))
        receive(reader, bytes(10_000))
    assert held == {(HELD_STEP_BYTES, 1), (2 * HELD_STEP_BYTES, 2), (5 << 20, 3)}


def test_a_dropped_frame_holds_nothing() -> None:
    reader = FrameReader(LIMIT)
    receive(reader, stream([bytes(100_000)])[:50_000])
    reader.drop()
    assert (reader.held_bytes, reader.claimed_bytes) == (0, 0)


def test_a_frame_larger_than_what_is_allocated_at_once_is_whole() -> None:
    content = bytes(range(256)) * (5 << 12)
    (whole,) = receive(FrameReader(LIMIT), stream([content]))
    assert whole == content


def test_a_frame_is_its_length_and_the_very_buffers() -> None:
    body = bytearray(b"body")
    framed = frame([b"head", body])
    assert [framed[0], framed[2] is body] == [b"\x00\x00\x00\x08", True]
