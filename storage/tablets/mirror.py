"""A mirror: the scheme's or the hive's row sets on a node that does not run that tablet. Pure: no clock, no link.

    empty --first portion of a snapshot--> loading --last portion--> whole --changes, in order--> whole
    whole --first portion of a later snapshot--> whole, and loading beside
    any   --a change or portion that does not fit--> MirrorRefused: nothing changed, a snapshot or earlier changes help
    whole --an operation that no tablet of this version makes--> MirrorRefused: empty

It never goes back: neither changes nor snapshots of an earlier number are taken, which an owner of the past may send.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Generic, Protocol, TypeVar

from pqbroker.storage.tablets.numbered_changes import NO_CHANGE, NumberedChange, SnapshotPortion
from pqbroker.storage.tablets.row_sets import Key, Row, RowSet, apply
from pqbroker.storage.unreadable import StoredUnreadable


class MirrorRefused(ValueError):
    """A change or a portion does not fit: the text says why."""


class MirroredState(Protocol):
    """State that follows row sets, such as `SchemeState` and `HiveState`."""

    def follow(self, row_set: str, key: Key, row: Row | None) -> None: ...

    def check(self) -> None:
        """Raises StoredUnreadable for row sets of another version."""


S = TypeVar("S", bound=MirroredState)

_UNFIT = (AttributeError, LookupError, StoredUnreadable, TypeError, ValueError)
"""Errors from operations that no tablet of this version makes."""


class _Loading(Generic[S]):
    """A snapshot of which not all portions came yet."""

    __slots__ = ("number", "position", "row_sets", "state")

    def __init__(self, number: int, state: S) -> None:
        self.number = number
        self.position = 0
        self.row_sets: dict[str, RowSet] = {}
        self.state = state


class Mirror(Generic[S]):
    """Row sets that follow those of a tablet on another node, and their state. Readers see whole commits only."""

    def __init__(self, new_state: Callable[[], S]) -> None:
        self._new_state = new_state
        self._row_sets: dict[str, RowSet] = {}
        self._loading: _Loading[S] | None = None
        self._number: int | None = None
        self._confirmed_ms: int | None = None
        self.state = new_state()

    @property
    def row_sets(self) -> Mapping[str, RowSet]:
        return MappingProxyType(self._row_sets)

    @property
    def number(self) -> int | None:
        """Return the number of the last change that it has; None: it is empty, and needs a snapshot."""
        return self._number

    def age_ms(self, now_ms: int) -> int | None:
        """Return how long ago it was last known to be all that there is; None: it never was. The caller's clock must
        not jump."""
        return None if self._confirmed_ms is None else max(now_ms - self._confirmed_ms, 0)

    def confirm(self, number: int, asked_ms: int) -> bool:
        """Note that the owner said, to a question of `asked_ms`, that `number` is its last change. False if the mirror
        does not have it, or has later ones: then it stays as old as it was."""
        if number != self._number:
            return False
        self._confirmed_ms = max(asked_ms, self._confirmed_ms or asked_ms)
        return True

    def take(self, portion: SnapshotPortion) -> bool:
        """Take the next portion of a snapshot; a first one begins it again. True: it was the last one, and the mirror
        is as the snapshot. MirrorRefused."""
        if portion.number < (self._number or NO_CHANGE):
            raise MirrorRefused(f"the snapshot is of change {portion.number}, the mirror of {self._number}: it is old")
        if portion.position == 0:
            self._loading = _Loading(portion.number, self._new_state())
        loading = self._loading
        if loading is None or (loading.number, loading.position) != (portion.number, portion.position):
            raise MirrorRefused(f"a portion of a snapshot is missing before {portion.position} of {portion.count}")
        try:
            for operation in portion.operations:
                apply(loading.row_sets, operation, loading.state.follow)
            loading.position += len(portion.operations)
            if portion.is_last and loading.row_sets:
                loading.state.check()
        except _UNFIT as bad:
            self._loading = None
            raise MirrorRefused(f"the snapshot of change {portion.number} is unreadable: {_text(bad)}") from bad
        if portion.is_last:
            self._row_sets, self.state, self._number = loading.row_sets, loading.state, loading.number
            self._loading = None
        return portion.is_last

    def apply(self, change: NumberedChange) -> bool:
        """Make the next change. False: the mirror has it already. MirrorRefused, and the changes between have to be
        sent first; or the mirror is empty then, where the change cannot be made."""
        if self._number is None:
            raise MirrorRefused("the mirror is empty: it needs a snapshot first")
        if change.number <= self._number:
            return False
        if change.previous != self._number:
            raise MirrorRefused(f"change {change.number} follows {change.previous}, but the mirror has {self._number}")
        try:
            for operation in change.operations:
                apply(self._row_sets, operation, self.state.follow)
            self.state.check()
        except _UNFIT as bad:
            self._empty()  # part of the change may be made
            raise MirrorRefused(f"change {change.number} is unreadable: {_text(bad)}") from bad
        self._number = change.number
        return True

    def _empty(self) -> None:
        self._row_sets, self.state = {}, self._new_state()
        self._number = self._confirmed_ms = None


def _text(bad: Exception) -> str:
    return str(bad) or type(bad).__name__
