"""The cells of a node beside the system cell: each is opened, fails and is opened again alone.

    waiting --opened, its tablets run--> serving --shard lost--> waiting
    any     --leave--> closed

A cell that cannot be opened is tried again, ever more seldom, and its topics answer NOT_LEADER_OR_FOLLOWER meanwhile;
the others do not notice. While the system cell is lost those that are open serve on, and none is opened: what became of
the scheme's last changes is not known then. A cell on a node whose tags its bundle's filter excludes is not opened, and
of several nodes each opens the cells whose home it is.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from pqbroker.broker.ground.other_nodes import OtherNodes
from pqbroker.broker.services.cells.cell_homing import CellHoming
from pqbroker.broker.services.cells.cell_place import CellPlace
from pqbroker.broker.services.cells.cells_between_nodes import CellsBetweenNodes
from pqbroker.broker.services.cells.move_history import MoveHistory
from pqbroker.broker.services.cells.opening import level_of, open_or_read
from pqbroker.broker.services.cells.tablet_gluing import Glue, Reshard, TabletGluing
from pqbroker.broker.services.cells.tablet_moves import TabletMoves
from pqbroker.broker.services.commits.commits import Commits
from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.storage import parse_pools, parse_profile
from pqbroker.pq.serving.topic import Topic
from pqbroker.storage.bundles.bundle import DEFAULT_BUNDLE, BundleRefused
from pqbroker.storage.bundles.cell_opening import CellOpening
from pqbroker.storage.bundles.hive import CellRecord, CellState, Hive
from pqbroker.storage.bundles.open_cells import OpenCells
from pqbroker.storage.bundles.placement import cells_to_open
from pqbroker.storage.copy_steps import CellElsewhere
from pqbroker.storage.engine import (
    BackupFacts,
    BackupRefused,
    CellInUse,
    CommitRefused,
    EngineError,
    Fenced,
    Opener,
    ShardLost,
)
from pqbroker.storage.ids import SYSTEM_CELL, CellId, TabletId
from pqbroker.storage.quarantine import HELD_CURE
from pqbroker.storage.tablets.cell import Cell
from pqbroker.storage.tablets.hosting import TabletHost
from pqbroker.storage.tablets.owners import ServedObjects, TabletOwner
from pqbroker.storage.tablets.scheme import Scheme
from pqbroker.storage.tablets.scheme_objects import OBJECT_KINDS
from pqbroker.storage.tablets.tablet_kinds import TABLET_KINDS
from pqbroker.storage.uninterrupted import uninterrupted

log = logging.getLogger(__name__)

_LEFT = "the system cell was lost; this cell is opened with it"
_UNFINISHED = (
    "commits of several cells are not finished everywhere, so a backup would hold parts of them: try again when all "
    "cells are open and `pqbroker transaction list --unfinished` shows none in doubt"
)
OPENING = "opening"
"""Health of a cell that is opened for the first time, or that the node before has not closed: nothing of it is
lost."""
READING_ONLY = "reading only"
"""Health of a cell that has no room to be written."""
BACK_OFF_FIRST_S = 0.05
BACK_OFF_MOST_S = 5.0


@dataclass(slots=True)
class _Watched:
    """One cell that the node is to have open."""

    leaving: asyncio.Event
    tried: asyncio.Event
    """Set when the cell was opened, or could not be, for the first time."""
    task: "asyncio.Task[None] | None" = None
    failure: str = ""
    """Reason why the cell is not open."""
    is_held: bool = False
    """True while the node before has it open still."""
    is_serving: bool = False
    """True while it is open and its tablets run."""
    fenced: int = 0
    """Generation of the opening that another process has fenced; 0: none was."""


@dataclass(frozen=True, slots=True)
class NodeParts:
    """Parts of one opening of the node that its cells stand on; `objects` by kind own the tablets in them."""

    place: CellPlace
    settings: BrokerSettings
    hive: Hive
    cells: OpenCells
    scheme: Scheme
    objects: Sequence[ServedObjects]
    commits: Commits
    companions: Callable[[TabletOwner, TabletId], Sequence[tuple[TabletOwner, TabletId]]]
    """Gives the tablets that have to live in the cell of one."""
    clock: Callable[[], int]
    """Milliseconds since 1970."""


class DataCells:
    """Owns the cells that the hive names. `failed` is called with a defect: a cell that nobody watches any more."""

    def __init__(self, parts: NodeParts, gluing: TabletGluing, failed: Callable[[BaseException], None]) -> None:
        self._place = parts.place
        self._engine = parts.place.engine
        self._settings = parts.settings
        self._hive = parts.hive
        self._cells = parts.cells
        self._scheme = parts.scheme
        self._commits = parts.commits
        self._companions = parts.companions
        self._objects = {objects.kind: objects for objects in parts.objects}
        assert self._objects.keys() == OBJECT_KINDS.keys(), "each kind of object is served by one"
        self._moves = TabletMoves(parts.cells, parts.clock)
        self._gluing = gluing
        self._homing = CellHoming(parts.place, parts.hive, self._weights)
        self._changes = asyncio.Lock()
        self.between = CellsBetweenNodes(parts.place, self._homing, self, self._changes)
        """Moves of cells from node to node."""
        self._failed = failed
        self._watched: dict[CellId, _Watched] = {}
        self._is_closed = False

    async def start(self) -> None:
        """Open the cells that this node runs; return when each was tried once. Removals that were begun end here."""
        for _ in range(self._place.missing_cells(list(self._hive.cells))):
            await self._hive.add_cell(DEFAULT_BUNDLE, self._settings.cells_max)
        await self._homing.settle()
        wanted = self._wanted()
        for record in list(self._hive.cells.values()):
            if record.state is CellState.REMOVING:
                if not self._cells.system.cell.reading_only and self._place.mirrored is None:
                    await self._delete(record.cell)
            elif record.cell in wanted:
                self._watch(record)
        for watched in list(self._watched.values()):
            await watched.tried.wait()

    @property
    def moves(self) -> MoveHistory:
        """Return the moves of tablets between the cells."""
        return self._moves.history

    def health(self, cell: CellId) -> str:
        """Return the health of a cell: good, opening, reading only, failed, or offline where the node does not run
        it."""
        host = self._cells.host(cell)
        if host is not None and not host.cell.lost.done():
            return READING_ONLY if host.cell.reading_only else "good"
        if host is not None:
            return "failed"
        watched = self._watched.get(cell)
        if watched is None:
            return "good" if cell in self._place.elsewhere else "offline"
        return "failed" if watched.tried.is_set() and not watched.is_held else OPENING

    def failure(self, cell: CellId) -> str:
        """Return why a cell is not open, or for reading only; empty where it takes writes."""
        if cell == SYSTEM_CELL:
            return self._cells.system.cell.reading_only
        watched = self._watched.get(cell)
        if watched is not None:
            return watched.failure
        record = self._hive.cells.get(cell)
        if record is None or self._cells.host(cell) is not None or cell in self._place.elsewhere:
            return ""
        if not self._homing.runs(cell):
            number = self.node_of(cell)
            return f"node {number}, which runs it, has not opened it" if number else "no node runs it yet"
        wanted = self._hive.bundles[record.bundle].node_tag_filter
        tags = ", ".join(self._settings.node_tags) or "none"
        return f"bundle {record.bundle} runs on nodes of {wanted!r}, and pqbroker.node.tags of this one is {tags}"

    async def create(self, bundle: str) -> CellRecord:
        """A new cell, open when this returns, unless the node does not run cells of the bundle.

        BundleRefused, CommitRefused, ShardLost; EngineError when it cannot be opened: it is tried again.
        """
        async with self._changes:
            record = await self._hive.add_cell(bundle, self._settings.cells_max)
            await self._homing.settle()
            if record.cell in self._wanted():
                watched = self._watch(record)
                await watched.tried.wait()
                if watched.failure:
                    raise EngineError(f"cell {record.cell} cannot be opened yet: {watched.failure}")
            return self._hive.cells[record.cell]

    async def move_tablet(self, owner: TabletOwner, tablet_id: TabletId, cell: CellId) -> None:
        """Have an object's tablet live in another open cell; no backup is taken meanwhile. This node does it, so it
        runs both cells meanwhile. Raises as `TabletMoves.move` and `CellsBetweenNodes.here`."""
        home = owner.home_of(tablet_id)
        if home in (None, cell):
            return
        async with self.between.here([home, cell]), self._changes:
            await uninterrupted(self._move(owner, tablet_id, cell))
            await self.note_opening(cell)

    async def note_opening(self, cell: CellId) -> None:
        """Have the hive know how a cell is open now, after its opening and after tablets in it got other generations.
        It may be refused: then the hive knows an earlier one, which costs no more than answers without it. A node with
        a mirror of the hive notes nothing: it tells the first node."""
        host = self._cells.host(cell)
        if host is None or cell == SYSTEM_CELL or self._place.mirrored is not None:
            return
        tablets = host.cell.tablets().values()
        opening = CellOpening.of(cell, self._settings.node_id, host.cell.generation, tablets)
        with suppress(CommitRefused, ShardLost):
            if not await self._hive.note_opening(opening):
                log.warning("cell %d is open in generation %d, the hive knows a later one", cell, opening.generation)

    async def glue(self, topic: Topic, glue: Glue, change: Reshard) -> Topic:
        """Reshard a table so that rows of tablets join those of another one; no backup is taken meanwhile. Raises as
        `TabletGluing.reshard`."""
        async with self._changes:
            return await uninterrupted(self._gluing.reshard(topic, glue, change))

    async def remove(self, cell: CellId, *, evacuate: bool = False) -> None:
        """Delete a cell that no object has a tablet in; `evacuate`: after its tablets were moved to others of its
        bundle. Raises BundleRefused, NoHealthyCell, EngineError, and as `CellsBetweenNodes.here`."""
        known = self._hive.cells
        bundle = known[cell].bundle if evacuate and cell in known else None
        others = (one for one, record in known.items() if record.bundle == bundle)
        async with self.between.here({cell, *others}), self._changes:
            self._cells.leaving.add(cell)
            try:
                if evacuate:
                    await self._evacuate(cell)
                await self._remove(cell)
            finally:
                self._cells.leaving.discard(cell)

    def node_of(self, cell: CellId) -> int | None:
        """Return the number of the node that opens a cell; None: none does yet."""
        return self._homing.node_of(cell)

    async def follow_homes(self) -> None:
        """Open and close cells as their homes and the filters of their bundles say now."""
        async with self._changes:
            wanted = self._wanted()
            leaving = [cell for cell in self._watched if cell not in wanted]
            for cell in leaving:
                log.info("cell %d is closed: its home, or the filter of its bundle, excludes this node", cell)
            kept = {cell: watched for cell, watched in self._watched.items() if cell in wanted}
            leaving += [cell for cell, watched in kept.items() if self._is_back(cell, watched)]
            await asyncio.gather(*map(self._leave, leaving))
            opening = [
                self._watch(record) for cell, record in list(self._hive.cells.items())
                if cell in wanted and cell not in self._watched and record.state is not CellState.REMOVING
            ]
            for watched in opening:
                await watched.tried.wait()

    def _is_back(self, cell: CellId, watched: _Watched) -> bool:
        """Return True for a cell that another node has taken from this one, and that is this one's again: the hive says
        both. One that another process of this node has taken is that one's."""
        opening = self._hive.openings.get(cell)
        if not watched.fenced or opening is None or not self._homing.runs(cell):
            return False
        return opening.node != self._settings.node_id and opening.generation > watched.fenced

    def is_serving(self, cell: CellId) -> bool:
        """Return True if a cell's tablets run, here or at another node."""
        watched = self._watched.get(cell)
        return self.health(cell) in ("good", READING_ONLY) if watched is None else watched.is_serving

    def _weights(self) -> dict[CellId, int]:
        return {cell: len(list(self._scheme.owned_tablets(cell))) for cell in self._hive.cells}

    async def reopen(self, bundle: str) -> None:
        """Close a bundle's cells and open them again, in a new generation: its options changed."""
        async with self._changes:
            for record in [one for one in self._hive.cells.values() if one.bundle == bundle]:
                if record.cell in self._watched:
                    await self._leave(record.cell)
                    await self._watch(record).tried.wait()

    def unchanged(self) -> AbstractAsyncContextManager[None]:
        """No cell is made or removed, no tablet moved, and no backup taken for the block."""
        return self._changes

    async def back_up(self, name: str, elsewhere: OtherNodes | None = None) -> BackupFacts:
        """Copy the system cell and all others, each as it is at one moment, while they serve; none is made or removed
        meanwhile, and no commit of several cells begins while the moments are taken. Other nodes copy theirs.

        EngineCannot, BackupRefused, ShardLost."""
        async with self._changes:
            others: dict[str, Cell | CellElsewhere] = {}
            for cell in sorted(self._hive.cells):
                host = self._cells.host(cell)
                if self.health(cell) != "good":
                    cure = self.failure(cell) or "open or remove it first; `pqbroker cell list` says why it is not open"
                    raise BackupRefused(f"cell {cell} is {self.health(cell)}, and a backup holds every cell: {cure}")
                if host is not None:
                    others[str(cell)] = host.cell
                elif elsewhere is not None:
                    others[str(cell)] = elsewhere.cell_elsewhere(cell)
                else:
                    raise BackupRefused(f"cell {cell} is run by another node: the first one makes backups")
            during = self._commits_paused(elsewhere) if others else None
            return await self._cells.system.cell.backup(name, others, during)

    @asynccontextmanager
    async def _commits_paused(self, elsewhere: OtherNodes | None) -> AsyncIterator[None]:
        """Hold commits of several cells back while the moments of the cells are taken, so that no restored cell lacks
        what another one decided. BackupRefused."""
        async with self._commits.pause() as is_quiet:
            if not is_quiet:
                raise BackupRefused(_UNFINISHED)
            async with nullcontext() if elsewhere is None else elsewhere.commits_paused():
                yield

    async def close(self) -> None:
        """Close every cell; none is opened any more, so that the next opening of the node finds them free."""
        self._is_closed = True
        for cell in list(self._watched):
            await self._leave(cell)

    async def _evacuate(self, cell: CellId) -> None:
        bundle, others = self._hive.cells[cell].bundle, set[CellId]()
        for tablet_id, _, kind, object_id in list(self._scheme.owned_tablets(cell)):
            owner = self._objects[kind.name].owner(object_id)
            if owner is not None and owner.home_of(tablet_id) == cell:  # else it has followed another one
                (other,) = self._cells.place(bundle, 1)
                await uninterrupted(self._move(owner, tablet_id, other))
                others.add(other)
        for other in others:  # a note has all tablets of its cell
            await self.note_opening(other)

    async def _move(self, owner: TabletOwner, tablet_id: TabletId, cell: CellId) -> None:
        """Move a tablet, and those that have to live in its cell. Raises as `TabletMoves.move`."""
        await self._moves.move(owner, tablet_id, cell)
        for other, companion in self._companions(owner, tablet_id):
            await self._moves.move(other, companion, cell)

    @asynccontextmanager
    async def _objects_held(self) -> AsyncIterator[None]:
        """No object is created, changed or deleted meanwhile."""
        async with AsyncExitStack() as stack:
            for objects in self._objects.values():
                await stack.enter_async_context(objects.changes)
            yield

    async def _remove(self, cell: CellId) -> None:
        async with self._objects_held():  # not while the cell is left: it may be about to be served
            held = len(list(self._scheme.owned_tablets(cell)))
            if held:
                text = f"cell {cell} still has tablets ({held}): delete their topics first, or evacuate it"
                raise BundleRefused(text)
            host = self._cells.host(cell)
            if host is not None and host.cell.quarantine.is_held:
                raise BundleRefused(f"cell {cell} was salvaged, so it is not removed: {HELD_CURE}")
            kinds = [] if host is None else [TABLET_KINDS[one.type] for one in host.cell.tablets().values()]
            own = [kind.name for kind in kinds if not kind.belongs_to_object]
            if own:  # no object names them, and they would be gone with the cell
                named = ", ".join(sorted(set(own)))
                text = f"cell {cell} has tablets of the broker itself ({named}): it has to stay"
                raise BundleRefused(text)
            await self._hive.set_state(cell, CellState.REMOVING)
        await self._leave(cell)
        await self._delete(cell)

    def _wanted(self) -> set[CellId]:
        cells = {cell: record.bundle for cell, record in self._hive.cells.items() if self._homing.runs(cell)}
        return cells_to_open(cells, self._hive.bundles.values(), self._settings.node_tags)

    def _watch(self, record: CellRecord) -> _Watched:
        watched = self._watched[record.cell] = _Watched(asyncio.Event(), asyncio.Event())
        if self._is_closed:
            watched.failure = _LEFT
            watched.tried.set()
            return watched
        watched.task = asyncio.get_running_loop().create_task(self._run(record, watched))
        watched.task.add_done_callback(self._ended)
        return watched

    async def _leave(self, cell: CellId) -> None:
        watched = self._watched.pop(cell, None)
        if watched is not None and watched.task is not None:
            watched.leaving.set()
            await asyncio.wait([watched.task])

    async def _delete(self, cell: CellId) -> None:
        await self._engine.remove_sibling(str(cell))
        await self._hive.forget_cell(cell)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._failed(error)

    async def _run(self, record: CellRecord, watched: _Watched) -> None:
        back_off_s = BACK_OFF_FIRST_S
        while not watched.leaving.is_set():
            if self._cells.system.cell.lost.done():
                watched.failure = watched.failure or _LEFT
                break
            try:
                host = await self._open(record.cell)
            except (EngineError, CommitRefused, ShardLost) as error:
                watched.is_held = isinstance(error, CellInUse) and self._place.count > 1
                if watched.is_held:  # the node before closes it, or its process is not gone yet
                    back_off_s = BACK_OFF_FIRST_S
                if watched.failure != str(error):
                    level = logging.INFO if watched.is_held else logging.ERROR
                    log.log(level, "cell %d cannot be opened yet: %s", record.cell, error)
                watched.failure = str(error)
            else:
                back_off_s, watched.is_held, watched.is_serving = BACK_OFF_FIRST_S, False, True
                watched.failure = host.cell.reading_only
                how = " for reading only" if watched.failure else ""
                log.info("cell %d is open%s, generation %d", record.cell, how, host.cell.generation)
                watched.tried.set()
                loss = await _first(host.cell.lost, watched.leaving)
                watched.is_serving = False
                if loss is not None:
                    watched.failure = str(loss)
                    log.log(level_of(loss), "cell %d was lost: %s", record.cell, loss)
                self._cells.remove(record.cell)
                await _close(host)
                watched.fenced = host.cell.generation if isinstance(loss, Fenced) else 0
                if watched.fenced and not self._is_back(record.cell, watched):  # it would be taken to and fro
                    await watched.leaving.wait()
            watched.tried.set()
            await _wait(watched.leaving, back_off_s)
            back_off_s = min(2 * back_off_s, BACK_OFF_MOST_S)
        if not watched.tried.is_set():
            watched.failure = _LEFT
            watched.tried.set()

    async def _open(self, cell: CellId) -> TabletHost:
        """Open the cell, for reading only where its disk is full, and start what lives in it. EngineError,
        CommitRefused, ShardLost."""
        is_ready = self._hive.cells[cell].state is CellState.READY
        engine = self._engine.sibling(str(cell), must_exist=is_ready)
        return await open_or_read(engine, partial(self._open_by, cell, is_ready))

    async def _open_by(self, cell: CellId, is_ready: bool, opener: Opener) -> TabletHost:
        settings = self._settings
        profile = parse_profile(settings.storage_profile, parse_pools(settings.pools))
        opened = await Cell.open(
            opener, name=str(cell), profile=profile, releases=False, commits_max=settings.tablet_commits_max,
        )  # fmt: skip
        opened.scheme_mark.follow(lambda: self._scheme.changes.number)
        host = TabletHost(opened)
        try:
            if not is_ready:
                await self._note_ready(cell)
            await self._serve(cell, host)
            await opened.release()
            await self.note_opening(cell)
        except BaseException:
            self._cells.remove(cell)
            await _close(host)
            raise
        return host

    async def _note_ready(self, cell: CellId) -> None:
        if self._place.mirrored is None:
            await self._hive.set_state(cell, CellState.READY)
        else:
            await self._place.mirrored.note_ready(cell)

    async def _serve(self, cell: CellId, host: TabletHost) -> None:
        """Serve what lives in a cell that is open now, or again; remove from it what no object has. CommitRefused,
        ShardLost: it is not served then."""
        async with self._objects_held():
            self._cells.add(cell, host)
            try:
                for objects in self._objects.values():
                    await objects.start_in(cell, host)
            except BaseException:
                self._cells.remove(cell)
                raise
            if self._place.mirrored is None:  # a copy of the scheme may be behind: no tablet is dead by that
                self._scheme.reclaim(host, cell)


async def _first(lost: "asyncio.Future[ShardLost]", leaving: asyncio.Event) -> ShardLost | None:
    """Return why the cell was lost; None: it is to be left before that."""
    waiting = asyncio.ensure_future(leaving.wait())
    ends: list[asyncio.Future[Any]] = [lost, waiting]
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    return lost.result() if lost.done() else None


async def _wait(leaving: asyncio.Event, most_s: float) -> None:
    try:
        async with asyncio.timeout(most_s):
            await leaving.wait()
    except TimeoutError:
        return


async def _close(host: TabletHost) -> None:
    try:
        await host.stop()
        await host.cell.close()
    except ShardLost as error:
        log.info("cell %s was lost before it was closed: %s", host.cell.name, error)
