"""Measures sorted tables in a worker, and lookups in a chunk: python -m tests.benchmarks.merging [--rows N]

Rows of about 100 bytes (int64 key; int64, double, utf8 values) in three logs whose keys overlap: each is flushed, the
three chunks are merged, one chunk and all three are scanned, all in this process, which counts CPU seconds. Keys are
looked up in plain Python, with blocks in memory and with blocks that are unpacked.
"""

import argparse
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pqbroker.pq.log.commit_timestamps import TIMESTAMP_MAX, timestamp_of
from pqbroker.tables.sorted.blocks import Block
from pqbroker.tables.sorted.keys import key_encoder
from pqbroker.tables.sorted.log_entries import NewRow, encode_entry
from pqbroker.tables.sorted.packed_rows import RowForm
from pqbroker.tables.work.sorted.merging import open_runs
from pqbroker.tables.work.sorted.scanning import SortedScan, scan_rows
from pqbroker.tables.work.sorted.stored_values import StoredFiles
from pqbroker.tables.work.sorted.version_columns import SortedShape
from tests.tables.work.sorted.worker_line import Table, index_of, merged

TABLE: Table = ([["id", "int64"]], [["amount", "int64"], ["price", "double"], ["text", "utf8"]])
LOGS = 3
TEXT_CHARACTERS = 60
COMMIT_ROWS = 1000
KEY_STEP = 3
NEWEST_ALONE = {
    "now_ms": 10**12, "min_data_ttl": 0, "max_data_ttl": 0, "min_data_versions": 1, "max_data_versions": 1,
    "major": TIMESTAMP_MAX, "retained": TIMESTAMP_MAX, "hidden_before": TIMESTAMP_MAX,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Measured:
    """CPU microseconds of one row or one lookup."""

    what: str
    count: int
    cpu_us: float

    def __str__(self) -> str:
        return f"{self.what}: {self.cpu_us:.2f} CPU-us each, {1e6 / self.cpu_us:,.0f} a CPU-second"


def measure(rows: int, lookups: int) -> Iterator[Measured]:
    """Yield what each step takes; the first one loads the libraries."""
    chance = random.Random(1)
    logs = [_log(chance, rows // LOGS, rows, number) for number in range(LOGS)]
    chunks = []
    for log in logs:
        found, (chunk,) = _timed("rows of a flush", rows // LOGS, partial(_flushed, log))
        chunks.append(chunk)
        yield found
    found, (whole,) = _timed(
        "versions of a merge of three chunks", rows, lambda: merged(TABLE, chunks=chunks, clean_up=NEWEST_ALONE)[0]
    )
    yield found
    kept = index_of(whole).facts.rows
    payloads = (whole, b"".join(chunks))
    yield _timed("rows of a scan of one chunk", kept, lambda: _scan([whole], payloads[0]))[0]
    yield _timed("versions of a scan of three chunks that overlap", rows, lambda: _scan(chunks, payloads[1]))[0]
    ids = [chance.randrange(rows) * KEY_STEP for _ in range(lookups)]
    yield _timed("lookups, blocks in memory", lookups, lambda: _find(whole, ids, keep=True), twice=True)[0]
    yield _timed("lookups, each block unpacked", lookups, lambda: _find(whole, ids, keep=False))[0]
    absent = [one + 1 for one in ids]
    yield _timed("lookups of keys that are absent", lookups, lambda: _find(whole, absent, keep=False))[0]


def _flushed(log: bytes) -> list[bytes]:
    return merged(TABLE, [log])[0]


def _log(chance: random.Random, count: int, keys: int, number: int) -> bytes:
    """One log value of a store; texts of few forms, so that they compress a little, as texts do."""
    form, encode = RowForm([kind for _, kind in TABLE[1]]), key_encoder(["int64"])
    texts = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=TEXT_CHARACTERS)) for _ in range(1000)]
    entries = []
    for begin in range(0, count, COMMIT_ROWS):
        rows = [
            NewRow(
                encode((chance.randrange(keys) * KEY_STEP,)),
                form.pack([chance.randrange(1 << 40), chance.random(), chance.choice(texts)], is_update=False),
            )
            for _ in range(min(COMMIT_ROWS, count - begin))
        ]
        entries.append(encode_entry(len(TABLE[1]), [(timestamp_of((number + 1) * 10**9 + begin), rows)]))
    return b"".join(entries)


def _timed(what: str, count: int, act: Callable[[], Any], *, twice: bool = False) -> tuple[Measured, Any]:
    """Act, and measure the last time."""
    if twice:
        act()
    began = time.process_time()
    found = act()
    return Measured(what, count, (time.process_time() - began) / count * 1e6), found


def _scan(chunks: Sequence[bytes], payload: bytes) -> int:
    shape = SortedShape.read({"key": TABLE[0], "value": TABLE[1]})
    wanted = SortedScan(shape, range(len(shape.columns)), TIMESTAMP_MAX, is_ordered=False)
    inputs = [{"kind": "chunk", "pieces": [len(chunk)]} for chunk in chunks]
    with StoredFiles() as files:
        runs = open_runs(inputs, memoryview(payload), files, shape, wanted.columns)
        return sum(batch.num_rows for batch in scan_rows(runs, wanted))


_BLOCKS: dict[int, Block] = {}


def _find(chunk: bytes, ids: Sequence[int], *, keep: bool) -> int:
    """Look up keys one by one: how many there are."""
    index, encode = index_of(chunk), key_encoder(["int64"])
    found = 0
    for one in ids:
        key = encode((one,))
        if not index.may_have(key):
            continue
        for number in index.blocks_of(key):
            block = _BLOCKS.get(number) if keep else None
            if block is None:
                place = index.places[number]
                block = index.block(number, chunk[place.position : place.position + place.stored_bytes])
                if keep:
                    _BLOCKS[number] = block
            rows = block.rows_of(key)
            found += sum(bool(block.version(row, 1)) for row in rows)
            if rows.stop < block.rows:
                break
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.merging", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--lookups", type=int, default=20_000)
    options = parser.parse_args()
    for found in measure(options.rows, options.lookups):
        print(found, flush=True)


if __name__ == "__main__":
    main()
