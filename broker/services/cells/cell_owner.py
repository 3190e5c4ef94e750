"""Keeps the system cell open: opens it, its hive, scheme and topics, and opens it again when the store failed. The
other cells of the node are opened after it, and with it again: what they are is known here alone.

States:
    closed     open() -> open
    open       the shard is lost with StoreFailed -> reopening; with Fenced, DirectoryGone -> failed; close() -> closed
    reopening  the other cells serve on; opened -> they are closed, opened with it -> open, with a new generation;
               not within the time allowed -> failed
    failed     terminal: another process owns the cell, or it cannot be opened; the node must exit

An opening that finds no room on its disk is one for reading only (`opening.py`): it is lost with RoomAgain, and opened
again as any other.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from pqbroker.broker.services.cells.cell_place import CellPlace
from pqbroker.broker.services.cells.data_cells import BACK_OFF_FIRST_S, BACK_OFF_MOST_S, DataCells, NodeParts
from pqbroker.broker.services.cells.feed_companions import companions, stray_partitions
from pqbroker.broker.services.cells.opening import level_of, open_or_read
from pqbroker.broker.services.cells.tablet_gluing import TabletGluing
from pqbroker.broker.services.commits.commits import CommitCounters, Commits, CommitSurroundings
from pqbroker.broker.services.commits.coordinator_home import CoordinatorHome
from pqbroker.broker.services.configs.group_times import TimesInForce
from pqbroker.broker.services.configs.node_settings import NodeSettings, layers_of
from pqbroker.broker.services.coordination.coordinators import Coordinators
from pqbroker.broker.services.coordination.known_topics import ServedTopics
from pqbroker.broker.services.leaders import cells_of
from pqbroker.broker.services.transactional_producers.admission import BatchAdmission
from pqbroker.broker.services.transactional_producers.producers import EndCounters, TransactionalProducers
from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.group_times import check_consumer_settings
from pqbroker.conf.node_shares import share_of
from pqbroker.conf.storage import parse_pools, parse_profile
from pqbroker.pq.serving.timestamps import NodeTime
from pqbroker.pq.serving.topic import Topic
from pqbroker.pq.serving.topics import Topics
from pqbroker.protocol.errors import KafkaError
from pqbroker.storage.bundles.bundle import BundleRefused
from pqbroker.storage.bundles.hive import Hive
from pqbroker.storage.bundles.open_cells import OpenCells
from pqbroker.storage.engine import CommitRefused, DirectoryGone, Engine, EngineError, Fenced, Opener, ShardLost
from pqbroker.storage.ids import CellId, TabletId
from pqbroker.storage.quarantine import HELD_CURE, QUARANTINE_CURE
from pqbroker.storage.tablets.cell import Cell, TabletUnknown
from pqbroker.storage.tablets.hosting import TabletHost
from pqbroker.storage.tablets.owners import ServedObjects
from pqbroker.storage.tablets.scheme import Scheme
from pqbroker.storage.uninterrupted import uninterrupted
from pqbroker.storage.unreadable import StoredUnreadable
from pqbroker.tables.serving.share import SortedSettings, SortedShare
from pqbroker.tables.serving.tables import SortedTables

log = logging.getLogger(__name__)


LookAfter = Callable[[Sequence[Topic], int], Awaitable[None]]
"""Looks after staged rows of topics of which this node holds some, with the time before which they are old."""


class CellLost(Exception):
    """The cell cannot be served any more; the text names cause and cure."""


@dataclass(frozen=True, slots=True)
class OpeningCounters:
    """Counters over all openings of the cell."""

    commits: CommitCounters = field(default_factory=CommitCounters)
    ends: EndCounters = field(default_factory=EndCounters)


@dataclass(frozen=True, slots=True)
class OpenCell:
    """One opening of the cell."""

    cell: Cell
    host: TabletHost
    scheme: Scheme
    settings: NodeSettings
    topics: Topics
    sorted_tables: SortedTables
    coordinators: Coordinators
    transactional_producers: TransactionalProducers
    hive: Hive
    cells: OpenCells
    """Open cells of the node: this one and those beside it."""
    others: DataCells
    commits: Commits
    objects: Sequence[ServedObjects]
    """Objects of the scheme, by kind."""
    admission: BatchAdmission | None
    """The way to the coordinators of transactions on another node; None: they are here."""

    async def stop(self) -> None:
        """End all that runs on the cell, which stays open; close the other cells. Raises ShardLost."""
        self.coordinators.close()
        await self.commits.stop()
        for objects in reversed(self.objects):
            await objects.stop()
        await self.others.close()
        await self.host.stop()


def _log(defect: BaseException) -> None:
    log.critical("a cell is not watched any more; this is a defect", exc_info=defect)


async def _leave_none() -> None:
    """Leave nothing: no other opening of the node has cells."""


@dataclass(frozen=True, slots=True)
class CellSurroundings:
    """The node around one opening of its cells. `settings`: those that it was started with."""

    engine: Engine
    """Engine of the system cell, or of what stands for it; `place` has that of the other cells."""
    place: CellPlace
    settings: BrokerSettings
    clock: Callable[[], int]
    failed: Callable[[BaseException], None] = _log
    counters: OpeningCounters = field(default_factory=OpeningCounters)
    """Counters of all openings."""
    leave: Callable[[], Awaitable[None]] = _leave_none
    """Closes the other cells of the opening before, once the system cell is open."""


async def open_cell(engine: Engine, settings: BrokerSettings, clock: Callable[[], int]) -> OpenCell:
    """Open the cells of a node that is the only one; as `open_around`."""
    return await open_around(CellSurroundings(engine, CellPlace(engine), settings, clock))


async def open_around(around: CellSurroundings) -> OpenCell:
    """Open the system cell with a new generation and start all that lives in it; for reading only where its disk is
    full. EngineError, CommitRefused, ShardLost.

    ConfigError if the storage profile or the times of groups are invalid. What is dead is removed from the cell from
    then on, unless something of it could not be read.
    """
    settings = around.settings
    check_consumer_settings(settings)
    profile = parse_profile(settings.storage_profile, parse_pools(settings.pools))

    async def open_by(opener: Opener) -> OpenCell:
        cell = await Cell.open(opener, profile=profile, releases=False, commits_max=settings.tablet_commits_max)
        return await _start_all(cell, around)

    return await open_or_read(around.engine, open_by)


async def _start_all(cell: Cell, around: CellSurroundings) -> OpenCell:
    """Start what lives in the system cell; it is closed when that fails."""
    place, settings, clock = around.place, around.settings, around.clock
    try:
        host = TabletHost(cell)
        hive, cells, scheme = await _open_known(host, place)
        in_force = layers_of(settings, scheme.settings).in_force
        own = share_of(in_force, place.count)
        topics = Topics(cells, scheme, settings=own, clock=clock)
        now = NodeSettings(settings, scheme.settings, topics.configure_node, place.ids(settings.node_id))
        time = NodeTime(clock, topics.share.timestamps)
        unfinished = topics.share.unfinished
        share = SortedShare(
            time, sorted_settings(own), topics.memory.key_values, unfinished=unfinished, topics=topics
        )
        sorted_tables = SortedTables(cells, scheme, share)
        objects = (topics, sorted_tables)
        for kind in objects:
            await kind.start()
        coordinators = Coordinators(host, in_force, clock, ServedTopics(topics), TimesInForce(scheme, now).of)
        surroundings = CommitSurroundings(time, unfinished, share.reads, around.counters.commits, place.ways)
        commits = Commits(cells, scheme, surroundings, in_force)
        for number, coordinator in enumerate(coordinators.tablets):
            CoordinatorHome(coordinator, number, unfinished)
        producers = TransactionalProducers(coordinators.tablets, topics, commits, in_force, around.counters.ends)
        if place.mirrored is not None:
            coordinators.stand_aside()
        elif not cell.reading_only:
            await coordinators.start()
        if place.mirrored is None:
            scheme.reclaim(host)
        await cell.release()
        together = partial(companions, topics, sorted_tables)
        parts = NodeParts(place, settings, hive, cells, scheme, objects, commits, together, clock)
        others = DataCells(parts, TabletGluing(scheme, topics, cells), around.failed)
        await around.leave()
        await _start_others(others)
        commits.start()
    except BaseException:
        await _close(cell)
        raise
    if cell.quarantine.is_damaged:
        cure = f"nothing is removed from this cell: {HELD_CURE}" if cell.quarantine.is_held else QUARANTINE_CURE
        log.error("%d places of the cell are unreadable, the rest is served; %s", len(cell.quarantine.damages), cure)
    return OpenCell(
        cell, host, scheme, now, topics, sorted_tables, coordinators, producers, hive, cells, others, commits, objects,
        place.admission,
    )  # fmt: skip


def sorted_settings(settings: BrokerSettings) -> SortedSettings:
    """Return what sorted tables go by."""
    return SortedSettings(
        settings.inline_bytes_max, settings.table_columns_max, settings.table_stores_bytes_max,
        settings.table_blocks_bytes_max, settings.table_flushes_max, settings.table_compactions_max,
        settings.table_partitionings_max, settings.table_merge_rate, settings.table_merge_memory,
        settings.table_chunk_bytes_max, settings.table_backoff_ms, settings.sql_worker_idle_ms / 1000,
    )  # fmt: skip


async def _start_others(others: DataCells) -> None:
    """EngineError, CommitRefused, ShardLost, and then none is open."""
    try:
        await others.start()
    except BaseException:
        await others.close()
        raise


async def _open_known(host: TabletHost, place: CellPlace) -> tuple[Hive, OpenCells, Scheme]:
    """Open hive and scheme, those of another node with its rows. Without them there is no topic: where one is
    unreadable the cell is not opened.

    Raise EngineError.
    """
    try:
        hive, scheme = await Hive.open(host), await Scheme.open(host, place.ask_timestamps)
        if place.mirrored is not None:
            await place.mirrored.fill(hive, scheme)
        return hive, OpenCells(host, hive, place.elsewhere, spreads=place.count > 1, changed=place.changed.set), scheme
    except StoredUnreadable as unreadable:
        raise EngineError(f"the cell cannot be opened: {unreadable}") from unreadable


async def _close(cell: Cell) -> None:
    try:
        await cell.close()
    except ShardLost as error:
        log.info("the cell was lost before it was closed: %s", error)


class CellOwner:
    """Owns the opening that is current."""

    def __init__(
        self, engine: Engine, settings: BrokerSettings, clock: Callable[[], int], place: CellPlace | None = None
    ) -> None:
        """`place`: that of the node among several."""
        self._around = CellSurroundings(engine, place or CellPlace(engine), settings, clock, self._defect)
        self._loop = asyncio.get_running_loop()
        self.failed: asyncio.Future[CellLost] = self._loop.create_future()
        self.retentions = 0
        """Looks for what is past its retention that have ended."""

    current: OpenCell

    @property
    def is_open(self) -> bool:
        return not self.current.cell.lost.done()

    async def open(self) -> OpenCell:
        self.current = await self._open(_leave_none)
        return self.current

    async def _open(self, leave: Callable[[], Awaitable[None]]) -> OpenCell:
        return await open_around(replace(self._around, leave=leave))

    def _defect(self, error: BaseException) -> None:
        """A cell beside the system cell is not watched any more."""
        _log(error)
        if not self.failed.done():
            self.failed.set_result(CellLost("a cell is not watched any more; the log says why"))

    async def retain(self, look_after: LookAfter | None = None) -> None:
        """Let every topic drop what is past its retention, then forget consumer groups that nothing is left of.
        `look_after`: looks after staged rows; None: those of this node's topics are looked after."""
        opened = self.current
        if opened.cell.reading_only:
            return
        await self._retain(opened, look_after)
        self.retentions += 1

    async def _retain(self, opened: OpenCell, look_after: LookAfter | None) -> None:
        try:
            is_copy = self._around.place.mirrored is not None
            staged = await opened.topics.retain(None if is_copy else opened.coordinators.unread_since)
            before_ms = self._around.clock() - opened.settings.in_force.producer_id_expiration_ms
            await (look_after or self._look_after)(staged, before_ms)
            if opened.cell.quarantine.is_damaged or not opened.topics.offsets.are_known:
                return  # offsets that cannot be read now would keep their groups
            await opened.coordinators.expire(opened.topics.offsets.has)
            await opened.transactional_producers.expire()
        except KafkaError as refusal:
            log.warning("transactional ids expire later: %s", refusal)
        except ShardLost:
            log.info("retention stopped: the cell was lost")
        except CommitRefused as refusal:
            log.warning("consumer groups expire later: %s", refusal)

    async def trim_queues(self) -> None:
        """Let queues with auto trim drop what their vital consumers have read."""
        opened = self.current
        if opened.cell.reading_only:
            return
        try:
            await opened.topics.trim_read()
        except ShardLost:
            log.info("auto trim stopped: the cell was lost")
        except CommitRefused as refusal:
            log.warning("queues are trimmed later: %s", refusal)

    async def _look_after(self, topics: Sequence[Topic], before_ms: int) -> None:
        """End batches of staged rows that were decided, and delete rows that nobody has committed for too long: of
        topics whose batches this node commits."""
        if not topics:
            return
        from pqbroker.broker.services.topics.staged_places import BatchRefused
        from pqbroker.broker.services.topics.staged_rows import look_after

        is_copy = self._around.place.mirrored is not None
        for topic in topics:
            if is_copy and len(cells_of(topic)) > 1:
                continue  # the first node commits its batches
            if not all(partition.is_loaded for partition in topic.partitions):
                continue  # what cannot be seen may be decided
            try:
                await look_after(topic, before_ms)
            except (KafkaError, BatchRefused) as refusal:
                log.warning("staged rows of %s wait: %s", topic.record.name, refusal)

    async def renew(self) -> None:
        """Restart the tablets that are worn: blob ids nearly used up, or a write that could not be planned. Move those
        of change feeds that are not where they have to be."""
        hosts = [host for _, host in self.current.cells.hosts() if not host.cell.reading_only]
        for tablet_id in [worn for host in hosts for worn in host.cell.worn()]:
            try:
                generation = await self.restart_tablet(tablet_id)
            except (TabletUnknown, CommitRefused, ShardLost) as refusal:
                log.warning("tablet %d needs a restart and is tried again: %s", tablet_id, refusal)
            else:
                log.info(
                    "tablet %d was restarted in generation %d: its blob ids were nearly used up, or a write failed",
                    tablet_id, generation,
                )  # fmt: skip

        if self._around.place.mirrored is None:
            await self._gather_feeds()

    async def _gather_feeds(self) -> None:
        """Have partitions of change feeds that were left behind follow their tablets."""
        opened = self.current
        for owner, tablet_id, cell in stray_partitions(opened.topics, opened.sorted_tables):
            try:
                await opened.others.move_tablet(owner, tablet_id, cell)
            except (BundleRefused, CommitRefused, ShardLost) as refusal:
                log.warning("tablet %d of %s follows its table later: %s", tablet_id, owner.name, refusal)

    async def move_channel(self, tablet_id: TabletId, channel: int, pool: int) -> None:
        """Let a tablet's channel write to another pool from its next start on; see `Cell.move_channel`."""
        await self.current.cells.host_of(tablet_id).move_channel(tablet_id, channel, pool)

    async def restart_tablet(self, tablet_id: TabletId) -> int:
        """Restart one tablet while the others continue: its new generation. TabletUnknown, CommitRefused, ShardLost.

        Its clients learn that it moved, and find it again. It is completed even if the caller is cancelled.
        """
        opened = self.current
        host = opened.cells.host_of(tablet_id)
        generation = await uninterrupted(host.restart(tablet_id))
        await opened.others.note_opening(CellId(int(host.cell.name)))
        return generation

    async def close(self) -> None:
        await self._stop(self.current)
        await _close(self.current.cell)

    async def watch(self, opened: Callable[[], None]) -> None:
        """Open the cell again whenever its store fails, and call `opened` then; returns when the node has failed.

        Until the new opening serves, the old one stays where it is: its topics are known, those of the system cell
        answer NOT_LEADER_OR_FOLLOWER, and those of other cells are served. A topic that seemed gone would be taken for
        deleted.
        """
        while not self.failed.done():
            loss = await asyncio.shield(self.current.cell.lost)
            log.log(level_of(loss), "the cell was lost: %s", loss)
            self.current.coordinators.close()
            if isinstance(loss, Fenced | DirectoryGone):
                await self.current.others.close()
            await _close(self.current.cell)
            if isinstance(loss, Fenced):
                self.failed.set_result(CellLost("another process took over the data directory; stop one of the two"))
                return
            if isinstance(loss, DirectoryGone):
                self.failed.set_result(CellLost(str(loss)))
                return
            await self._reopen(opened)

    async def _reopen(self, told: Callable[[], None]) -> None:
        deadline = self._loop.time() + self._around.settings.cell_reopen_timeout_ms / 1000
        back_off_s = BACK_OFF_FIRST_S
        while True:
            await asyncio.sleep(back_off_s)
            try:
                opened = await self._open(self.current.others.close)
            except (EngineError, CommitRefused, ShardLost) as error:
                log.error("the cell cannot be opened again yet: %s", error)
                if self._loop.time() > deadline:
                    self.failed.set_result(CellLost(f"the cell was lost and cannot be opened again: {error}"))
                    return
                back_off_s = min(2 * back_off_s, BACK_OFF_MOST_S)
                continue
            lost, self.current = self.current, opened
            await self._stop(lost)
            told()
            how = "for reading only" if opened.cell.reading_only else "again"
            log.warning("the cell is open %s, generation %d", how, opened.cell.generation)
            return

    async def _stop(self, opened: OpenCell) -> None:
        try:
            await opened.stop()
        except ShardLost as error:
            log.info("the cell was lost before its tablets were stopped: %s", error)
