"""Chunks of a tablet by place: as if each were placed again, whatever changes, and only what changes is looked at."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pqbroker.tables.serving import structure
from pqbroker.tables.serving.open_chunk import OpenChunk
from pqbroker.tables.serving.structure import Structure
from pqbroker.tables.sorted.picking.facts import partition_of

END = b"\x20"
keys = st.integers(0, 40).map(lambda number: bytes([number]))
spans = st.tuples(keys, keys).map(sorted)
pivots = st.lists(st.integers(1, 31).map(lambda number: bytes([number])), unique=True, max_size=8)
changes = st.lists(st.tuples(st.lists(spans, max_size=4), st.lists(st.integers(0, 30), max_size=4), st.none() | pivots))


def chunk(number: int, first_key: bytes, last_key: bytes) -> OpenChunk:
    """A chunk of which no more is known than its number and keys."""
    found = OpenChunk.__new__(OpenChunk)
    found.number, found.first_key, found.last_key = number, first_key, last_key
    return found


def naive(chunks: dict[int, OpenChunk], its_pivots: list[bytes]) -> list[list[int]]:
    """Numbers of the chunks of each partition, Eden's behind them."""
    placed: list[list[int]] = [[] for _ in range(len(its_pivots) + 1)]
    for number, one in sorted(chunks.items()):
        index = partition_of(one.first_key, one.last_key, its_pivots, END)
        placed[-1 if index is None else index].append(number)
    return placed


def shown(found: Structure) -> list[list[int]]:
    return [[one.number for one in chunks] for chunks in (*found.partitions, found.eden)]


@given(changes)
def test_chunks_are_placed_as_if_all_were_placed_again(steps: list[Any]) -> None:
    found, number, its_pivots = Structure([b""], END), 0, [b""]
    for added, removed, new_pivots in steps:
        new = [chunk(number + at, *span) for at, span in enumerate(added)]
        number += len(new)
        gone = {one for one in removed if one in found.chunks}
        if new_pivots is not None:
            its_pivots = [b"", *sorted(new_pivots)]
        before = found.layout
        seen = [[one.number for one in chunks] for chunks in (*before.partitions, before.eden)]
        found.change(new, gone, None if new_pivots is None else its_pivots)
        assert shown(found) == naive(found.chunks, its_pivots)
        assert [[one.number for one in chunks] for chunks in (*before.partitions, before.eden)] == seen
        assert found.pivots == its_pivots
    assert found.changes == len(steps)


def test_a_change_places_the_chunks_that_it_changes_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand were 5 to 17 ms in the loop's thread."""
    found = Structure([bytes([at, 0]) for at in range(100)], None)
    found.change([chunk(at, bytes([at, 0, 1]), bytes([at, 9])) for at in range(100)], ())
    placed: list[bytes] = []

    def counted(first_key: bytes, *rest: Any) -> int | None:
        placed.append(first_key)
        return partition_of(first_key, *rest)

    monkeypatch.setattr(structure, "partition_of", counted)
    found.change([chunk(200, b"\5\0\2", b"\5\3")], [7, 8])
    assert len(placed) == 3
    placed.clear()
    found.change((), (), sorted([*found.pivots, b"\5\2"]))
    assert len(placed) == 2, "those of the partition that was split"
    assert [one.number for one in found.eden] == [5, 200]
