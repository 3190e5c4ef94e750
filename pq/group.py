"""PersQueue groups: topics as partitions in PQ tablets. A group grows, never shrinks (semantics A.15).

absent    create (scheme, then tablets)     serving
serving   grow, configure                   serving
serving   delete (scheme: a tombstone)      absent; its tablets are dropped in the background, resumed at start
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial

from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.defaults import check_changed, topic_config
from pqbroker.conf.topic import TopicConfig
from pqbroker.pq.cache import NodeMemory
from pqbroker.pq.consumers import ConsumerOffset
from pqbroker.pq.offsets import GroupOffsets, Outcomes, Place, UnreadSince
from pqbroker.pq.partition_limit import PartitionCount
from pqbroker.pq.partition_server import PartitionServer
from pqbroker.pq.reclaiming import Reclaiming
from pqbroker.pq.stored_config import config_of
from pqbroker.pq.tablet import PqTablet
from pqbroker.protocol.errors import KafkaError
from pqbroker.storage.cells.cell import Cell, TabletUnknown
from pqbroker.storage.engine import CommitRefused, ShardLost
from pqbroker.storage.lasting import made_whole
from pqbroker.storage.scheme import SCHEME_TABLET_ID, Scheme, Topic
from pqbroker.storage.tablet import TabletType

_STARTS_AT_ONCE = 64
_LOOKS_AT_ONCE = 100
"""Partitions that retention looks at, and topics configured, before the loop's other work has its turn."""
_MS_PER_MINUTE = 60_000
_log = logging.getLogger(__name__)


class Group:
    """One topic in service; `partitions` by index."""

    __slots__ = ("config", "partitions", "tablets", "topic")

    def __init__(self, topic: Topic, config: TopicConfig) -> None:
        self.topic = topic
        self.config = config
        self.tablets: dict[int, PqTablet] = {}
        self.partitions: list[PartitionServer] = []

    def use(self, config: TopicConfig, settings: BrokerSettings) -> None:
        """The config and the node's settings in force, from the next write cycle on."""
        self.config = config
        for tablet in self.tablets.values():
            tablet.configure(config, settings)

    def line_up(self) -> None:
        """List the partitions of all tablets by index."""
        found = {index: server for tablet in self.tablets.values() for index, server in tablet.partitions.items()}
        self.partitions = [found[index] for index in range(self.topic.partitions)]

    def is_whole(self, topic: Topic) -> bool:
        """Whether all is served that the topic has in the scheme."""
        return len(self.partitions) == topic.partitions and len(self.tablets) == len(topic.tablets)


class PersQueueGroups:
    """All topics of a node. Changes raise ConfigError, SchemeError, CommitRefused, ShardLost.

    A change that has begun is made whole even if its caller is cancelled: the scheme may have its half already.
    `clock`: milliseconds since 1970. `by_reference=False`: blobs are merged by copying only, the oracle of semantics
    A.6.
    """

    def __init__(
        self,
        cell: Cell,
        scheme: Scheme,
        *,
        settings: BrokerSettings,
        clock: Callable[[], int],
        by_reference: bool = True,
    ) -> None:
        self._by_reference = by_reference
        self._cell = cell
        self._scheme = scheme
        self._settings = settings
        self._clock = clock
        self.memory = NodeMemory(
            settings.cache_bytes, settings.head_bytes, settings.sent_files_max, settings.decode_threads
        )
        self._groups: dict[str, Group] = {}
        self._by_id: dict[bytes, Group] = {}
        self._count = PartitionCount()
        self._offsets = GroupOffsets(self._partition)
        self._changes = asyncio.Lock()
        self._reclaiming = Reclaiming(cell)

    async def start(self) -> None:
        """Start every topic's tablets; create those a crash kept from being, drop those that are nobody's."""
        topics = list(self._scheme.topics.values())
        self._count.known = sum(topic.partitions for topic in topics)
        await self._cell.create_tablets([item for topic in topics for item in _wanted(topic)])
        known = {tablet for topic in topics for tablet in topic.tablets}
        known |= {tablet for tombstone in self._scheme.tombstones.values() for tablet in tombstone.tablets}
        stray = [
            record.tablet_id
            for record in self._cell.tablets().values()
            if record.type is TabletType.PERSQUEUE and record.tablet_id not in known
        ]
        gate = asyncio.Semaphore(_STARTS_AT_ONCE)

        async def start_one(topic: Topic) -> None:
            async with gate:
                await self._serve(topic)

        await asyncio.gather(*(start_one(topic) for topic in topics))
        for tombstone in list(self._scheme.tombstones.values()):
            self._reclaiming.begin(tombstone.tablets, partial(self._scheme.forget_tombstone, tombstone.topic_id))
        if stray:
            self._reclaiming.begin(stray)

    async def stop(self) -> None:
        """End every tablet's instance, after the changes under way; what is reclaimed goes on at the next start."""
        async with self._changes:
            self._offsets.stop()
        await self._reclaiming.stop()
        for group in self._groups.values():
            for tablet in group.tablets.values():
                tablet.stop()
        self._groups.clear()
        self._by_id.clear()

    def get(self, name: str) -> Group | None:
        return self._groups.get(name)

    def by_id(self, topic_id: bytes) -> Group | None:
        return self._by_id.get(topic_id)

    def names(self) -> Iterable[str]:
        return self._groups.keys()

    def check_room(self, count: int) -> None:
        """Whether `count` partitions more may be created: TooManyPartitions."""
        self._count.check_room(count, self._settings.partitions_max)

    def commit_offsets(self, group_id: str, offsets: Mapping[Place, ConsumerOffset | None]) -> Awaitable[Outcomes]:
        """Store a consumer group's offsets, or delete them (None), all in one commit; see `GroupOffsets.commit`."""
        return self._offsets.commit(group_id, offsets)

    def offsets_of(self, group_id: str) -> Mapping[Place, ConsumerOffset]:
        """A consumer group's durable offsets by topic and partition, in order."""
        return self._offsets.of(group_id)

    def offset_of(self, group_id: str, place: Place) -> ConsumerOffset | None:
        """A consumer group's durable offset in one partition."""
        return self._offsets.at(group_id, place)

    def groups_with_offsets(self) -> Iterable[str]:
        """Ids of the consumer groups that have offsets."""
        return self._offsets.groups()

    def has_offsets(self, group_id: str) -> bool:
        """Whether a consumer group has durable offsets."""
        return self._offsets.has(group_id)

    async def settled(self, group_id: str) -> None:
        """Return when the commits of a consumer group that were asked for before this call are done."""
        await self._offsets.settled(group_id)

    def is_committing(self, group_id: str) -> bool:
        """Whether a commit of a consumer group is on its way."""
        return self._offsets.is_committing(group_id)

    def lag(self, group_id: str) -> Mapping[Place, int]:
        """Records that a consumer group has not read in each of its partitions."""
        return self._offsets.lag(group_id)

    def tell_unread(self, unread_since: UnreadSince) -> None:
        """Have offsets expire by what is known of the groups' members; without it, by the time of their commit."""
        self._offsets.unread_since = unread_since

    async def create(self, name: str, partitions: int, config: Mapping[str, str]) -> Group:
        """Create a topic and start its partitions.

        Raises TopicExists, PartitionsRefused, TooManyPartitions, ConfigError.
        """
        return await made_whole(self._create(name, partitions, config))

    async def grow(self, name: str, count: int) -> Group:
        """Add partitions: the last tablet's room first, then new tablets. Raises TopicUnknown, PartitionsNotGrown…"""
        return await made_whole(self._grow(name, count))

    async def configure(self, name: str, config: Mapping[str, str]) -> Group:
        """Replace what is set for the topic; it holds from the next write cycle on. TopicUnknown, ConfigError."""
        return await self.reconfigure(name, lambda _: config)

    async def reconfigure(self, name: str, change: Callable[[Mapping[str, str]], Mapping[str, str]]) -> Group:
        """Replace what is set for the topic by what `change` makes of it: no change of another is lost between."""
        return await made_whole(self._reconfigure(name, change))

    async def delete(self, name: str) -> None:
        """Delete a topic: gone when this returns, its space comes back later. Raises TopicUnknown."""
        await made_whole(self._delete(name))

    async def _create(self, name: str, partitions: int, config: Mapping[str, str]) -> Group:
        parsed = topic_config(config, self._settings)
        async with self._changes:
            await self._complete(name)
            if name not in self._scheme.topics:
                self.check_room(partitions)
            topic = await self._scheme.create_topic(name, partitions, config, parsed.pq_partitions_per_tablet)
            self._count.known += partitions
            try:
                await self._cell.create_tablets(_wanted(topic))
            except CommitRefused:
                await self._scheme.delete_topic(name)
                self._count.known -= partitions
                raise
            return await self._serve(topic)

    async def _grow(self, name: str, count: int) -> Group:
        async with self._changes:
            completed = await self._complete(name)
            if completed is not None and len(completed.partitions) == count:
                return completed  # what is asked for is what was begun before
            known = self._scheme.topics.get(name)
            added = count - known.partitions if known is not None else 0
            self.check_room(added)
            topic = await self._scheme.grow_topic(name, count)
            self._count.known += added
            try:
                await self._cell.create_tablets(_wanted(topic))
            except CommitRefused:
                assert known is not None
                await self._scheme.ungrow_topic(known)
                self._count.known -= added
                raise
            return await self._take_over(topic)

    async def _complete(self, name: str) -> Group | None:
        """Serve what is durable in the scheme and was refused a step later, when taking it back was refused too.

        None: there was nothing to complete.
        """
        topic, group = self._scheme.topics.get(name), self._groups.get(name)
        if topic is None or (group is not None and group.is_whole(topic)):
            return None
        await self._cell.create_tablets(_wanted(topic))
        return await (self._serve(topic) if group is None else self._take_over(topic))

    async def _take_over(self, topic: Topic) -> Group:
        """A topic that is served has more partitions now."""
        group = self._groups[topic.name]
        group.topic = topic
        await self._start_partitions(group)
        return group

    async def _reconfigure(self, name: str, change: Callable[[Mapping[str, str]], Mapping[str, str]]) -> Group:
        async with self._changes:
            await self._complete(name)
            known = self._scheme.topics.get(name)
            stored = known.config if known else {}
            config = change(stored)
            check_changed(config, stored, self._settings)
            topic = await self._scheme.configure_topic(name, config)
            group = self._groups[name]
            group.topic = topic
            group.use(config_of(topic, self._settings), self._settings)
            return group

    async def configure_node(self, node: str, texts: Mapping[str, str], settings: BrokerSettings) -> None:
        """Replace what is set for a node ("": for every node); `settings` are in force then.

        What topics leave open follows, from each one's next write cycle on, and so does how long they know a producer.
        """
        async with self._changes:
            await self._scheme.configure_node(node, texts)
            self._settings = settings
            for number, group in enumerate(list(self._groups.values())):
                if number % _LOOKS_AT_ONCE == 0:
                    await asyncio.sleep(0)
                group.use(config_of(group.topic, settings), settings)

    async def _delete(self, name: str) -> None:
        async with self._changes:
            topic = await self._scheme.delete_topic(name)
            self._count.known -= topic.partitions
            group = self._groups.pop(name, None)
            self._by_id.pop(topic.topic_id, None)
            if group is not None:
                self._offsets.forget(name, group.partitions)
                for number, tablet in enumerate(group.tablets.values()):
                    if number % _LOOKS_AT_ONCE == 0:
                        await asyncio.sleep(0)
                    tablet.stop()
            self._reclaiming.begin(topic.tablets, partial(self._scheme.forget_tombstone, topic.topic_id))

    async def restart_tablet(self, tablet_id: int) -> None:
        """Start a topic's tablet anew, one generation later. Reads are served meanwhile, and writes wait for the new
        instance; a change that its administration waits for, and a commit of offsets, is told to come back.

        Refused, it goes on in its generation. Raises TabletUnknown, CommitRefused, ShardLost.
        """
        async with self._changes:
            group = next((group for group in self._groups.values() if tablet_id in group.tablets), None)
            if group is None:
                raise TabletUnknown(f"tablet {tablet_id} serves no topic")
            earlier = group.tablets[tablet_id]
            try:
                await earlier.hold()
                try:
                    await self._cell.restart_tablet(tablet_id)
                finally:
                    del group.tablets[tablet_id]
                    await self._start_partitions(group)
                    earlier.hand_over(group.tablets[tablet_id])
            finally:
                earlier.stop()

    async def reclaimed(self) -> None:
        """Return when the tablets of deleted topics are dropped, or their dropping is left to the next start."""
        await self._reclaiming.finished()

    async def restart_scheme(self) -> Scheme:
        """Start the scheme's tablet anew; topics are served on. Raises CommitRefused, ShardLost."""
        async with self._changes:
            await self._scheme.stop()
            try:
                await self._cell.restart_tablet(SCHEME_TABLET_ID)
            finally:
                self._scheme = await Scheme.open(self._cell, self._clock)
            return self._scheme

    async def retain(self) -> None:
        """One walk over all partitions: delete what retention no longer keeps. Called every
        log.retention.check.interval.ms. Offsets of groups that nobody is in any more go too."""
        try:
            async with self._changes:
                for name in list(self._scheme.topics):
                    await self._complete(name)
        except (CommitRefused, ShardLost) as refusal:
            _log.warning("topics wait to be served: %s", refusal)
        servers = [(group, server) for group in self._groups.values() for server in group.partitions]
        for number, (group, server) in enumerate(servers):
            if number % _LOOKS_AT_ONCE == 0:
                await asyncio.sleep(0)
            try:
                await server.retain()
            except KafkaError as refusal:
                _log.warning("retention of %s-%d waits: %s", group.topic.name, server.index, refusal)
        await self._offsets.expire(self._clock(), self._settings.offsets_retention_minutes * _MS_PER_MINUTE)

    def _partition(self, name: str, index: int) -> PartitionServer | None:
        group = self._groups.get(name)
        return group.partitions[index] if group is not None and 0 <= index < len(group.partitions) else None

    async def _serve(self, topic: Topic) -> Group:
        group = Group(topic, config_of(topic, self._settings))
        await self._start_partitions(group)
        self._groups[topic.name] = group
        self._by_id[topic.topic_id] = group
        self._offsets.learn(topic.name, group.partitions)
        return group

    async def _start_partitions(self, group: Group) -> None:
        """Start the tablets and partitions that do not run yet."""
        topic = group.topic
        for number, tablet_id in enumerate(topic.tablets):
            first = number * topic.partitions_per_tablet
            indexes = range(first, min(first + topic.partitions_per_tablet, topic.partitions))
            tablet = group.tablets.get(tablet_id)
            if tablet is None:
                storage = self._cell.storage(tablet_id)
                tablet = PqTablet(
                    storage, group.config, self.memory, self._settings, self._clock, by_reference=self._by_reference
                )
                await tablet.start(indexes)
                group.tablets[tablet_id] = tablet
            for index in indexes:
                if index not in tablet.partitions:
                    await tablet.add(index)
        group.line_up()
        for server in group.partitions:
            if server.unreadable is not None:
                _log.error("%s-%d is not served: %s", topic.name, server.index, server.unreadable)


def _wanted(topic: Topic) -> list[tuple[int, TabletType, str]]:
    owner = topic.topic_id.hex()
    return [(tablet_id, TabletType.PERSQUEUE, owner) for tablet_id in topic.tablets]
