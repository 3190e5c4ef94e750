"""Moves tablets of objects from one cell of the node to another while they are served.

    copied, then what changed meanwhile -> held: writes wait -> blocked in its cell, the rest copied
        -> the scheme names the other cell: one commit, which decides -> started there with what waits
        -> refused, or either cell lost before that: it continues where it was, and the copy is removed

A copy that a crash leaves is removed when its cell is opened, since no object has it there.
"""

from collections.abc import Callable
from typing import NamedTuple

from pqbroker.broker.services.cells.move_history import MoveHistory, MoveRecord, MoveStep
from pqbroker.storage.bundles.bundle import BundleRefused
from pqbroker.storage.bundles.open_cells import OpenCells
from pqbroker.storage.engine import BlobCorrupt, BlobMissing, ShardLost
from pqbroker.storage.ids import CellId, TabletId
from pqbroker.storage.quarantine import Quarantined
from pqbroker.storage.tablets.hosting import TabletHost
from pqbroker.storage.tablets.owners import MovableTablet, TabletCopying, TabletOwner

MOVE_ATTEMPTS_MAX = 5
"""A tablet that is restarted while it is copied is copied again."""
_PASSES = 2
"""Before writes wait: the second one takes what came during the first, so that they wait for little."""


class TabletMoves:
    """Moves of tablets in one opening of the node's cells."""

    def __init__(self, cells: OpenCells, clock: Callable[[], int]) -> None:
        """`clock`: milliseconds since 1970."""
        self._cells = cells
        self._clock = clock
        self.history = MoveHistory()

    async def move(self, owner: TabletOwner, tablet_id: TabletId, cell: CellId) -> None:
        """Have an object's tablet live in another open cell; nothing to do where it does, or is gone. Not to be
        cancelled.

        BundleRefused: one of the cells is not open, or the tablet cannot be read; CommitRefused, ShardLost.
        """
        for _ in range(MOVE_ATTEMPTS_MAX):
            home = owner.home_of(tablet_id)
            if home in (None, cell):
                return
            try:
                move = _Move(tablet_id, self._open(home), self._open(cell), cell)
                if await self._noted(owner, move, MoveRecord(tablet_id, owner.name, home, cell, self._clock())):
                    return
            except (BlobCorrupt, BlobMissing, Quarantined) as damage:
                text = f"tablet {tablet_id} of {owner.name} cannot be copied: {damage}"
                raise BundleRefused(text) from damage
        raise BundleRefused(f"tablet {tablet_id} of {owner.name} is restarted again and again; try again later")

    async def _noted(self, owner: TabletOwner, move: "_Move", record: MoveRecord) -> bool:
        """Try, and keep in the history what came of it. False: the tablet was restarted, moved or removed meanwhile."""
        step, failure = MoveStep.FAILED, ""
        self.history.begin(record)
        try:
            move.home.cell.quarantine.check_held()
            async with move.target.cell.scheme_mark.ahead():
                is_done = await self._copy_and_decide(owner, move, record)
            step = MoveStep.DONE if is_done else MoveStep.LEFT
        except BaseException as error:
            failure = str(error) or type(error).__name__
            raise
        finally:
            self.history.end(record, step, self._clock(), failure)
        return is_done

    async def _copy_and_decide(self, owner: TabletOwner, move: "_Move", record: MoveRecord) -> bool:
        tablet_id, home, target, _ = move
        tablet, moved = owner.tablet(tablet_id), home.cell.tablets()[tablet_id]
        if tablet is None:
            return False
        await _clear(target, tablet_id)
        try:
            await target.cell.create_tablets([(tablet_id, moved.type, owner.owner_id)], moved.generation + 2)
            copy = tablet.copy_to(target.cell.storage(tablet_id))
            for _ in range(_PASSES):
                await copy.follow()
        except BaseException:
            target.reclaim([tablet_id])
            raise
        async with owner.changes:
            is_same = owner.tablet(tablet_id) is tablet and home.tablet(tablet_id) is tablet
            if not is_same or home.cell.tablets()[tablet_id].generation != moved.generation:
                target.reclaim([tablet_id])
                return False
            record.step = MoveStep.HOLDING
            await tablet.hold()
            await _decide(owner, tablet, copy, move)
            home.let_go(tablet_id)
            home.reclaim([tablet_id])
            await target.start(tablet_id, tablet, owner.changes, tablet.lose)
        return True

    def _open(self, cell: CellId | None) -> TabletHost:
        host = None if cell is None else self._cells.host(cell)
        if host is None or host.cell.lost.done():
            raise BundleRefused(f"cell {cell} is not open")
        return host


class _Move(NamedTuple):
    """One attempt."""

    tablet_id: TabletId
    home: TabletHost
    target: TabletHost
    cell: CellId


async def _decide(owner: TabletOwner, tablet: MovableTablet, copy: TabletCopying, move: _Move) -> None:
    """Copy the rest of a tablet whose writes wait, and have the scheme name its new cell; else it continues where it
    was."""
    tablet_id, home, _, cell = move
    try:
        await home.cell.restart_tablet(tablet_id)
        if not await copy.follow():
            raise BlobMissing("a blob is not there")
    except BaseException:
        await _stay(tablet, move)
        raise
    try:
        await owner.name_home(tablet_id, cell)
    except ShardLost:
        tablet.lose()  # both are there: which of them is the tablet, the scheme says when it is opened again
        raise
    except BaseException:
        await _stay(tablet, move)
        raise


async def _stay(tablet: MovableTablet, move: _Move) -> None:
    """The tablet continues in its cell, with what waits."""
    move.target.reclaim([move.tablet_id])
    await tablet.start(move.home.cell.storage(move.tablet_id))


async def _clear(target: TabletHost, tablet_id: TabletId) -> None:
    """Remove what an earlier move left there."""
    if tablet_id in target.cell.tablets():
        await target.reclaimed()
        await target.cell.drop_tablet(tablet_id)
