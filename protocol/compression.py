"""The codecs of record batches, by their Kafka ids. Output is bounded: a small batch cannot be made to fill memory."""

import struct
import zlib
from collections.abc import Callable
from typing import Any, Final, Literal

import cramjam

from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.primitives import Buffer

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

CODECS: Final = range(ZSTD + 1)
CODEC_NAMES: Final = ("uncompressed", "gzip", "snappy", "lz4", "zstd")
"""Kafka's names of the codecs, as `compression.type` has them, by id."""

GROWTH_MAX: Final = {NONE: 1, GZIP: 1032, SNAPPY: 22, LZ4: 255, ZSTD: 32768}
"""Bytes at most that one compressed byte stands for, by the formats: gzip has 258 bytes in two bits; snappy 64 in a
copy of three bytes; LZ4 255 in each further byte of a length; zstd a block of 128 KiB in four bytes."""

BEGINNINGS: Final = {GZIP: b"\x1f\x8b\x08", LZ4: b"\x04\x22\x4d", ZSTD: b"\x28\xb5\x2f"}
"""The first three bytes of each format that has a magic number; raw snappy has none."""
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = struct.Struct(">8sii")
_XERIAL_BLOCK_BYTES: Final = 32 << 10
_XERIAL_LENGTH: Final = struct.Struct(">i")
_LZ4_HEADER: Final = bytes.fromhex("04224d18604082")
"""Version 1 with independent blocks of at most 64 KiB, without sums; the last byte is the header's own sum."""
_LZ4_BLOCK_BYTES: Final = 64 << 10
_LZ4_SIZE: Final = struct.Struct("<I")
_LZ4_FLAGS_AT: Final = 4
_LZ4_BLOCKS_AT: Final = 7
"""Position of the first block, without the fields that flags announce: 8 bytes of a size, 4 of a dictionary."""
_LZ4_SIZE_FLAG, _LZ4_DICTIONARY_FLAG, _LZ4_SUMS_FLAG = 0x08, 0x01, 0x10
_LZ4_STORED: Final = 1 << 31
_LZ4_END: Final = bytes(4)

_GROWTH: Final = 8
"""Room for output at first, as a multiple of the input, and then of each try: record data seldom shrinks by more."""
_OUTPUT_BYTES_MIN: Final = 128
_KNOWN_BYTES_MAX: Final = 1 << 20
"""Room that blocks may ask for, whatever the input's size."""
_GZIP_WINDOW: Final = zlib.MAX_WBITS | 16
_GZIP_INPUT_BYTES: Final = 16 << 10
_GZIP_OUTPUT_BYTES: Final = 256 << 10


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """`data` as producers send it under a codec: snappy in Java's framing, LZ4 as frames. `level` is the codec's own;
    None is its default, and snappy has none."""
    if codec == NONE:
        return bytes(data)
    if codec == SNAPPY:
        return _xerial_compress(memoryview(data))
    if codec == LZ4:
        return _lz4_compress(memoryview(data), level)
    compressor = {GZIP: cramjam.gzip, ZSTD: cramjam.zstd}[codec]
    return bytes(compressor.compress(data, level))


def decompress(codec: int, data: Buffer, bytes_max: int) -> bytes | bytearray:
    """Return what `data` was compressed from. It is in memory once: no copy is made of what may be large.

    KafkaError: UNSUPPORTED_COMPRESSION_TYPE when the codec is unknown, INVALID_RECORD when the data is damaged or comes
    out larger than `bytes_max`.
    """
    decompressor = _DECOMPRESSORS.get(codec)
    if decompressor is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression codec {codec} is unknown")
    return decompressor(memoryview(data), bytes_max)


def _bounded_copy(data: memoryview, bytes_max: int) -> bytes:
    if len(data) > bytes_max:
        raise _too_large(bytes_max)
    return bytes(data)


def _gunzip(data: memoryview, bytes_max: int) -> bytearray:
    """One gzip member after another, in pieces: zlib would hold a large output twice."""
    output = bytearray()
    stream = zlib.decompressobj(_GZIP_WINDOW)
    rest: Buffer = b""
    start = 0
    try:
        while rest or start < len(data):
            if not rest:
                rest = data[start : start + _GZIP_INPUT_BYTES]
                start += _GZIP_INPUT_BYTES
            if stream.eof:
                stream = zlib.decompressobj(_GZIP_WINDOW)
            output += stream.decompress(rest, _GZIP_OUTPUT_BYTES)
            if len(output) > bytes_max:
                raise _too_large(bytes_max)
            rest = stream.unused_data if stream.eof else stream.unconsumed_tail
        while not stream.eof:
            piece = stream.decompress(b"", _GZIP_OUTPUT_BYTES)
            if not piece and not stream.eof:
                raise _damaged("gzip", "it ends too early")
            output += piece
            if len(output) > bytes_max:
                raise _too_large(bytes_max)
    except zlib.error as error:
        raise _damaged("gzip", error) from None
    return output


def _unsnappy(data: memoryview, bytes_max: int) -> bytes | bytearray:
    """Raw snappy, or blocks of it in the framing of Java's snappy library, as its magic says."""
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _unsnappy_block(data, bytes_max)
    output = bytearray()
    position = _XERIAL_HEADER.size
    while position < len(data):
        if position + _XERIAL_LENGTH.size > len(data):
            raise _damaged("snappy", "it ends too early")
        (size,) = _XERIAL_LENGTH.unpack_from(data, position)
        position += _XERIAL_LENGTH.size
        if not 0 < size <= len(data) - position:
            raise _damaged("snappy", f"a block of {size} bytes")
        output += _unsnappy_block(data[position : position + size], bytes_max - len(output))
        position += size
    return output


def _unsnappy_block(data: memoryview, bytes_max: int) -> bytearray:
    try:
        size = cramjam.snappy.decompress_raw_len(data)
        if size > bytes_max:
            raise _too_large(bytes_max)
        output = bytearray(size)
        cramjam.snappy.decompress_raw_into(data, output)
        return output
    except cramjam.DecompressionError as error:
        raise _damaged("snappy", error) from None


def _guessed_room(data: memoryview) -> int:
    return _GROWTH * max(len(data), _OUTPUT_BYTES_MIN)


def _lz4_room(data: memoryview) -> int:
    """Return the bytes that the blocks of a frame have at most, by their number; a guess, where these are many."""
    guess = _guessed_room(data)
    if len(data) < _LZ4_BLOCKS_AT:
        return guess
    flags, block_bytes = data[_LZ4_FLAGS_AT], 1 << 8 + 2 * (data[_LZ4_FLAGS_AT + 1] >> 4 & 7)
    position = _LZ4_BLOCKS_AT + 8 * bool(flags & _LZ4_SIZE_FLAG) + 4 * bool(flags & _LZ4_DICTIONARY_FLAG)
    behind = 4 * bool(flags & _LZ4_SUMS_FLAG)
    room, most = 0, max(guess, _KNOWN_BYTES_MAX)
    while room <= most and position + _LZ4_SIZE.size <= len(data):
        (size,) = _LZ4_SIZE.unpack_from(data, position)
        if not size:
            return max(room, _OUTPUT_BYTES_MIN)
        room += block_bytes
        position += _LZ4_SIZE.size + (size & ~_LZ4_STORED) + behind
    return guess


def _framed(
    name: str, module: Any, room: Callable[[memoryview], int] = _guessed_room
) -> Callable[[memoryview, int], bytearray]:
    """A decompressor for a format that does not tell its output's size beforehand; `room`: that of the first try."""

    def decompress_framed(data: memoryview, bytes_max: int) -> bytearray:
        size = min(room(data), bytes_max)
        while True:
            output = bytearray(size)
            try:
                del output[module.decompress_into(data, output) :]
                return output
            except cramjam.DecompressionError as error:
                # Damaged data and a full output look alike, so both end only at the limit.
                if size == bytes_max:
                    raise _damaged(name, f"{error} (the most it may give is {bytes_max} bytes)") from None
            size = min(_GROWTH * size, bytes_max)

    return decompress_framed


def _lz4_compress(data: memoryview, level: int | None) -> bytes:
    """A frame of blocks that do not refer to each other: Java clients refuse other frames, which cramjam makes."""
    mode: Literal["high_compression"] | None = None if level is None else "high_compression"
    output = bytearray(_LZ4_HEADER)
    for start in range(0, len(data), _LZ4_BLOCK_BYTES):
        piece = data[start : start + _LZ4_BLOCK_BYTES]
        block = memoryview(cramjam.lz4.compress_block(piece, mode=mode, compression=level, store_size=False))
        if len(block) < len(piece):
            output += _LZ4_SIZE.pack(len(block))
            output += block
        else:
            output += _LZ4_SIZE.pack(_LZ4_STORED | len(piece))
            output += piece
    return bytes(output + _LZ4_END)


def _xerial_compress(data: memoryview) -> bytes:
    output = bytearray(_XERIAL_HEADER.pack(_XERIAL_MAGIC, 1, 1))
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES])
        output += _XERIAL_LENGTH.pack(len(block))
        output += memoryview(block)
    return bytes(output)


def _damaged(name: str, reason: object) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, f"the batch is not {name}: {reason}")


def _too_large(bytes_max: int) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, f"the batch decompresses to more than {bytes_max} bytes")


_DECOMPRESSORS: Final[dict[int, Callable[[memoryview, int], bytes | bytearray]]] = {
    NONE: _bounded_copy,
    GZIP: _gunzip,
    SNAPPY: _unsnappy,
    LZ4: _framed("lz4", cramjam.lz4, _lz4_room),
    ZSTD: _framed("zstd", cramjam.zstd),
}
