"""A process that owns a cell and commits numbered batches until it is killed or fenced; one line for each acknowledged.

    python -m tests.storage.committing DIRECTORY
"""

import asyncio
import itertools
import sys
from collections import deque
from pathlib import Path

from pqbroker.storage.disk.rocks import RocksEngine
from pqbroker.storage.disk.segment_emptying import EmptyingPace
from pqbroker.storage.engine import Batch, Shard, ShardLost
from pqbroker.storage.outcome import Outcome
from tests.storage.cells import MIB, blob_key, content

IN_FLIGHT = 8
EAGER = EmptyingPace(look_seconds=0.005)
KEPT = 60
"""Blobs older than this many batches are deleted, but one in SPARED."""
SPARED = 20


def blob_size(number: int) -> int:
    """Small ones inside the index, larger ones in segments."""
    return (300, 5_000, 70_000)[number % 3]


def numbered(shard: Shard, number: int) -> Batch:
    batch = Batch()
    batch.put(b"Kn%012d" % number, b"")
    batch.put(b"Klast", b"%d" % number)
    size = blob_size(number)
    batch.put_blob(blob_key(number), [content(number, size)], size, shard.pools[0])
    if number >= KEPT and not is_kept(number - KEPT, number):
        batch.delete_blob(blob_key(number - KEPT))
    return batch


def is_kept(number: int, last: int) -> bool:
    """Whether the blob of that number is stored when `last` is the last one."""
    return number > last - KEPT or number % SPARED == 0


async def last_number(shard: Shard) -> int:
    (last,) = await shard.get([b"Klast"])
    return -1 if last is None else int(last)


async def main(path: Path) -> None:
    shard = await RocksEngine(path, segment_bytes=MIB, ballast_bytes=0, emptying=EAGER).open()
    await shard.release()
    print("open", shard.generation, flush=True)
    waiting: deque[tuple[int, Outcome[None]]] = deque()
    for number in itertools.count(await last_number(shard) + 1):
        waiting.append((number, shard.commit(numbered(shard, number))))
        if len(waiting) < IN_FLIGHT:
            continue
        acknowledged, commit = waiting.popleft()
        try:
            await commit
        except ShardLost as lost:
            print("lost", type(lost).__name__, flush=True)
            break
        print(acknowledged, flush=True)
    await asyncio.gather(*(commit for _, commit in waiting), return_exceptions=True)
    await shard.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
