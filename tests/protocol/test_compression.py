"""Codecs of record batches: what others compress comes back, and bombs and damage end in an error."""

import contextlib
import random
import time
import tracemalloc
from collections.abc import Callable

import aiokafka.codec
import cramjam
import kafka.codec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pqbroker.protocol.compression import CODECS, GZIP, LZ4, SNAPPY, ZSTD, compress, decompress
from pqbroker.protocol.errors import ErrorCode, KafkaError
from tests.support.depth import examples

LIMIT = 1 << 20
COMPRESSED = [GZIP, SNAPPY, LZ4, ZSTD]
repeated = st.builds(lambda piece, times: piece * times, st.binary(max_size=20), st.integers(0, 9000))
contents = st.binary(max_size=2000) | repeated
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda data: data[:-3],
    "overwritten": lambda data: b"\0\1" + data[2:],
    "empty": lambda data: b"",
    "ones": lambda data: b"\xff" * 40,
}


@pytest.mark.parametrize("codec", CODECS)
@settings(max_examples=examples(30), deadline=None, database=None)
@given(content=contents)
def test_what_is_compressed_comes_back(codec: int, content: bytes) -> None:
    assert decompress(codec, compress(codec, content), LIMIT) == content


@pytest.mark.parametrize(
    ("codec", "encode", "decode"),
    [
        (GZIP, aiokafka.codec.gzip_encode, aiokafka.codec.gzip_decode),
        (SNAPPY, aiokafka.codec.snappy_encode, aiokafka.codec.snappy_decode),
        (LZ4, aiokafka.codec.lz4_encode, aiokafka.codec.lz4_decode),
        (ZSTD, aiokafka.codec.zstd_encode, aiokafka.codec.zstd_decode),
        (GZIP, kafka.codec.gzip_encode, kafka.codec.gzip_decode),
    ],
)
def test_clients_and_we_read_each_other(
    codec: int, encode: Callable[[bytes], bytes], decode: Callable[[bytes], bytes]
) -> None:
    content = bytes(range(256)) * 700
    assert decompress(codec, encode(content), LIMIT) == content
    assert bytes(decode(compress(codec, content))) == content


@pytest.mark.parametrize("level", [None, 1, 9, 17])
@pytest.mark.parametrize("content", [b"a", b"hello" * 40_000, random.Random(1).randbytes(70_000) + b"x" * 70_000])
def test_blocks_of_lz4_stand_alone_as_java_clients_need_them(content: bytes, level: int | None) -> None:
    frame = compress(LZ4, content, level)
    assert frame[4] == 0x60  # version 1, independent blocks, no sums
    assert decompress(LZ4, frame, LIMIT) == content == aiokafka.codec.lz4_decode(frame)
    assert len(frame) <= len(content) + 100


def test_raw_snappy_is_taken_too() -> None:
    assert decompress(SNAPPY, bytes(cramjam.snappy.compress_raw(b"abc" * 100)), LIMIT) == b"abc" * 100


def test_gzip_members_one_after_another_are_one_output() -> None:
    assert decompress(GZIP, compress(GZIP, b"one") + compress(GZIP, b"two"), LIMIT) == b"onetwo"


def test_output_may_be_exactly_the_limit() -> None:
    for codec in CODECS:
        assert len(decompress(codec, compress(codec, bytes(5000)), 5000)) == 5000


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_ends_in_an_error_quickly(codec: int) -> None:
    bomb = compress(codec, bytes(64 << 20))
    started = time.thread_time()
    tracemalloc.start()
    try:
        with pytest.raises(KafkaError) as raised:
            decompress(codec, bomb, LIMIT)
        assert tracemalloc.get_traced_memory()[1] < 3 * LIMIT
    finally:
        tracemalloc.stop()
    assert raised.value.code is ErrorCode.INVALID_RECORD
    assert time.thread_time() - started < 1


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_data_is_an_invalid_record(codec: int, damage: str) -> None:
    with pytest.raises(KafkaError) as raised:
        decompress(codec, DAMAGES[damage](compress(codec, bytes(range(256)) * 20)), LIMIT)
    assert raised.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("blocks", ["000000", "00000000", "ffffffff", "00000009 00"])
def test_a_xerial_block_that_runs_past_the_end_is_an_invalid_record(blocks: str) -> None:
    with pytest.raises(KafkaError) as raised:
        decompress(SNAPPY, compress(SNAPPY, b"abc") + bytes.fromhex(blocks), LIMIT)
    assert raised.value.code is ErrorCode.INVALID_RECORD


def test_an_unknown_codec_is_unsupported() -> None:
    with pytest.raises(KafkaError) as raised:
        decompress(5, b"", LIMIT)
    assert raised.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize("codec", COMPRESSED)
@settings(max_examples=examples(50), deadline=None, database=None)
@given(data=st.binary(max_size=100))
def test_random_bytes_decompress_or_are_a_kafka_error(codec: int, data: bytes) -> None:
    with contextlib.suppress(KafkaError):
        assert len(decompress(codec, data, 10_000)) <= 10_000


def lz4_frames() -> dict[str, Callable[[bytes], bytes]]:
    """Ways to make a frame of LZ4: ours, that of clients, with sums of blocks and with a size."""
    return {
        "ours": lambda content: compress(LZ4, content),
        "cramjam": lambda content: bytes(cramjam.lz4.compress(content)),
        "aiokafka": aiokafka.codec.lz4_encode,
    }


@pytest.mark.parametrize("name", lz4_frames())
@pytest.mark.parametrize("content", [
    bytes(900_000), random.Random(1).randbytes(900_000), b"a", b"hello" * 20_000, bytes(65_536), bytes(131_072),
    random.Random(1).randbytes(5_000_000),
])  # fmt: skip
def test_a_frame_of_lz4_is_unpacked_at_the_first_try_into_little_more_than_it_takes(
    monkeypatch: pytest.MonkeyPatch, name: str, content: bytes
) -> None:
    rooms: list[int] = []
    decompress_into = cramjam.lz4.decompress_into

    def note(data: memoryview, output: bytearray) -> int:
        rooms.append(len(output))
        return decompress_into(data, output)

    frame = lz4_frames()[name](content)
    monkeypatch.setattr(cramjam.lz4, "decompress_into", note)
    assert decompress(LZ4, frame, 8 << 20) == content
    block_bytes = 1 << 8 + 2 * (frame[5] >> 4 & 7)
    assert rooms == [max(-(-len(content) // block_bytes) * block_bytes, 128)]


@pytest.mark.parametrize("size", [1 << 20, 3 << 20])
def test_blocks_of_lz4_that_ask_for_much_get_no_more_than_the_input_lets_expect(size: int) -> None:
    blocks = size // (4 << 20) + 300  # of 4 MiB each, as they say
    frame = bytes.fromhex("04224d18607082") + (b"\x05\0\0\0" + bytes(5)) * blocks
    tracemalloc.start()
    try:
        with pytest.raises(KafkaError):
            decompress(LZ4, frame, size)
        assert tracemalloc.get_traced_memory()[1] < 2 * size + (1 << 20)
    finally:
        tracemalloc.stop()


@settings(max_examples=examples(100), deadline=None, database=None)
@given(content=contents, at=st.integers(0, 40), byte=st.integers(0, 255))
def test_a_damaged_frame_of_lz4_is_an_error_or_what_it_was_made_from(content: bytes, at: int, byte: int) -> None:
    frame = bytearray(compress(LZ4, content))
    frame[at % len(frame)] = byte
    with contextlib.suppress(KafkaError):
        assert len(decompress(LZ4, frame, LIMIT)) <= LIMIT
