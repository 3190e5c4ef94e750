"""Rows of the last rounds, before the index has them."""

import pytest

from pqbroker.storage.disk.commits import recent_rows
from pqbroker.storage.disk.commits.index_changes import IndexChanges
from pqbroker.storage.disk.commits.recent_rows import RecentRows
from tests.storage.disk.commits.logs import Rows


def round_of(**values: bytes | None) -> IndexChanges:
    """None deletes."""
    changes = IndexChanges()
    changes.add(b"", [(key.encode(), value) for key, value in values.items()])
    return changes


def older(keys: list[bytes]) -> list[bytes | None]:
    """An index in which every key has itself for a value."""
    return list(keys)


def test_the_last_value_of_a_key_counts_and_none_that_was_deleted() -> None:
    recent = RecentRows()
    recent.add(round_of(a=b"1", b=b"1", c=b"1", d=None))
    recent.add(round_of(b=None, c=b"2", d=b""))
    assert recent.get([b"a", b"b", b"x", b"c", b"a", b"d"], older) == [b"1", None, b"x", b"2", b"1", b""]
    assert recent.get([b"x", b"y"], older) == [b"x", b"y"]


def test_each_key_is_handed_over_once_and_then_the_index_is_asked() -> None:
    recent, index = RecentRows(), Rows()
    index.rows = {b"b": b"0", b"e": b"0"}
    recent.add(round_of(a=b"1", b=b"1"))
    recent.add(round_of(a=b"2", b=None))
    handed: list[Rows] = []
    recent.hand_over(lambda: index, handed.append)
    assert index.rows == {b"a": b"2", b"e": b"0"}
    assert recent.get([b"a", b"b"], older) == [b"a", b"b"]
    recent.hand_over(lambda: index, handed.append)
    assert handed == [index]


def test_what_the_index_did_not_take_is_kept() -> None:
    recent, index = RecentRows(), Rows()
    recent.add(round_of(a=b"1"))

    def refuse(_: Rows) -> None:
        raise OSError("refused")

    with pytest.raises(OSError, match="refused"):
        recent.hand_over(lambda: index, refuse)
    assert recent.get([b"a"], older) == [b"1"]


def test_rounds_and_bytes_are_limited() -> None:
    recent = RecentRows()
    for _ in range(recent_rows.ROUNDS_MAX - 1):
        recent.add(round_of(a=b"1"))
    assert not recent.is_full
    recent.add(round_of(a=b"1"))
    assert recent.is_full
    recent.hand_over(Rows, lambda _: None)
    assert not recent.is_full
    recent.add(round_of(a=bytes(recent_rows.BYTES_MAX)))
    assert recent.is_full
