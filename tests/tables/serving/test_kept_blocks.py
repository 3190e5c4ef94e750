"""Blocks that lookups keep."""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, cast

from pqbroker.tables.serving.open_chunk import KeptBlocks, OpenChunk
from pqbroker.tables.sorted.blocks import Block


def chunk(identity: int) -> OpenChunk:
    """A chunk of which no more is known than that it is another one."""
    found = OpenChunk.__new__(OpenChunk)
    found.identity = identity
    return found


def test_the_least_recently_used_block_goes_first() -> None:
    kept = KeptBlocks(100)
    item = cast("Block", object())
    one, other = chunk(1), chunk(2)
    for number in range(3):
        kept.keep(one, number, item, 30)
    assert kept.find(one, 0) == item
    kept.keep(other, 0, item, 30)
    assert [kept.find(one, number) == item for number in range(3)] == [True, False, True]
    kept.keep(other, 1, item, 101)
    assert kept.find(other, 1) is None, "what has no room at all is not kept"
    kept.forget([one])
    assert (kept.size, kept.find(one, 0)) == (30, None)


def test_what_is_kept_is_walked_through_once_however_many_chunks_go() -> None:
    """A table of ten thousand chunks that was unmounted took a walk for each."""

    class Walked(OrderedDict[Any, Any]):
        walks = 0

        def __iter__(self) -> Iterator[Any]:
            Walked.walks += 1
            return super().__iter__()

    kept = KeptBlocks(1_000)
    kept._kept = Walked()
    chunks = [chunk(identity) for identity in range(20)]
    for one in chunks:
        kept.keep(one, 0, cast("Block", object()), 10)
    kept.forget(chunks[:10])
    assert Walked.walks == 1
    assert kept.size == 100
