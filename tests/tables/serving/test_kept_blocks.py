"""Blocks that lookups keep."""

from typing import cast

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
    kept.forget(one)
    assert (kept.size, kept.find(one, 0)) == (30, None)
