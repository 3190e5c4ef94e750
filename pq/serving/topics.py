"""Topics: PersQueue groups, whose partitions live in PQ tablets. A topic grows, never shrinks (semantics A.15).

absent    create (scheme, then tablets)     serving
serving   grow, configure                   serving
serving   delete (scheme: a tombstone)      absent; its tablets are dropped in the background, resumed at start
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar

from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.declare import ConfigError, stored_names
from pqbroker.conf.defaults import check_changed, topic_config
from pqbroker.conf.topic import TopicConfig
from pqbroker.pq.reading.cache import NodeMemory
from pqbroker.pq.serving.offsets import GroupOffsets, UnreadSince
from pqbroker.pq.serving.partition_limit import PartitionCount, TooManyPartitions
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.tablet import NodeShare
from pqbroker.pq.serving.timestamps import timestamps_by
from pqbroker.pq.serving.topic import Topic, TopicNames, config_of
from pqbroker.pq.serving.topic_owner import TopicOwner
from pqbroker.pq.serving.topic_tablets import TopicTablets
from pqbroker.protocol.errors import KafkaError
from pqbroker.storage.bundles.open_cells import OpenCells
from pqbroker.storage.engine import CommitRefused, ShardLost
from pqbroker.storage.ids import CellId
from pqbroker.storage.tablets.hosting import TabletHost
from pqbroker.storage.tablets.scheme import Scheme, SchemeError
from pqbroker.storage.tablets.scheme_objects import TOPIC
from pqbroker.storage.tablets.scheme_state import Resharded, TableRecord, TopicRecord
from pqbroker.storage.tablets.scheme_topics import TopicChanges, TopicUnknown, WantedTopic
from pqbroker.storage.uninterrupted import uninterrupted

_STARTS_AT_ONCE = 64
_LOOKS_AT_ONCE = 100
"""Partitions that retention looks at, and topics that are looked at, before the loop's other work has its turn."""
_PARSED_AT_ONCE = 25
"""Topics to be created whose configs are read in one turn: each with some of its own takes a tenth of a millisecond."""
_FREED_AT_ONCE = 100
"""Tablets and partitions of a deleted topic whose memory is freed before the loop's other work has its turn."""
_MS_PER_MINUTE = 60_000
T = TypeVar("T")
_log = logging.getLogger(__name__)


class TopicIsFeed(SchemeError):
    """A topic is the change feed of a sorted table, and stays as it is."""

    def __init__(self, topic: str, table: str) -> None:
        super().__init__(
            f"topic {topic!r} is the change feed of {table}: set the table's attribute `changes` to null and remount"
            " the table first"
        )


class NewTopic(NamedTuple):
    """A topic, or a table, to create."""

    name: str
    partitions: int
    config: Mapping[str, str]
    table: TableRecord | None = None


class Topics:
    """All topics of a node. Changes raise ConfigError, SchemeError, CommitRefused, ShardLost.

    A change that has begun is made whole even if its caller is cancelled: the scheme may have its half already.
    `clock`: milliseconds since 1970. `by_reference`: see `NodeShare`. They are the `ServedObjects` of their kind.
    """

    kind = TOPIC

    def __init__(
        self,
        cells: OpenCells,
        scheme: Scheme,
        *,
        settings: BrokerSettings,
        clock: Callable[[], int],
        by_reference: bool = True,
    ) -> None:
        self._scheme = scheme
        self._records = TopicChanges(scheme, clock, cells.place)
        self._settings = settings
        self._clock = clock
        self.memory = NodeMemory(
            settings.cache_bytes, settings.head_bytes, settings.sent_files_max, settings.decode_threads
        )
        self._known = TopicNames()
        self._topics = self._known.served
        self.layout_version = 0
        """Number that rises whenever a topic comes, goes or grows."""
        self._feeders: Mapping[str, str] = {}
        """Paths of sorted tables by the topic that gets their changes."""
        self._count = PartitionCount()
        self.offsets = GroupOffsets(self._partition, takes_copies=cells.spreads)
        """Offsets of consumer groups in all topics."""
        self.changes = asyncio.Lock()
        """Held while a topic is created, changed or deleted, and a cell is taken."""
        self._cells = cells
        self.share = NodeShare(self.memory, clock, timestamps_by(scheme), by_reference)
        self._tablets = TopicTablets(cells, self.share, self.changes, partial(_renew, self.offsets))

    async def start(self) -> None:
        """Start every topic's tablets; create those that a crash kept from being."""
        topics = list(self._scheme.topics.values())
        self._count.known = sum(topic.partitions for topic in topics)
        await self._tablets.create(topics)
        gate = asyncio.Semaphore(_STARTS_AT_ONCE)

        async def start_one(topic: TopicRecord) -> None:
            async with gate:
                await self._serve(topic)

        await asyncio.gather(*(start_one(topic) for topic in topics))

    async def start_in(self, cell: CellId, host: TabletHost) -> None:
        """Serve what lives in a cell that is open now, or again; `changes` is held. CommitRefused, ShardLost."""
        await self._tablets.start_in(cell, host, self._known.everything())
        async for name in _in_turns(list(self._scheme.topics)):
            await self._complete(name)

    async def follow_scheme(self) -> None:
        """Serve topics as the scheme has them now, which another node has changed. CommitRefused, ShardLost."""
        async with self.changes:
            records = self._scheme.topics
            for topic in list(self._known.everything()):
                after = records.get(topic.record.name)
                if after is None or after.topic_id != topic.record.topic_id:
                    await self._leave(topic)
            async for record in _in_turns(list(records.values())):
                known = self._known.find(record.name)
                if known is None or not known.is_whole(record):
                    await self._complete(record.name)
                elif known.record != record:
                    known.record = record
                    known.use(config_of(record, self._settings), self._settings)
            self._count.known = sum(record.partitions for record in records.values())

    async def _leave(self, topic: Topic) -> None:
        """End a topic that another node has deleted, and drop its tablets from the cells of this one."""
        record = topic.record
        self._known.remove(record)
        self.layout_version += 1
        self.offsets.forget(record.name, topic.partitions)
        await self._tablets.stop(topic)
        self._tablets.reclaim([record], record.tablets, _forget_nothing)

    def owner(self, object_id: bytes) -> TopicOwner | None:
        """Return a topic by its id, static or not, as the owner of its tablets."""
        record = self._scheme.topics_by_id.get(object_id)
        topic = None if record is None else self._known.find(record.name)
        return None if topic is None else self.owner_of(topic)

    def owner_of(self, topic: Topic) -> TopicOwner:
        return TopicOwner(topic, self._records, self.changes, partial(self.get, or_static=True))

    async def stop(self) -> None:
        """End every topic's tablets, after the changes under way."""
        async with self.changes:
            self.offsets.stop()
        for topic in self._known.everything():
            await self._tablets.stop(topic)
        self._known = TopicNames()
        self._topics = self._known.served

    def get(self, name: str, *, or_static: bool = False) -> Topic | None:
        """`or_static`: a static table too, which no client of Kafka's may see."""
        return self._known.find(name) if or_static else self._topics.get(name)

    def by_id(self, topic_id: bytes) -> Topic | None:
        return self._known.by_id.get(topic_id)

    def id_of(self, name: str) -> bytes:
        """Return the id of a topic that Kafka's clients see; b"" for a name that none has."""
        topic = self._topics.get(name)
        return b"" if topic is None else topic.record.topic_id

    def partition(self, topic: str, index: int) -> PartitionServer | None:
        """Return a partition as it runs now, also of a static table; None: there is none."""
        found = self._known.find(topic)
        return found.partitions[index] if found is not None and index < len(found.partitions) else None

    def mark_feeds(self, feeders: Mapping[str, str]) -> None:
        """Refuse what others write to these topics, whose names come with the paths of the tables that alone write to
        them, and the topics' deletion; take what they write to all others."""
        before, self._feeders = self._feeders, dict(feeders)
        for name in before.keys() | feeders.keys():
            topic, table = self._known.find(name), feeders.get(name, "")
            if topic is not None and topic.feeder != table:
                topic.feeder = table
                topic.renew()

    def _check_no_feed(self, name: str) -> None:
        """TopicIsFeed for the change feed of a table."""
        table = self._feeders.get(name)
        if table is not None:
            raise TopicIsFeed(name, table)

    def colliding(self, name: str) -> str | None:
        """Return a topic whose name is the same but for '.' and '_', which metrics of Kafka's do not tell apart."""
        return self._known.colliding(name)

    def names(self, *, or_static: bool = False) -> Iterable[str]:
        return (*self._topics, *self._known.static) if or_static else self._topics.keys()

    @property
    def topic_count(self) -> int:
        """Topics that the scheme has."""
        return len(self._scheme.topics)

    @property
    def partition_count(self) -> int:
        """Return the count of partitions of all these topics."""
        return self._count.known

    def check_room(self, count: int) -> None:
        """Check that `count` partitions more may be created: TooManyPartitions."""
        self._count.check_room(count, self._settings.partitions_max)

    async def create(
        self, name: str, partitions: int, config: Mapping[str, str], table: TableRecord | None = None,
        cells: Sequence[CellId] | None = None,
    ) -> Topic:
        """Create a topic, or a table, and start its partitions. `cells`: that of each tablet; None: they are placed.

        Raises TopicExists, PartitionsRefused, TooManyPartitions, ConfigError.
        """
        records = self._records if cells is None else TopicChanges(self._scheme, self._clock, lambda *_: cells)
        (made,) = await uninterrupted(self._create([NewTopic(name, partitions, config, table)], records))
        if isinstance(made, Exception):
            raise made
        return made

    async def create_each(self, wanted: Sequence[NewTopic]) -> list[Topic | Exception]:
        """Create topics of different names in one change of the scheme; return by topic what is served, or why nothing
        is: what `create` raises. CommitRefused and ShardLost are of all."""
        return await uninterrupted(self._create(wanted, self._records))

    async def grow(self, name: str, count: int) -> Topic:
        """Add partitions: the last tablet's room first, then new tablets. Raises TopicUnknown, TopicIsFeed…"""
        return await uninterrupted(self._grow(name, count))

    async def reconfigure(
        self,
        name: str,
        change: Callable[[Mapping[str, str]], Mapping[str, str]],
        follow: Callable[[TopicRecord, TopicRecord], TopicRecord] | None = None,
    ) -> Topic:
        """Replace what is set for the topic by what `change` makes of it: no change of another is lost between. It
        holds from the next write cycle on. `follow`: what else changes with it, of the records before and after.
        TopicUnknown, ConfigError."""

        def configured(record: TopicRecord) -> TopicRecord:
            config = change(record.config)
            check_changed(config, record.config, self._settings)
            after = replace(record, config=dict(config))
            return after if follow is None else follow(record, after)

        return await self.change(name, configured)

    async def change(
        self, name: str, change: Callable[[TopicRecord], TopicRecord], settle: Callable[[], None] | None = None
    ) -> Topic:
        """Replace what is stored of the topic, but for its name, id and partitions. `settle` is called once that is
        durable, before the partitions follow it. TopicUnknown, and what `change` raises."""
        return await uninterrupted(self._change(name, change, settle))

    async def delete(self, name: str) -> None:
        """Delete a topic: gone when this returns, its space comes back later. Raises TopicUnknown, TopicIsFeed."""
        for refusal in (await self.delete_each([name])).values():
            raise refusal

    async def delete_each(self, names: Sequence[str]) -> Mapping[str, Exception]:
        """Delete topics of different names in one change of the scheme; return by name why one was not deleted: what
        `delete` raises. CommitRefused and ShardLost are of all."""
        return await uninterrupted(self._delete(names))

    async def _create(self, wanted: Sequence[NewTopic], records: TopicChanges) -> list[Topic | Exception]:
        parsed = [self._parsed(each) async for each in _in_turns(wanted, _PARSED_AT_ONCE)]
        async with self.changes:
            asked = await self._admitted(parsed)
            made = iter(await records.create_each([each for each in asked if not isinstance(each, Exception)]))
            found = [each if isinstance(each, Exception) else next(made) for each in asked]
            created = [each for each in found if isinstance(each, TopicRecord)]
            partitions = sum(each.partitions for each in created)
            self._count.known += partitions
            try:
                await self._tablets.create(created)
            except CommitRefused:
                await self._records.delete_each([each.name for each in created])
                self._count.known -= partitions
                raise
            return [each if isinstance(each, Exception) else await self._serve(each) for each in found]

    def _parsed(self, wanted: NewTopic) -> WantedTopic | Exception:
        try:
            per_tablet = topic_config(wanted.config, self._settings).pq_partitions_per_tablet
        except ConfigError as refusal:
            return refusal
        stored = stored_names(TopicConfig, wanted.config)
        return WantedTopic(wanted.name, wanted.partitions, stored, per_tablet, wanted.table)

    async def _admitted(self, asked: Sequence[WantedTopic | Exception]) -> list[WantedTopic | Exception]:
        """Return those for whose partitions there is room, and what refuses the others."""
        admitted: list[WantedTopic | Exception] = []
        added = 0
        for each in asked:
            admitted.append(each)
            if isinstance(each, Exception):
                continue
            await self._complete(each.name)
            if each.name not in self._scheme.topics:
                try:
                    self.check_room(added + each.partitions)
                except TooManyPartitions as refusal:
                    admitted[-1] = refusal
                else:
                    added += each.partitions
        return admitted

    async def _grow(self, name: str, count: int) -> Topic:
        async with self.changes:
            self._check_no_feed(name)
            completed = await self._complete(name)
            if completed is not None and len(completed.partitions) == count:
                return completed  # what is asked for is what was begun before
            known = self._scheme.topics.get(name)
            added = count - known.partitions if known is not None else 0
            self.check_room(added)
            topic = await self._records.grow(name, count)
            self._count.known += added
            try:
                await self._tablets.create([topic])
            except CommitRefused:
                assert known is not None
                before = known
                await self._records.change(name, lambda _: before)
                self._count.known -= added
                raise
            return await self._take_over(topic)

    async def _complete(self, name: str) -> Topic | None:
        """Serve what is durable in the scheme and was refused a step later, when taking it back was refused too.

        None: there was nothing to complete.
        """
        record, topic = self._scheme.topics.get(name), self._known.find(name)
        if record is None or (topic is not None and topic.is_whole(record)):
            return None
        await self._tablets.create([record])
        return await (self._serve(record) if topic is None else self._take_over(record))

    async def _take_over(self, record: TopicRecord) -> Topic:
        """Take over the new partitions of a topic that is served."""
        topic = self._known.find(record.name)
        assert topic is not None
        topic.record = record
        topic.use(config_of(record, self._settings), self._settings)
        await self._tablets.start(topic)
        self.layout_version += 1
        return topic

    async def _change(
        self, name: str, change: Callable[[TopicRecord], TopicRecord], settle: Callable[[], None] | None
    ) -> Topic:
        async with self.changes:
            await self._complete(name)
            record = await self._records.change(name, change)
            topic = self._known.find(name)
            assert topic is not None
            was_static, topic.record = topic.record.is_static, record
            if settle is not None:
                settle()
            topic.use(config_of(record, self._settings), self._settings)
            if was_static and not record.is_static:
                self._known.remove(record)
                self._show(topic)
            return topic

    async def reshard(self, name: str, change: Callable[[TopicRecord], Resharded]) -> Topic:
        """Replace the tablets of a table by those that `change` names; the ones it leaves out are removed. Its tablets
        start again, in a later leader epoch than any before. Not to be cancelled. TopicUnknown, TopicIsFeed, and
        what `change` raises."""
        async with self.changes:
            self._check_no_feed(name)
            await self._complete(name)
            before = self._scheme.topics.get(name)
            record, tombstone = await self._records.reshard(name, change)
            assert before is not None
            try:
                await self._tablets.create([record])
            except CommitRefused:
                assert tombstone is None, "tablets are added or removed, never both"
                await self._records.change(name, lambda _: before)
                raise
            self._count.known += record.partitions - before.partitions
            topic = self._known.find(name)
            assert topic is not None
            self.offsets.forget(name, topic.partitions)
            await topic.hold()
            await self._tablets.stop(topic)
            await self._take_over(record)
            if record.topic_id != before.topic_id:
                self._known.remove(before)
            self._show(topic)
            if tombstone is not None:
                forget = partial(self._scheme.forget_tombstones, tombstone.topic_id)
                self._tablets.reclaim([before], tombstone.tablets, forget)
            return topic

    async def configure_node(self, node: str, texts: Mapping[str, str], settings: BrokerSettings) -> None:
        """Replace what is set for a node ("": for every node); `settings` are in force then.

        What topics leave open follows, from each one's next write cycle on, and so does how long they know a producer.
        """
        async with self.changes:
            await self._scheme.configure_node(node, texts)
            await self._use(settings)

    async def use_settings(self, settings: BrokerSettings) -> None:
        """Have settings be in force that another node has changed in the scheme, as `configure_node` does."""
        async with self.changes:
            await self._use(settings)

    async def _use(self, settings: BrokerSettings) -> None:
        self._settings = settings
        async for topic in _in_turns(self._known.everything()):
            topic.use(config_of(topic.record, settings), settings)

    async def _delete(self, names: Sequence[str]) -> Mapping[str, Exception]:
        kept: list[object] = []
        async with self.changes:
            refused = {name: refusal for name in names if (refusal := self._why_kept(name)) is not None}
            if len(refused) == len(names):
                return refused
            records = await self._records.delete_each([name for name in names if name not in refused])
            topics = list(filter(None, map(self._known.remove, records)))
            self._count.known -= sum(record.partitions for record in records)
            self.layout_version += 1
            while topics:
                self.offsets.forget(topics[-1].record.name, topics[-1].partitions)
                kept += await self._end(topics.pop())
            forget = partial(self._scheme.forget_tombstones, *(record.topic_id for record in records))
            self._tablets.reclaim(records, [tablet for record in records for tablet in record.tablets], forget)
        while kept:
            del kept[-_FREED_AT_ONCE:]
            await asyncio.sleep(0)
        return refused

    def _why_kept(self, name: str) -> SchemeError | None:
        try:
            self._check_no_feed(name)
        except TopicIsFeed as refusal:
            return refusal
        return None if name in self._scheme.topics else TopicUnknown(f"there is no topic {name!r}")

    async def _end(self, topic: Topic) -> list[object]:
        """End the tablets of a deleted topic, and return what has memory: to be freed from the list's end on. A tablet
        knows the topic, which knows its partitions: so those would all be freed with the last tablet."""
        partitions = list(topic.partitions)
        return [*partitions, *await self._tablets.stop(topic)]

    async def retain(self, unread_since: UnreadSince | None) -> list[Topic]:
        """One walk over all partitions: delete what retention no longer keeps. Called every
        log.retention.check.interval.ms. Offsets of groups that nobody is in any more, by `unread_since`, go too; None:
        another node knows the groups.

        Return the topics that hold staged rows.
        """
        staged: dict[str, Topic] = {}
        async for name in _in_turns(list(self._scheme.topics)):
            try:
                async with self.changes:
                    await self._complete(name)
            except (CommitRefused, ShardLost) as refusal:
                _log.warning("topics wait to be served: %s", refusal)
                break
        is_any_held = False
        async for topic, server in _in_turns(self._served_partitions()):
            if server.staged.bytes or server.staged.decision_count:
                staged[topic.record.name] = topic
            try:
                if server.is_held:
                    is_any_held = True
                else:
                    await server.retention.retain()
            except KafkaError as refusal:
                _log.warning("retention of %s-%d waits: %s", topic.record.name, server.index, refusal)
        now_ms = self._clock()
        if unread_since is not None and not is_any_held:
            kept_ms = self._settings.offsets_retention_minutes * _MS_PER_MINUTE
            await self.offsets.expire(now_ms, kept_ms, unread_since)
            self.offsets.forget_emptied(now_ms, self._settings.offsets_retention_check_interval_ms)
        return list(staged.values())

    async def trim_read(self) -> None:
        """Delete the records that pq.auto.trim does not keep, in all partitions of the topics that have it."""
        trimmed = [topic for topic in list(self._topics.values()) if topic.config.pq_auto_trim]
        servers = ((topic.record.name, server) for topic in trimmed for server in topic.partitions)
        async for name, server in _in_turns(servers):
            try:
                if server.is_loaded and not server.is_held:
                    await server.retention.retain()
            except KafkaError as refusal:
                _log.warning("the auto trim of %s-%d waits: %s", name, server.index, refusal)

    def _served_partitions(self) -> Iterator[tuple[Topic, PartitionServer]]:
        """Yield the partitions of the topics that are served now, without those of other nodes, each as it is looked
        at: to list tens of thousands takes long."""
        for topic in list(self._topics.values()):
            record = topic.record
            for server in topic.partitions:
                if not self._cells.is_elsewhere(record.cell_of(server.index // record.partitions_per_tablet)):
                    yield topic, server

    def _partition(self, name: str, index: int) -> PartitionServer | None:
        topic = self._topics.get(name)
        return topic.partitions[index] if topic is not None and 0 <= index < len(topic.partitions) else None

    async def _serve(self, record: TopicRecord) -> Topic:
        feeder = self._feeders.get(record.name, "")
        topic = Topic(record, config_of(record, self._settings), self._settings, feeder)
        await self._tablets.start(topic)
        await asyncio.sleep(0)  # of thousands of partitions, lining up and learning take milliseconds each
        self._show(topic)
        return topic

    def _show(self, topic: Topic) -> None:
        """Show the topic to Kafka's clients, unless it is static."""
        self._known.put(topic)
        self.layout_version += 1
        if not topic.record.is_static:
            self.offsets.learn(topic.record.name, topic.partitions)


async def _in_turns(items: Iterable[T], at_once: int = _LOOKS_AT_ONCE) -> AsyncIterator[T]:
    """The items, and between them turns of the loop for other work."""
    for number, item in enumerate(items):
        if number % at_once == 0:
            await asyncio.sleep(0)
        yield item


async def _forget_nothing() -> None:
    """Leave the tombstone to the node that has the scheme."""


def _renew(offsets: GroupOffsets, topic: Topic) -> None:
    """Other partitions of the topic run, with what is durable of their offsets."""
    offsets.forget(topic.record.name, topic.partitions)
    topic.line_up()
    if not topic.record.is_static:
        offsets.learn(topic.record.name, topic.partitions)
