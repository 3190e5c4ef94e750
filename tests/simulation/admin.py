"""Who creates topics, lets them grow, trims, configures and deletes them; and one who only looks at their bounds."""

import asyncio

from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.topic import Topic
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.bundles.bundle import BundleRefused
from pqbroker.storage.engine import CommitRefused, EngineError, ShardLost
from pqbroker.storage.ids import SYSTEM_CELL
from pqbroker.storage.tablets.scheme_topics import PartitionsNotGrown, TopicExists, TopicUnknown
from tests.simulation.ledger import TopicBook, expect
from tests.simulation.producer import SimulatedProducer
from tests.simulation.world import World

LASTING, PASSING = "lasting", "passing"
"""The second one is deleted now and then."""
PARTITIONS_MAX = 5
BACK_OFF_S = 0.2
LOOKS_EVERY_S = 0.15
ACTIONS_A_SECOND = 1.5
REFUSALS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR)


class SimulatedAdmin:
    """Changes topics at random; every partition that there is gets a producer."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = world.chance("admin")
        self._produced: set[tuple[bytes, int]] = set()

    async def run(self) -> None:
        if self._world.has_cells:
            await self._have_cell()
        await self._have(LASTING, 2)
        await self._have(PASSING, 1)
        actions = [self._trim, self._trim, self._configure, self._grow, self._delete]
        if self._world.has_cells:
            actions += [self._move, self._move]
        while not self._world.is_ending:
            await asyncio.sleep(self._chance.expovariate(ACTIONS_A_SECOND))
            name = self._chance.choice((LASTING, PASSING))
            group = self._group(name)
            if group is not None:
                book = self._world.book(group.record)
                self._produce(book, group)
                await self._chance.choice(actions)(group, book)
            elif self._world.node.is_up:
                await self._have(name, 1)

    def _group(self, name: str) -> Topic | None:
        return self._world.node.node.cell.current.topics.get(name) if self._world.node.is_up else None

    async def _have(self, name: str, partitions: int) -> None:
        """Create the topic, unless an attempt before has done so in secret."""
        while (group := self._group(name)) is None and not self._world.is_ending:
            try:
                if self._world.node.is_up:
                    await self._world.node.node.cell.current.topics.create(name, partitions, self._config())
                    self._world.note(f"{name} is created")
                    continue
            except (CommitRefused, ShardLost, TopicExists) as refusal:
                self._world.note(f"{name} is not created: {type(refusal).__name__}")
            await asyncio.sleep(BACK_OFF_S)
        if group is not None:
            self._produce(self._world.book(group.record), group)

    async def _have_cell(self) -> None:
        """Create a second cell, unless an attempt before has done so in secret."""
        while not self._world.is_ending:
            try:
                if self._world.node.is_up:
                    opened = self._world.node.owner.current
                    if not opened.hive.cells:
                        await opened.others.create("default")
                        self._world.note("a cell is created")
                    return
            except (BundleRefused, CommitRefused, EngineError, ShardLost) as refusal:
                self._world.note(f"no cell is created: {type(refusal).__name__}")
            await asyncio.sleep(BACK_OFF_S)

    def _produce(self, book: TopicBook, topic: Topic) -> None:
        for server in topic.partitions:
            key = (book.topic_id, server.index)
            if key not in self._produced:
                self._produced.add(key)
                producer = SimulatedProducer(self._world, book.topic_id, server.index)
                self._world.clients.create_task(producer.run())

    def _config(self) -> dict[str, str]:
        return {
            "pq.low.watermark.bytes": str(self._chance.choice((1_024, 5_000, 20_000, 6_291_456))),
            "pq.partitions.per.tablet": str(self._chance.choice((1, 2, 4))),
            "retention.ms": str(self._chance.choice((-1, -1, 3_000))),
            "retention.bytes": str(self._chance.choice((-1, -1, 30_000))),
        }

    async def _trim(self, topic: Topic, book: TopicBook) -> None:
        server: PartitionServer = self._chance.choice(topic.partitions)
        known = book.partition(server.index)
        offset = self._chance.randint(server.start_offset, server.end_offset)
        try:
            start = await server.retention.delete_before(offset)
        except KafkaError as error:
            expect(error.code in REFUSALS, f"{known.name} cannot be trimmed: {error!r}")
            return
        expect(start >= offset, f"{known.name} starts at {start} after a trim to {offset}")
        known.start = max(known.start, offset)
        self._world.note(f"{known.name} is trimmed to {offset}")

    async def _move(self, topic: Topic, book: TopicBook) -> None:
        opened = self._world.node.owner.current
        tablet = self._chance.choice(list(topic.tablets))
        cell = self._chance.choice([SYSTEM_CELL, *sorted(opened.hive.cells)])
        try:
            await opened.others.move_tablet(opened.topics.owner_of(topic), tablet, cell)
        except (BundleRefused, CommitRefused, ShardLost) as refusal:
            self._world.note(f"a tablet of {book.name} does not move: {type(refusal).__name__}")
            return
        self._world.note(f"tablet {tablet} of {book.name} lives in cell {cell}")

    async def _configure(self, topic: Topic, book: TopicBook) -> None:
        try:
            config = self._config()
            await self._world.node.node.cell.current.topics.reconfigure(book.name, lambda _: config)
        except (CommitRefused, ShardLost, TopicUnknown):
            return
        self._world.note(f"{book.name} is configured")

    async def _grow(self, topic: Topic, book: TopicBook) -> None:
        count = len(topic.partitions) + 1
        if count > PARTITIONS_MAX:
            return
        try:
            grown = await self._world.node.node.cell.current.topics.grow(book.name, count)
        except (CommitRefused, ShardLost, PartitionsNotGrown):
            return
        expect(len(grown.partitions) == count, f"{book.name} has {len(grown.partitions)} partitions, not {count}")
        self._world.note(f"{book.name} has {count} partitions")
        self._produce(self._world.book(grown.record), grown)

    async def _delete(self, topic: Topic, book: TopicBook) -> None:
        if book.name == LASTING:
            return
        was_deleting, book.deleting = book.deleting, True
        for consumers in self._world.groups.values():
            consumers.topic_deleting(book.name)
        try:
            await self._world.node.node.cell.current.topics.delete(book.name)
        except CommitRefused:
            book.deleting = was_deleting
            return
        except (ShardLost, TopicUnknown):
            return
        self._world.note(f"{book.name} is deleted")
        self.forget(book)

    def forget(self, book: TopicBook) -> None:
        """The topic is gone for good, and its name free."""
        book.gone = True
        for consumers in self._world.groups.values():
            consumers.topic_gone(book.name)


class Observer:
    """Looks at every partition's bounds, and at who is there."""

    def __init__(self, world: World, admin: SimulatedAdmin) -> None:
        self._world = world
        self._admin = admin

    async def run(self) -> None:
        while not self._world.is_ending or self._world.writing:
            self.look()
            await asyncio.sleep(LOOKS_EVERY_S)

    def look(self) -> None:
        """Nothing goes that nobody has deleted, nothing comes back, no bound moves back."""
        if not self._world.node.is_up:
            return
        for book in list(self._world.topics.values()):
            group = self._world.node.group(book.topic_id)
            if group is None:
                expect(book.deleting, f"topic {book.name} is gone though nobody has deleted it")
                if not book.gone:
                    self._admin.forget(book)
                continue
            expect(not book.gone, f"topic {book.name} was deleted and is there again")
            for server in group.partitions:
                if not server.is_lost:
                    book.partition(server.index).bounds(server.start_offset, server.end_offset)
