"""Faults on cue, a switch for tests only: what commits to come meet in an engine. One that has none asks nobody.

    refuse_next   a commit is refused: nothing of it is stored, the shard lives
    lose_next     a commit loses the shard, before anything of it is stored, or durable and not acknowledged yet
    hold          commits gather, until release
    fill          commits with blobs are refused as by a full disk, until make_room
"""

import threading
from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

from pqbroker.storage.engine import Batch, CommitRefused, DiskFull
from pqbroker.storage.pool_status import Colour


@runtime_checkable
class FaultyEngine(Protocol):
    """An engine that meets faults on cue."""

    @property
    def faults(self) -> "Faults | None":
        """Return the faults of the engine; None if it was opened without any."""

    def tell_colour(self, colour: Colour | None, pool: str) -> None:
        """Give a pool this colour, however much is free; None: its own again."""

    def sibling(self, name: str, *, must_exist: bool) -> "FaultyEngine":
        """The engine of another cell of the node; see `Engine.sibling`."""


class Loss(NamedTuple):
    """A commit that loses the shard; `stored`: it is durable all the same."""

    stored: bool


class Faults:
    """Cues are given on the loop's thread; an engine asks wherever it commits, once for each commit, in order."""

    def __init__(self) -> None:
        self.released: Callable[[], None] = _nobody_waits
        """Called when commits that gathered may continue; for an engine that cannot block in `wait`."""
        self._script: dict[int, CommitRefused | Loss] = {}
        self._commits = 0
        self._is_full = False
        self.is_waiting = False
        """True while a commit is held, in an engine that blocks in `wait`."""
        self._gate = threading.Event()
        self._gate.set()

    def refuse_next(self, *, after: int = 0) -> None:
        """The next commit is refused, or the one behind `after` more; called again, the one behind that too."""
        self._cue(after, CommitRefused("a fault on cue"))

    def lose_next(self, *, after: int = 0, stored: bool = False) -> None:
        """The next commit loses the shard, or the one behind `after` more; `stored`: once it is durable."""
        self._cue(after, Loss(stored))

    def hold(self) -> None:
        """Commits gather from now on and are not made durable. A new opening of the cell does not begin so."""
        self._gate.clear()

    def release(self) -> None:
        """Commits held are made durable, in order, and so are later ones."""
        self._gate.set()
        self.released()

    def fill(self) -> None:
        """Leave no room for blobs from now on."""
        self._is_full = True

    def make_room(self) -> None:
        self._is_full = False

    def clear(self) -> None:
        """Take back every cue."""
        self._script.clear()
        self.make_room()
        self.release()

    @property
    def commits(self) -> int:
        """Commits that have asked so far."""
        return self._commits

    @property
    def is_full(self) -> bool:
        """Return True if there is no room for blobs."""
        return self._is_full

    @property
    def is_holding(self) -> bool:
        return not self._gate.is_set()

    def wait(self) -> None:
        """Block while commits are held."""
        self.is_waiting = self.is_holding
        self._gate.wait()
        self.is_waiting = False

    def meet(self, batch: Batch) -> CommitRefused | Loss | None:
        """Return what happens to this commit; None: it goes its way."""
        fault = self._script.pop(self._commits, None)
        self._commits += 1
        if fault is None and self._is_full and batch.blobs:
            return DiskFull("a full disk on cue")
        return fault

    def _cue(self, after: int, fault: CommitRefused | Loss) -> None:
        number = self._commits + after
        while number in self._script:
            number += 1
        self._script[number] = fault


def _nobody_waits() -> None: ...
