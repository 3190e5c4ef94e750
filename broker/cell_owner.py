"""Keeps this node's cell open: opens it, its scheme and its topics, and opens it again when the store failed.

States:
    closed     open() -> open
    open       the shard is lost with StoreFailed -> reopening; with Fenced, DirectoryGone -> failed; close() -> closed
    reopening  opened -> open, with a new generation; not within the time allowed -> failed
    failed     terminal: another process owns the cell, or it cannot be opened; the node must exit
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from pqbroker.broker.context import Node
from pqbroker.broker.coordinators import Coordinators
from pqbroker.broker.node_settings import NodeSettings
from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.storage import parse_pools, parse_profile
from pqbroker.pq.group import PersQueueGroups
from pqbroker.storage.cells.cell import Cell, TabletUnknown
from pqbroker.storage.engine import CommitRefused, DirectoryGone, Engine, EngineError, Fenced, ShardLost
from pqbroker.storage.lasting import made_whole
from pqbroker.storage.quarantine import CURE
from pqbroker.storage.scheme import Scheme
from pqbroker.storage.tablet import TabletType
from pqbroker.storage.unreadable import StoredUnreadable

log = logging.getLogger(__name__)

BACK_OFF_FIRST_S = 0.05
BACK_OFF_MOST_S = 5.0


class CellLost(Exception):
    """The cell cannot be served any more; the text names cause and cure."""


@dataclass(frozen=True, slots=True)
class OpenCell:
    """One opening of the cell."""

    cell: Cell
    scheme: Scheme
    settings: NodeSettings
    groups: PersQueueGroups
    coordinators: Coordinators


async def open_cell(engine: Engine, settings: BrokerSettings, clock: Callable[[], int]) -> OpenCell:
    """Open the cell with a new generation and start all that lives in it. EngineError, CommitRefused, ShardLost.

    `settings`: what the node was started with; ConfigError when the storage profile cannot be. What is dead is removed
    from the cell from then on, unless something of it could not be read.
    """
    profile = parse_profile(settings.storage_profile, parse_pools(settings.pools))
    cell = await Cell.open(
        engine, profile=profile, releases=False, commits_max=settings.tablet_commits_max
    )
    try:
        scheme = await _open_scheme(cell, clock)
        now = NodeSettings(settings, scheme.settings)
        groups = PersQueueGroups(cell, scheme, settings=now.in_force, clock=clock)
        now.keep = groups.configure_node
        await groups.start()
        coordinators = Coordinators(cell, now.in_force, clock)
        await coordinators.start()
        groups.tell_unread(coordinators.unread_since)
        await cell.release()
    except BaseException:
        await _close(cell)
        raise
    if cell.quarantine.is_damaged:
        log.error("the cell is served in part, %d places of it cannot be read; %s", len(cell.quarantine.damages), CURE)
    return OpenCell(cell, scheme, now, groups, coordinators)


async def _open_scheme(cell: Cell, clock: Callable[[], int]) -> Scheme:
    """Without the scheme there is no topic: where it cannot be read the cell is not opened. EngineError."""
    try:
        return await Scheme.open(cell, clock)
    except StoredUnreadable as unreadable:
        raise EngineError(f"the cell cannot be opened: {unreadable}") from unreadable


async def _close(cell: Cell) -> None:
    try:
        await cell.close()
    except ShardLost as error:
        log.info("the cell was lost before it was closed: %s", error)


class CellOwner:
    """Owns the opening that is current; `node` is pointed at each new one."""

    def __init__(self, engine: Engine, settings: BrokerSettings, clock: Callable[[], int]) -> None:
        self._engine = engine
        self._settings = settings
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self.failed: asyncio.Future[CellLost] = self._loop.create_future()
        self._restarts = asyncio.Lock()

    current: OpenCell

    @property
    def is_open(self) -> bool:
        return not self.current.cell.lost.done()

    async def open(self) -> OpenCell:
        self.current = await open_cell(self._engine, self._settings, self._clock)
        return self.current

    async def retain(self) -> None:
        """Let every topic drop what is past its retention, then forget consumer groups that nothing is left of."""
        opened = self.current
        try:
            await opened.groups.retain()
            if opened.cell.quarantine.is_damaged:
                return  # offsets that cannot be read now would keep their groups
            await opened.coordinators.expire(opened.groups.has_offsets)
        except ShardLost:
            log.info("retention stopped: the cell was lost")
        except CommitRefused as refusal:
            log.warning("consumer groups expire later: %s", refusal)

    async def renew(self) -> None:
        """Restart the tablets that are worn: blob ids nearly used up, or a write that could not be planned."""
        for tablet_id in self.current.cell.worn():
            try:
                generation = await self.restart_tablet(tablet_id)
            except (TabletUnknown, CommitRefused, ShardLost) as refusal:
                log.warning("tablet %d needs a restart and is tried again: %s", tablet_id, refusal)
            else:
                log.info(
                    "tablet %d was restarted in generation %d: its blob ids were nearly used up, or a write failed",
                    tablet_id, generation,
                )  # fmt: skip

    async def move_channel(self, tablet_id: int, channel: int, group: int) -> None:
        """Let a tablet's channel write to another blob group from its next start on; see `Cell.move_channel`."""
        await self.current.cell.move_channel(tablet_id, channel, group)

    async def restart_tablet(self, tablet_id: int) -> int:
        """Start one tablet anew while the others go on: its new generation. TabletUnknown, CommitRefused, ShardLost.

        Its clients are told that it moved, and find it again. It is completed even if the caller is cancelled.
        """
        return await made_whole(self._restart_tablet(tablet_id))

    async def close(self) -> None:
        await self._stop(self.current)
        await _close(self.current.cell)

    async def watch(self, node: Node) -> None:
        """Open the cell again whenever its store fails; returns when the node has failed.

        Until the new opening serves, the old one stays where it is: its topics are known and answer
        NOT_LEADER_OR_FOLLOWER. A topic that seemed gone would be taken for deleted.
        """
        while not self.failed.done():
            loss = await asyncio.shield(self.current.cell.lost)
            log.error("the cell was lost: %s", loss)
            self.current.coordinators.close()
            await _close(self.current.cell)
            if isinstance(loss, Fenced):
                self.failed.set_result(CellLost("another process took over the data directory; stop one of the two"))
                return
            if isinstance(loss, DirectoryGone):
                self.failed.set_result(CellLost(str(loss)))
                return
            await self._reopen(node)

    async def _restart_tablet(self, tablet_id: int) -> int:
        async with self._restarts:
            opened = self.current
            record = opened.cell.tablets().get(tablet_id)
            if record is None:
                raise TabletUnknown(f"there is no tablet {tablet_id}")
            if record.type is TabletType.PERSQUEUE:
                await opened.groups.restart_tablet(tablet_id)
            elif record.type is TabletType.COORDINATOR:
                await opened.coordinators.restart_tablet(tablet_id)
            else:
                scheme = await opened.groups.restart_scheme()
                if self.current is opened:
                    self.current = replace(opened, scheme=scheme)
            return opened.cell.tablets()[tablet_id].generation

    async def _reopen(self, node: Node) -> None:
        deadline = self._loop.time() + self._settings.cell_reopen_timeout_ms / 1000
        back_off_s = BACK_OFF_FIRST_S
        while True:
            await asyncio.sleep(back_off_s)
            try:
                opened = await open_cell(self._engine, self._settings, self._clock)
            except (EngineError, CommitRefused, ShardLost) as error:
                log.error("the cell cannot be opened again yet: %s", error)
                if self._loop.time() > deadline:
                    self.failed.set_result(CellLost(f"the cell was lost and cannot be opened again: {error}"))
                    return
                back_off_s = min(2 * back_off_s, BACK_OFF_MOST_S)
                continue
            lost, self.current = self.current, opened
            node.configured, node.groups, node.coordinators = opened.settings, opened.groups, opened.coordinators
            await self._stop(lost)
            node.metrics.cell_openings += 1
            log.warning("the cell is open again, generation %d", opened.cell.generation)
            return

    async def _stop(self, opened: OpenCell) -> None:
        try:
            await opened.coordinators.stop()
            await opened.groups.stop()
            await opened.scheme.stop()
        except ShardLost as error:
            log.info("the cell was lost before its tablets were stopped: %s", error)
