"""The prototype of sorted tables, measured: python -m tests.prototypes.sorted_tables [--rows 10000000]

One chunk of rows, (int64 key; int64, double, utf8 values) of about 100 bytes, in blocks of 64 KiB: what a
worker takes to make it, bytes a row on disk, lookups of one key in plain Python with blocks in memory and with blocks
to be unpacked, what a memory store takes for each row, and how fast it is filled.
"""

import argparse
import gc
import random
import resource
import time
import tracemalloc
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any
from zlib import crc32

import cramjam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sortedcontainers import SortedDict

from pqbroker.tables.sorted.blocks import BLOCK_BYTES_MAX, Block, encode_block
from pqbroker.tables.sorted.keys import key_encoder

TYPES = ("int64", "int64", "double", "utf8")
TEXT_BYTES = 60
BITS_PER_KEY = 10
_MIX = 0x9E3779B97F4A7C15
_WORD = (1 << 64) - 1


@dataclass
class Chunk:
    """Blocks, compressed, and what finds them."""

    first_keys: list[bytes] = field(default_factory=list)
    blocks: list[bytes] = field(default_factory=list)
    raw_bytes: int = 0
    filter_words: Any = None

    def may_have(self, key: bytes) -> bool:
        word, mask = _probe(crc32(key), len(self.filter_words))
        return bool(self.filter_words[word] & mask == mask)


def make_rows(count: int) -> pa.Table:
    """Rows in the order of their key."""
    ids = np.arange(count, dtype=np.int64) * 3
    texts = np.random.default_rng(7).integers(97, 123, size=(1000, TEXT_BYTES), dtype=np.uint8)
    words = pa.array([bytes(row).decode() for row in texts])
    return pa.table({
        "id": ids, "amount": np.random.default_rng(1).integers(0, 1 << 40, count), "price": np.random.rand(count),
        "text": words.take(pa.array(np.random.default_rng(2).integers(0, 1000, count))),
    })  # fmt: skip


def encode_keys(ids: Any) -> tuple[Any, Any]:
    """Offsets and bytes of the encoded keys, as `key_encoder(["int64"])` makes them one by one."""
    encoded = np.empty((len(ids), 9), np.uint8)
    encoded[:, 0] = 1
    flipped = (ids.astype(np.uint64) ^ np.uint64(1 << 63)).byteswap()
    encoded[:, 1:] = flipped.view(np.uint8).reshape(-1, 8)
    return np.arange(len(ids) + 1, dtype=np.int64) * 9, encoded.reshape(-1)


def make_chunk(rows: pa.Table) -> Chunk:
    """Write rows into a chunk, as a flush or a compaction does."""
    count, chunk = len(rows), Chunk()
    ids = rows["id"].combine_chunks().to_numpy()
    key_offsets, keys = encode_keys(ids)
    timestamps = np.full(count, 1 << 60, np.uint64)
    text = rows["text"].combine_chunks()
    _, text_offsets, text_bytes = text.buffers()
    text_offsets = np.frombuffer(text_offsets, np.int32)
    fixed = [rows[name].combine_chunks().to_numpy() for name in ("amount", "price")]
    ends = key_offsets + text_offsets + np.arange(count + 1, dtype=np.int64) * (4 + 8 + 8 + 16 + 4)
    begin = 0
    while begin < count:
        end = max(begin + 1, int(np.searchsorted(ends, ends[begin] + BLOCK_BYTES_MAX - 512)))
        end = min(end, count)
        buffers: list[Any] = [
            _offsets(key_offsets, begin, end), keys[key_offsets[begin] : key_offsets[end]].data,
            timestamps[begin:end].view(np.uint8).data, b"",
            b"", b"", b"", ids[begin:end].view(np.uint8).data,
        ]  # fmt: skip
        for values in fixed:
            buffers += (b"", b"", b"", values[begin:end].view(np.uint8).data)
        texts = memoryview(text_bytes)[text_offsets[begin] : text_offsets[end]]
        buffers += (b"", b"", _offsets(text_offsets, begin, end), texts)
        block = encode_block(end - begin, buffers)
        chunk.first_keys.append(keys[key_offsets[begin] : key_offsets[begin + 1]].tobytes())
        chunk.blocks.append(bytes(cramjam.lz4.compress_block(block)))
        chunk.raw_bytes += len(block)
        begin = end
    chunk.filter_words = _filter(key_offsets, keys)
    return chunk


def _offsets(all_offsets: Any, begin: int, end: int) -> Any:
    return (all_offsets[begin : end + 1] - all_offsets[begin]).astype(np.int32).view(np.uint8).data


def _filter(offsets: Any, keys: Any) -> Any:
    """A bloom filter of words: of each key four bits in one word of 64."""
    data = keys.tobytes()
    bounds = offsets.tolist()
    hashes = np.fromiter(
        (crc32(data[begin:end]) for begin, end in pairwise(bounds)), np.uint64, len(bounds) - 1
    )
    mixed = hashes * np.uint64(_MIX)
    words = np.zeros(len(hashes) * BITS_PER_KEY // 64 + 1, np.uint64)
    masks = np.zeros(len(hashes), np.uint64)
    for shift in (58, 52, 46, 40):
        masks |= np.uint64(1) << ((mixed >> np.uint64(shift)) & np.uint64(63))
    np.bitwise_or.at(words, hashes % np.uint64(len(words)), masks)
    return memoryview(words.tobytes()).cast("Q")


def _probe(hashed: int, words: int) -> tuple[int, int]:
    mixed = hashed * _MIX & _WORD
    return hashed % words, 1 << (mixed >> 58) | 1 << (mixed >> 52 & 63) | 1 << (mixed >> 46 & 63) | 1 << (
        mixed >> 40 & 63
    )


class Lookups:
    """Lookups of one key in a chunk, with a cache of blocks that were unpacked."""

    def __init__(self, chunk: Chunk) -> None:
        self._chunk = chunk
        self._encode = key_encoder(TYPES[:1])
        self._cache: dict[int, Block] = {}

    def find(self, key: int, *, keep: bool = True) -> tuple[Any, ...] | None:
        encoded, chunk = self._encode((key,)), self._chunk
        if not chunk.may_have(encoded):
            return None
        number = bisect_right(chunk.first_keys, encoded) - 1
        block = self._cache.get(number)
        if block is None:
            block = Block(bytes(cramjam.lz4.decompress_block(chunk.blocks[number])), TYPES)
            if keep:
                self._cache[number] = block
        row = block.find(encoded)
        if row == block.rows or block.key(row) != encoded:
            return None
        return None if block.is_delete(row) else tuple(block.value(row, column) for column in range(len(TYPES)))


def scan(chunk: Chunk) -> pa.Table:
    """Read a chunk as a worker does: unpack each block, take its columns as they stand."""
    types = (pa.int64(), pa.int64(), pa.float64(), pa.utf8())
    found: list[list[pa.Array]] = [[] for _ in types]
    for packed in chunk.blocks:
        block = Block(bytes(cramjam.lz4.decompress_block(packed)), TYPES)
        for column, (kind, arrays) in enumerate(zip(types, found, strict=True)):
            first = 4 + 4 * column
            offsets, values = (pa.py_buffer(block.buffer(first + at)) for at in (2, 3))
            buffers = [None, offsets, values] if kind == pa.utf8() else [None, values]
            arrays.append(pa.Array.from_buffers(kind, block.rows, buffers))
    return pa.table([pa.chunked_array(arrays) for arrays in found], names=["id", "amount", "price", "text"])


def merge(chunks: list[Chunk]) -> Chunk:
    """Merge chunks as a compaction does: sort all rows, keep the newest of each key, write them."""
    rows = pa.concat_tables([
        scan(chunk).append_column("age", pa.repeat(pa.scalar(age, pa.int64()), _rows_of(chunk)))
        for age, chunk in enumerate(chunks)
    ])  # fmt: skip
    rows = rows.take(pc.sort_indices(rows, [("id", "ascending"), ("age", "ascending")]))
    ids = rows["id"].combine_chunks().to_numpy()
    is_newest = np.concatenate(([True], ids[1:] != ids[:-1]))
    return make_chunk(rows.filter(pa.array(is_newest)))


def _rows_of(chunk: Chunk) -> int:
    return sum(Block(bytes(cramjam.lz4.decompress_block(each)), TYPES).rows for each in chunk.blocks)


def _rate(what: str, act: Callable[[], int]) -> None:
    gc.collect()
    began, cpu = time.perf_counter(), time.process_time()
    count = act()
    seconds, cpu_s = time.perf_counter() - began, time.process_time() - cpu
    print(f"{what}: {count / seconds:,.0f} a second, {cpu_s / count * 1e6:.2f} CPU-us each")


def _stores(count: int) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Forms of a memory store, by name: what fills one with rows of 100 bytes."""
    encode = key_encoder(("int64",))
    ids = [random.randrange(1 << 60) for _ in range(count)]
    packed = b"x" * 80

    def rows_as_values() -> Any:
        store: Any = {}
        for at, each in enumerate(ids):
            store[encode((each,))] = ((at << 30) + (1 << 60), (each, at + 0.5, packed[: 40 + at % 40].decode()))
        return store

    def rows_as_bytes() -> Any:
        store: Any = {}
        for at, each in enumerate(ids):
            store[encode((each,))] = ((at << 30) + (1 << 60)).to_bytes(8, "little") + packed[: 60 + at % 20]
        return store

    def rows_in_order() -> Any:
        store: Any = SortedDict()
        for at, each in enumerate(ids):
            store[encode((each,))] = ((at << 30) + (1 << 60)).to_bytes(8, "little") + packed[: 60 + at % 20]
        return store

    yield "a dict of values", rows_as_values
    yield "a dict of packed rows", rows_as_bytes
    yield "a SortedDict of packed rows", rows_in_order


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.prototypes.sorted_tables", description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--stored", type=int, default=200_000, help="rows in a memory store")
    options = parser.parse_args()
    rows = make_rows(options.rows)
    chunk = Chunk()

    def make() -> int:
        nonlocal chunk
        chunk = make_chunk(rows)
        return len(rows)

    _rate("rows into a chunk", make)
    stored = sum(map(len, chunk.blocks))
    print(f"{len(chunk.blocks)} blocks; {chunk.raw_bytes / options.rows:.1f} bytes a row, {stored / options.rows:.1f}"
          f" compressed; filter {len(chunk.filter_words) * 8 / options.rows:.2f}; peak"
          f" {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MiB")  # fmt: skip
    source = random.Random(5)
    lookups = Lookups(chunk)
    some = [source.randrange(options.rows) * 3 for _ in range(20_000)]
    assert all(lookups.find(key)[0] == key for key in some[:100])  # type: ignore[index]
    few = [source.choice(some[:300]) for _ in range(50_000)]

    def warm() -> int:
        for key in few:
            lookups.find(key)
        return len(few)

    def cold() -> int:
        for key in some:
            lookups.find(key, keep=False)
        return len(some)

    def absent() -> int:
        wrong = sum(chunk.may_have(key_encoder(("int64",))((key + 1,))) for key in some)
        print(f"wrong answers of the filter: {wrong * 100 / len(some):.2f} %")
        return len(some)

    warm()
    _rate("lookups, warm", warm)
    _rate("lookups, each block unpacked", cold)
    _rate("keys that are not there", absent)
    _rate("rows of a scan", lambda: len(scan(chunk)))
    third = options.rows // 3
    chunks = [make_chunk(rows.slice(begin, third)) for begin in (0, third // 2, third)]
    _rate("rows into a merge of three chunks", lambda: len(merge(chunks).blocks) and 3 * third)
    for name, fill in _stores(options.stored):
        _rate(f"rows into {name}", lambda fill=fill: len(fill()))  # type: ignore[misc]
        gc.collect()
        tracemalloc.start()
        store = fill()
        print(f"{name}: {tracemalloc.get_traced_memory()[0] / len(store):.0f} bytes a row")
        tracemalloc.stop()


if __name__ == "__main__":
    main()
