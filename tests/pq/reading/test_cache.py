"""The node's cache of pages: what it drops, and what it tells of that (semantics A.10)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pqbroker.pq.log.body import BodyName
from pqbroker.pq.reading.cache import BlobCache
from tests.pq.rig import MIB, Node, batch, read_all, write


class Page:
    """Something that pins so many bytes."""

    def __init__(self, size: int) -> None:
        self.bytes_held = size


@pytest.mark.spec("A.10", "G.2", "G.8")
def test_the_least_recently_used_page_goes_first() -> None:
    cache = BlobCache(20)
    for number in range(2):
        cache.put((1, 0, number, 0), Page(10), 0)
    cache.get((1, 0, 0, 0))
    cache.put((1, 0, 2, 0), Page(10), 0)
    assert [(1, 0, number, 0) in cache for number in range(3)] == [True, False, True]


@pytest.mark.spec("A.10", "G.2", "G.8")
def test_evictions_tell_who_was_used_and_how_long_each_was_kept() -> None:
    cache = BlobCache(20)
    cache.put((1, 0, 0, 0), Page(10), 100.0)
    cache.put((1, 0, 1, 0), Page(10), 101.0)
    cache.get((1, 0, 0, 0))
    cache.put((1, 0, 2, 0), Page(20), 107.5)
    assert (cache.evictions, cache.unused_evictions, cache.kept_seconds) == (2, 1, 14.0)
    cache.get((1, 0, 9, 0))
    cache.put((1, 0, 3, 0), Page(1), 110.0)
    assert (cache.evictions, cache.unused_evictions, cache.kept_seconds) == (3, 2, 16.5)


def test_a_page_that_is_there_stays_with_its_age_and_one_that_is_deleted_is_not_evicted() -> None:
    cache = BlobCache(10)
    cache.put((1, 0, 0, 0), Page(10), 1.0)
    cache.put((1, 0, 0, 0), Page(10), 5.0)
    cache.put((1, 7, 0, 0), Page(10), 9.0)
    assert cache.kept_seconds == 8.0
    cache.forget(1, BodyName(7, 0), 1)
    assert (cache.size, cache.evictions) == (0, 1)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 40), st.booleans())))
def test_sizes_add_up_and_stay_below_the_limit(calls: list[tuple[int, int, bool]]) -> None:
    cache = BlobCache(60)
    kept: dict[int, int] = {}
    for number, size, is_put in calls:
        if is_put:
            kept.setdefault(number, size)
            cache.put((1, 0, number, 0), Page(size), 0)
        else:
            cache.get((1, 0, number, 0))
        kept = {one: held for one, held in kept.items() if (1, 0, one, 0) in cache}
        assert cache.size == sum(kept.values()) <= 60
        assert len(cache) == len(kept)
    assert cache.unused_evictions <= cache.evictions


async def test_pages_that_are_read_once_and_dropped_were_of_no_use() -> None:
    node = await Node(cache_bytes=17 * MIB).start()
    partition = await node.topic()
    await write(partition, *(batch(size=MIB) for _ in range(60)))
    cache = node.topics.memory.cache
    assert cache.evictions == cache.unused_evictions > 0, "bodies that nobody read"
    assert cache.kept_seconds > 0
    for _ in range(3):
        await read_all(partition, 56)
    await write(partition, *(batch(size=MIB) for _ in range(60)))
    assert 0 < cache.unused_evictions < cache.evictions
