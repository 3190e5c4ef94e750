"""The memory store of a sorted table in slices: what grows in it, and what is freed of it at once."""

import gc
import sys

from pqbroker.tables.sorted.store import RowStore


def filled(keys: int, versions: int = 1) -> RowStore:
    store = RowStore(1, 0)
    for at in range(versions):
        store.apply(((b"%d" % number, b"%09d" % at) for number in range(keys)), at, at)
    return store


def test_no_dict_of_a_store_has_more_than_a_tenth_of_its_keys() -> None:
    """A dict that grows moves its entries at once: 350 000 take 15 ms."""
    slices = [len(keys) for keys in filled(20_000).key_slices()]
    assert sum(slices) == 20_000
    assert max(slices) < 2_000


def test_dicts_of_a_store_grow_one_after_the_other() -> None:
    """One grows at each doubling, and moves all it has: were they equal, all would within a turn."""
    store = RowStore(1, 0)
    sizes = [0] * 16
    grown = []
    for turn in range(100):
        store.apply(((b"%d" % number, b"") for number in range(turn * 1_000, turn * 1_000 + 1_000)), 1, 1)
        before, sizes = sizes, [sys.getsizeof(shard) for shard in store._firsts]
        grown.append(sum(one != other for one, other in zip(before, sizes, strict=True)))
    assert max(grown[10:]) <= 7, "those of a thousand keys more"
    assert sum(grown[10:]) >= 48


def test_rows_of_a_spent_store_are_freed_a_few_at_a_time() -> None:
    spent = filled(100).spent_rows()
    left = [sum(map(len, spent._shards))]
    while spent.drop(7):
        left.append(sum(map(len, spent._shards)))
    assert left == list(range(100, 0, -7))
    assert not spent.drop(7)
    assert sum(map(len, spent._shards)) == 0


def test_many_versions_of_one_key_are_freed_a_few_at_a_time_too() -> None:
    store = filled(1, versions=1_000)
    spent = store.spent_rows()
    assert spent.drop(600)
    assert len(store.versions(b"0")) == 400
    assert spent.drop(400)
    assert not spent.drop(1)
    assert store.versions(b"0") == ()


def test_keys_with_one_version_are_nothing_that_a_pass_of_the_collector_goes_through() -> None:
    store = filled(2_000)
    assert not any(map(gc.is_tracked, store._firsts))
    store.apply([(b"7", b"other")], 2, 2)
    assert not any(map(gc.is_tracked, store._firsts))
    assert sum(map(len, filter(gc.is_tracked, store._several))) == 1


def test_a_store_without_rows_has_nothing_to_free() -> None:
    assert not RowStore(1, 0).spent_rows().drop(1)
