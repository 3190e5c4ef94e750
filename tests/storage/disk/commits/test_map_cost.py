"""The map of zero sectors is written only where there are such, and costs the commit thread little."""

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pqbroker.storage.disk.commits.commit_log import HEADER_STAND_IN
from pqbroker.storage.disk.commits.zero_sectors import encode_runs, find_zero_sectors, may_have_zero_sectors
from tests.storage.cells import MIB, RocksCell, blobs, copy_alive, rows
from tests.storage.disk.mending.cells import rounds

ROUND_BYTES = 16 * MIB
BATCH_BYTES = 64 << 10
NAMED, PASSED_OVER = 8.0, 2.0
"""Times a plain search through memory, which is 1 ms on an ordinary core that is idle, and 4 on others."""
TRIES = 50
"""The best of them counts: others of the machine take their part of a processor's caches."""
CLIENTS = {
    "zeros": bytes(ROUND_BYTES),
    "padding": (bytes(4096) + b"\xff" * 4096) * (ROUND_BYTES // 8192),
    "images": ((bytes(1500) + b"\xff" * 700) * (ROUND_BYTES // 2200 + 1))[:ROUND_BYTES],
}


async def test_only_rounds_with_zero_sectors_have_a_map(tmp_path: Path) -> None:
    cell, source = RocksCell(tmp_path / "cell"), random.Random(3)
    shard = await cell.open()
    for size in (400, 5_000, 100_000):
        await shard.commit(rows((b"K%d" % size, source.randbytes(min(size, 5_000)))))
        await shard.commit(blobs(shard, [(size, source.randbytes(size))]))
    await shard.commit(rows((b"zeros", bytes(5_000))))
    await shard.commit(blobs(shard, [(1, bytes(100_000))]))
    copy_alive(cell.path, tmp_path / "copy")
    await shard.close()
    has_map = [bool(each.header.map_bytes) for each in rounds(tmp_path / "copy")]
    assert has_map[-2:] == [True, True]
    assert not any(has_map[:-2])
    assert len(has_map) >= 8


def searches(work: Callable[[], object], limit: float) -> float:
    """Return how many times longer some work takes than a plain search through as many bytes; no more tries once it
    keeps to the limit."""
    content, least = random.Random(5).randbytes(ROUND_BYTES), float("inf")
    for _ in range(TRIES):
        search_s = _cpu_s(lambda: content.find(bytes(512)))
        least = min(least, _cpu_s(work) / search_s)
        if least <= limit:
            break
    return least


def _cpu_s(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began


@pytest.mark.alone
@pytest.mark.parametrize("content", CLIENTS.values(), ids=CLIENTS)
def test_zeros_are_named_in_the_time_of_a_few_searches(content: bytes) -> None:
    buffers = [content[at : at + BATCH_BYTES] for at in range(0, ROUND_BYTES, BATCH_BYTES)]

    def name() -> bytes:
        assert may_have_zero_sectors(b"\1", buffers)
        return encode_runs(find_zero_sectors([HEADER_STAND_IN, *buffers], 0))

    assert searches(name, NAMED) <= NAMED


@pytest.mark.alone
def test_what_has_no_zeros_is_passed_over_in_the_time_of_a_search() -> None:
    content = random.Random(4).randbytes(ROUND_BYTES)
    buffers = [content[at : at + BATCH_BYTES] for at in range(0, ROUND_BYTES, BATCH_BYTES)]
    assert searches(lambda: may_have_zero_sectors(b"\1", buffers), PASSED_OVER) <= PASSED_OVER
    assert not may_have_zero_sectors(b"\1", buffers)
