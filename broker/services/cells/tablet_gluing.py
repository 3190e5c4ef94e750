"""Glues tablets of a table: the rows of some stand behind those of another one, under new numbers (E.9).

    copied into a new tablet, the first one as it is, the rows of the others behind it
        -> the scheme names that one instead
        -> refused, or a cell lost before that: all is as it was, and the new tablet is removed

One commit of the scheme decides. All of them are unmounted: no row comes meanwhile.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from pqbroker.conf.topic import TopicConfig
from pqbroker.pq.log.batch_run import Batches
from pqbroker.pq.log.blob_cycles import plan_batches
from pqbroker.pq.log.head import first_kept
from pqbroker.pq.log.keys import OFFSET_MAX, session_key
from pqbroker.pq.log.partition_settings import PartitionSettings
from pqbroker.pq.log.producer_transactions import AbortedBatches
from pqbroker.pq.log.row_facts import RowFacts
from pqbroker.pq.log.sessions import SessionBatch, glued
from pqbroker.pq.log.write_cycle import Cycle
from pqbroker.pq.reading.query import ReadQuery
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.tablet import PqTablet
from pqbroker.pq.serving.topic import Topic
from pqbroker.pq.serving.topics import Topics
from pqbroker.pq.serving.transacted_batches import under_way, why_under_way
from pqbroker.protocol.cleaned_batches import empty_batch
from pqbroker.protocol.errors import KafkaError
from pqbroker.protocol.records import BatchHeader, batches, read_header
from pqbroker.storage.bundles.bundle import BundleRefused
from pqbroker.storage.bundles.open_cells import OpenCells
from pqbroker.storage.engine import BlobCorrupt, BlobMissing, ShardLost
from pqbroker.storage.ids import TabletId
from pqbroker.storage.quarantine import Quarantined
from pqbroker.storage.tablets.hosting import TabletHost
from pqbroker.storage.tablets.scheme import Scheme
from pqbroker.storage.tablets.scheme_state import Resharded, TopicRecord
from pqbroker.storage.tablets.tablet import TabletRecord, TabletStorage

GLUED_BYTES = 1 << 20
"""Bytes of rows in one commit, about."""
_NO_PRODUCER = -1
_MISSING_ROWS_MAX = 1 << 16
"""Missing rows that one batch without records stands for: each may be weighed."""
_FOLLOWS_MAX = 3
_SESSIONS_AT_ONCE = 1000
"""Sessions in one commit."""
_OUTCOMES_AT_ONCE = 1000
"""Outcomes of transactions in one commit."""

Reshard = Callable[[TopicRecord, TabletId], Resharded]
"""Makes the resharded table, given the id of the tablet that takes the place of the first one."""


class Glue(NamedTuple):
    """The rows of `removed` behind those of `survivor`; numbers of tablets, each a partition."""

    survivor: int
    removed: Sequence[int]
    topic_id: bytes | None = None
    """Id of a new topic that gets all rows alone, numbered from 0, trimmed rows too if their blob is kept. None: rows
    stay in the topic."""


class _Originals(NamedTuple):
    """Tablets that are glued, as they were found: those of the table may be others when they are read."""

    kept: TabletRecord
    """Record of the survivor."""
    first: PqTablet
    rows: Sequence[PartitionServer]
    """Rows of the survivor, then of the removed ones."""


class TabletGluing:
    """Gluing of tablets in one opening of the node's cells."""

    def __init__(self, scheme: Scheme, topics: Topics, cells: OpenCells) -> None:
        self._scheme = scheme
        self._topics = topics
        self._cells = cells

    async def reshard(self, topic: Topic, glue: Glue, change: Reshard) -> Topic:
        """Make the tablet, then the change. Not to be cancelled.

        BundleRefused: a cell is not open, rows cannot be read, or a transaction is under way; CommitRefused, ShardLost,
        and what `change` raises.
        """
        record = topic.record
        if max((glue.survivor, *glue.removed)) >= record.partitions:
            raise BundleRefused(f"{record.name} was resharded meanwhile, and has {record.partitions} tablets now")
        home = self._open(record, glue.survivor)
        self._check_held(record, glue)
        _check_no_transaction(topic, glue)
        originals = _originals(topic, glue, home)
        (tablet_id,) = await self._scheme.reserve_tablets(1)
        try:
            async with home.cell.scheme_mark.ahead():
                await self._make(topic, glue, originals, tablet_id, home)
                return await self._topics.reshard(record.name, lambda known: change(known, tablet_id))
        except (BlobCorrupt, BlobMissing, KafkaError) as damage:
            home.reclaim([tablet_id])
            raise BundleRefused(f"the rows of {record.name} cannot be copied: {damage}") from damage
        except BaseException as error:
            known = self._scheme.topics.get(record.name)
            is_unknown = isinstance(error, ShardLost) and self._cells.system.cell.lost.done()
            if not is_unknown and (known is None or tablet_id not in known.tablets):
                home.reclaim([tablet_id])
            raise

    async def _make(
        self, topic: Topic, glue: Glue, originals: _Originals, tablet_id: TabletId, home: TabletHost
    ) -> None:
        """The new tablet, whole and closed."""
        kept = originals.kept
        owner = glue.topic_id or topic.record.topic_id
        await home.cell.create_tablets([(tablet_id, kept.type, owner.hex())], kept.generation + 1)
        storage = home.cell.storage(tablet_id)
        if glue.topic_id is None:
            await _copy(originals.first, storage)
        settings = _settings(topic, glue)
        made = PqTablet(topic.record.name, [glue.survivor], settings, self._topics.share, _nothing_changes)
        await made.start(storage)
        try:
            server = made.partitions[glue.survivor]
            server.check_readable()
            is_whole = glue.topic_id is not None
            for rows in originals.rows if is_whole else originals.rows[1:]:
                await _append(rows, server, self._topics.share.clock, with_trimmed=is_whole)
            await server.flush()
            for rows in () if is_whole else originals.rows[1:]:
                await _copy_outcomes(rows, server)
        finally:
            await made.stop()

    def _check_held(self, record: TopicRecord, glue: Glue) -> None:
        """BundleRefused where a tablet would be left in a cell of which nothing is removed."""
        for index in (glue.survivor, *glue.removed):
            try:
                self._open(record, index).cell.quarantine.check_held()
            except Quarantined as held:
                raise BundleRefused(str(held)) from held

    def _open(self, record: TopicRecord, index: int) -> TabletHost:
        cell = record.cell_of(index)
        host = self._cells.host(cell)
        if host is None or host.cell.lost.done():
            raise BundleRefused(f"cell {cell} is not open")
        return host


def _originals(topic: Topic, glue: Glue, home: TabletHost) -> _Originals:
    first = topic.record.tablets[glue.survivor]
    rows = [topic.partitions[index] for index in (glue.survivor, *glue.removed)]
    return _Originals(home.cell.tablets()[first], topic.tablets[first], rows)


def _check_no_transaction(topic: Topic, glue: Glue) -> None:
    """BundleRefused where rows of a transaction would be left behind."""
    for index in (glue.survivor, *glue.removed):
        if under_way(topic.partitions[index]) is not None:
            raise BundleRefused(f"{topic.record.name}: {why_under_way(topic.partitions[index])}")
        if (told := topic.partitions[index].state.why_unstable) is not None:
            raise BundleRefused(f"{topic.record.name}: partition {index}: {told}")


async def _copy(tablet: PqTablet, storage: TabletStorage) -> None:
    """Copy all of a tablet."""
    copy = tablet.copy_to(storage)
    for _ in range(_FOLLOWS_MAX):
        if await copy.follow():
            return
    raise BlobMissing("a blob is not there")


async def _append(
    rows: PartitionServer, server: PartitionServer, clock: Callable[[], int], *, with_trimmed: bool
) -> None:
    """Append all rows of a partition, and its sessions."""
    rows.check_readable()
    log = rows.state
    offset = rows.start_offset
    if with_trimmed:
        offset = min(first_kept(log.bodies, log.head, 0), rows.end_offset)
    first, shift = offset, server.end_offset - offset
    following = offset
    while offset < rows.end_offset:
        read = rows.reader.read(ReadQuery(offset, rows.end_offset, GLUED_BYTES, with_trimmed=with_trimmed))
        found = read if isinstance(read, Batches) else await read
        some = _batches(found, following, AbortedBatches(log.transactions.aborted_between(offset, found.next_offset)))
        if some:
            facts = await rows.facts.read_stored(following, found.next_offset)
            await server.writer.perform(partial(_plan, server, some, facts, clock()), GLUED_BYTES)
            following = some[-1][1].last_offset + 1
        offset = found.next_offset
    known = server.state.sessions
    moved = ((name, glued(batch.moved(shift, first), known.get(name))) for name, batch in rows.state.sessions)
    sessions = [(name, batch) for name, batch in moved if batch is not None]
    for number in range(0, len(sessions), _SESSIONS_AT_ONCE):
        part = sessions[number : number + _SESSIONS_AT_ONCE]
        await server.writer.perform(partial(_plan_sessions, server, part, clock()))


async def _copy_outcomes(rows: PartitionServer, server: PartitionServer) -> None:
    """Copy outcomes of transactions, for clients that send their commits again: all of them are finished."""
    known = rows.known_transactions
    outcomes = [] if known is None else list(known.decisions.values())
    for number in range(0, len(outcomes), _OUTCOMES_AT_ONCE):
        some = outcomes[number : number + _OUTCOMES_AT_ONCE]
        await server.transactions.kv.execute(list(map(server.transactions.decision_command, some)))


def _batches(found: Batches, offset: int, aborted: AbortedBatches) -> list[tuple[memoryview, BatchHeader]]:
    """Return copies, since offsets are stamped into them, without producers' sequences, which were checked where the
    rows came from. Rows that a cleaner took out, or whose Kafka transaction was aborted, keep their numbers: batches
    without records have them."""
    view = memoryview(bytearray(b"".join(found.in_memory())))
    copies: list[tuple[memoryview, BatchHeader]] = []
    for position, header in batches(view):
        if header.last_offset < offset or aborted.has(header):
            continue
        while header.base_offset > offset:
            last_offset = min(header.base_offset, offset + _MISSING_ROWS_MAX) - 1
            empty = memoryview(bytearray(empty_batch(header, offset, last_offset)))
            copies.append((empty, read_header(empty)._replace(producer_id=_NO_PRODUCER)))
            offset = last_offset + 1
        copies.append((view[position : position + header.size_bytes], header._replace(producer_id=_NO_PRODUCER)))
        offset = header.last_offset + 1
    return copies


def _plan(
    server: PartitionServer, some: Sequence[tuple[memoryview, BatchHeader]], facts: RowFacts, now_ms: int
) -> Cycle:
    weights = [facts.between(header.base_offset, header.last_offset + 1) for _, header in some]
    cycle = plan_batches(server.state, some, now_ms, weights)
    refusals = [outcome for outcome in cycle.outcomes if isinstance(outcome, KafkaError)]
    cycle.outcomes = []
    if refusals:
        server.state.rollback(cycle)
        raise refusals[0]
    return cycle


def _plan_sessions(server: PartitionServer, sessions: Sequence[tuple[str, SessionBatch]], now_ms: int) -> Cycle:
    cycle = server.state.no_change(now_ms)
    for name, batch in sessions:
        cycle.sessions[name] = batch
        cycle.store(session_key(server.index, name), batch.encode())
    server.state.is_writing = True
    return cycle


def _settings(topic: Topic, glue: Glue) -> PartitionSettings:
    """Return settings without limits: rows that were stored once are stored again."""
    of_topic = topic.settings()
    first_offsets = of_topic.first_offsets if glue.topic_id is None else {}
    limits: TopicConfig = replace(
        topic.config, message_timestamp_type="CreateTime", message_timestamp_after_max_ms=OFFSET_MAX,
        message_timestamp_before_max_ms=OFFSET_MAX, pq_max_count_in_partition=-1, pq_max_size_in_partition=-1,
        pq_inactive_partitions=(),
    )  # fmt: skip
    return replace(of_topic, topic=limits, closed={}, first_offsets=first_offsets, weight_max=None)


def _nothing_changes() -> None: ...
