"""Owners of tablets: the objects of the scheme by kind, as an opening of the node's cells serves them.

Moves of tablets, and openings and evacuations of cells ask these, and need not know what a tablet is for.
"""

import asyncio
from typing import Protocol

from pqbroker.storage.ids import CellId, TabletId
from pqbroker.storage.tablets.hosting import Tablet, TabletHost
from pqbroker.storage.tablets.tablet import TabletStorage


class TabletCopying(Protocol):
    """A running tablet on its way into another storage, which nothing runs on yet."""

    async def follow(self) -> bool:
        """Bring the copy to what the tablet has: all at the first call, then what has changed since. False: something
        was not there any more; the next call takes what came in its place.

        BlobCorrupt, CommitRefused, ShardLost.
        """


class MovableTablet(Tablet, Protocol):
    """A tablet that an object owns: it lives in any cell, and moves between them while it is served."""

    def copy_to(self, target: TabletStorage) -> TabletCopying: ...

    def lose(self) -> None:
        """The cell is lost: what waits fails."""


class TabletOwner(Protocol):
    """One object of the scheme, as it is served now."""

    @property
    def name(self) -> str: ...

    @property
    def owner_id(self) -> str:
        """Return what the records of its tablets say of their owner."""

    @property
    def changes(self) -> asyncio.Lock:
        """Return the lock that is held while the object changes."""

    def home_of(self, tablet_id: TabletId) -> CellId | None:
        """Return the cell of a tablet; None once the object is gone, or has the tablet no more."""

    def tablet(self, tablet_id: TabletId) -> MovableTablet | None: ...

    async def name_home(self, tablet_id: TabletId, cell: CellId) -> None:
        """Have the scheme name another cell for a tablet: one commit, with `changes` held. CommitRefused, ShardLost."""


class ServedObjects(Protocol):
    """All objects of one kind. One opening of the node's cells has one of these for each kind that has any."""

    @property
    def kind(self) -> str:
        """Return the kind's name, by which the scheme knows it."""

    @property
    def changes(self) -> asyncio.Lock:
        """Return the lock that is held while an object of the kind is created, changed or deleted."""

    async def start(self) -> None:
        """Start the objects' tablets in the cells that are open; create those that a crash kept from being.
        CommitRefused, ShardLost."""

    async def start_in(self, cell: CellId, host: TabletHost) -> None:
        """Start their tablets of a cell that is open now, or again, as `start` does. `changes` is held."""

    def owner(self, object_id: bytes) -> TabletOwner | None:
        """Return an object by its id in the scheme; None when it is not served."""

    async def stop(self) -> None:
        """End every tablet, after the changes under way."""
