"""What a producer may say of a batch's inside, and what is seen of it without decoding: counts that the bytes cannot
hold, and beginnings that are no record. Whatever a real codec makes is taken."""

import random
import struct
import zlib
from collections.abc import Callable

import cramjam
import lz4.frame  # type: ignore[import-untyped]
import pytest
import zstandard
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from pqbroker.protocol.compression import GROWTH_MAX, GZIP, LZ4, NONE, SNAPPY, ZSTD, compress
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.primitives import varlong
from pqbroker.protocol.produced_batches import check_keys, check_produced
from pqbroker.protocol.records import BATCH_HEADER_BYTES, Record, encode_batch
from tests.protocol.strategies import records
from tests.support.depth import examples

BYTES_MAX = 1 << 30
MILLION = 1_000_000
EXTREMES: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "gzip": (GZIP, lambda data: bytes(cramjam.gzip.compress(data, 9))),
    "zlib": (GZIP, lambda data: zlib.compress(data, 9, 31)),
    "snappy": (SNAPPY, lambda data: bytes(cramjam.snappy.compress_raw(data))),
    "snappy of Java": (SNAPPY, lambda data: compress(SNAPPY, data)),
    "lz4": (LZ4, lambda data: bytes(cramjam.lz4.compress(data, 9))),
    "lz4 in large blocks": (LZ4, lambda data: lz4.frame.compress(data, 16, block_size=lz4.frame.BLOCKSIZE_MAX4MB)),
    "zstd": (ZSTD, lambda data: bytes(cramjam.zstd.compress(data, 3))),
    "zstd at most": (ZSTD, lambda data: zstandard.ZstdCompressor(level=19).compress(data)),
}
"""Compressors that clients use, at their hardest."""


def batch_of(count: int, contents: bytes | bytearray, codec: int = NONE, max_timestamp: int = 0) -> memoryview:
    """A batch that counts so many records, over any bytes, with a right checksum."""
    batch = bytearray(encode_batch([Record()], codec=codec)[:BATCH_HEADER_BYTES]) + contents
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">i", batch, 23, count - 1)
    struct.pack_into(">q", batch, 35, max_timestamp)
    struct.pack_into(">i", batch, 57, count)
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return memoryview(batch)


def refusal(batch: memoryview) -> str:
    with pytest.raises(KafkaError) as refused:
        check_produced(batch, BYTES_MAX)
    assert refused.value.code == ErrorCode.INVALID_RECORD
    return refused.value.message


def tiny_records(count: int) -> bytes:
    """Records of nothing; all alike but for their offsets."""
    bodies = (b"\0\0" + varlong(delta) + b"\1\1\0" for delta in range(count))
    return b"".join(varlong(len(body)) + body for body in bodies)


def test_a_count_that_the_bytes_cannot_hold_is_refused() -> None:
    """Eighteen of these made a key whose count had eleven digits, and no topic was served after the next start."""
    for codec in (NONE, GZIP, SNAPPY, LZ4):
        one = encode_batch([Record(value=b"v" * 54)], codec=codec)
        assert "counts 2147483647 records" in refusal(batch_of((1 << 31) - 1, one[BATCH_HEADER_BYTES:], codec))
    assert "counts 10 records in" in refusal(batch_of(10, tiny_records(9)))
    assert check_produced(batch_of(10, tiny_records(10)), BYTES_MAX).record_count == 10


@pytest.mark.parametrize("name", EXTREMES)
def test_no_batch_of_a_real_codec_is_refused(name: str) -> None:
    codec, extreme = EXTREMES[name]
    many = tiny_records(MILLION // 20)
    for contents, count in ((many, MILLION // 20), (varlong(6 + 4 * MILLION) + bytes(6 + 4 * MILLION), 1)):
        packed = extreme(contents)
        assert len(contents) <= GROWTH_MAX[codec] * len(packed)
        assert check_produced(batch_of(count, packed, codec), BYTES_MAX).record_count == count


def test_a_million_small_records_in_zstd_are_taken() -> None:
    packed = bytes(cramjam.zstd.compress(tiny_records(MILLION), 3))
    assert check_produced(batch_of(MILLION, packed, ZSTD), BYTES_MAX).record_count == MILLION


def test_the_growth_of_zstd_is_that_of_its_blocks() -> None:
    """A block of 128 KiB in four bytes: what libzstd makes of nothing but zeros comes near."""
    packed = zstandard.ZstdCompressor(level=1).compress(bytes(64 << 20))
    assert GROWTH_MAX[ZSTD] // 3 < (64 << 20) // len(packed) <= GROWTH_MAX[ZSTD]


@settings(max_examples=examples(60), deadline=None, database=None)
@given(st.lists(records, min_size=1, max_size=5), st.sampled_from(sorted(GROWTH_MAX)))
def test_whatever_a_producer_encodes_is_taken(content: list[Record], codec: int) -> None:
    check_produced(memoryview(encode_batch(content, codec=codec)), BYTES_MAX)


@pytest.mark.parametrize(
    ("count", "contents"),
    [
        (1, b""),
        (1, bytes(7)),
        (1, b"\xff" * 40),
        (1, b"\x80" * 40),
        (2, tiny_records(1) + b"\0" * 6),
        (10, encode_batch([Record(value=b"v" * 100)])[BATCH_HEADER_BYTES:]),
        (1, tiny_records(2)),
        (1, tiny_records(2)[7:]),
        (1, b"\x0d" + bytes(6)),
        (1, b"\x0c\0" + b"\xff" * 5),
    ],
)
def test_bytes_that_do_not_begin_with_the_first_record_are_refused(count: int, contents: bytes) -> None:
    refusal(batch_of(count, contents))


def test_random_bytes_are_refused() -> None:
    chance = random.Random(12)
    for codec in (NONE, GZIP, LZ4, ZSTD):
        for _ in range(300):
            refusal(batch_of(3, chance.randbytes(chance.randrange(21, 200)), codec))


def test_a_compacted_topics_batch_is_looked_into_whole() -> None:
    one = encode_batch([Record(key=b"k", value=b"v")])[BATCH_HEADER_BYTES:]
    twice = batch_of(2, bytes(one + one))
    check_produced(twice, BYTES_MAX)
    with pytest.raises(KafkaError, match="record 1 of the batch says that it is record 0"):
        check_keys(twice)
