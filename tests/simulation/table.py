"""Who has a table: mounts, freezes, unmounts and moves its tablets, reshards it, makes it static and dynamic again.

The changes are those of every door. What a change gives the rows of another tablet, or another table, is
told to the books once it is seen to have happened: the answer may be lost.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pqbroker.broker.ground.access import DirectCaller
from pqbroker.broker.node.parts import Node
from pqbroker.broker.services.tables.attributes import remount, set_attributes
from pqbroker.broker.services.tables.conversion import convert
from pqbroker.broker.services.tables.finding import TabletRange
from pqbroker.broker.services.tables.making import NewTable, create
from pqbroker.broker.services.tables.mounting import MountChange, change_state
from pqbroker.broker.services.tables.resharding import ReshardChange, reshard
from pqbroker.pq.log.head import first_kept
from pqbroker.pq.serving.topic import Topic
from pqbroker.protocol.errors import KafkaError
from pqbroker.storage.bundles.bundle import BundleRefused
from pqbroker.storage.engine import CommitRefused, ShardLost
from pqbroker.storage.ids import SYSTEM_CELL, TabletId
from pqbroker.storage.tablets.scheme import SchemeError
from pqbroker.tables.mount import MountCommand
from pqbroker.tables.refusals import TableError
from tests.simulation.ledger import PartitionBook, TopicBook, expect
from tests.simulation.producer import SimulatedProducer
from tests.simulation.world import TABLE, World

TABLETS = 2
TABLETS_MAX = 4
SIMULATED_ATTRIBUTE = "max_data_ttl"
ACTIONS_A_SECOND = 5.0
BACK_OFF_S = 0.2
_REFUSED = (BundleRefused, CommitRefused, KafkaError, SchemeError, ShardLost, TableError)
_NEW = NewTable(f"//{TABLE}", [{"name": "all", "type": "string"}], config={"value.format": "raw"}, tablet_count=TABLETS)


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows that are to stand elsewhere: those of a partition from `start` to before `end`."""

    book: PartitionBook
    start: int
    end: int

    def stand(self, there: PartitionBook, base: int) -> int:
        """They do, from `base` on; the offset behind them."""
        there.records_sent |= self.book.records_sent
        there.acknowledged |= self.book.acknowledged
        for offset, value in sorted(self.book.log.items()):
            if self.start <= offset < self.end:
                there.stored(base + offset - self.start, [value])
        self.book.gone = True
        there.end = max(there.end, base + self.end - self.start)
        return base + self.end - self.start


class SimulatedAttributes:
    """What one attribute may be in each tablet: what acted there, and what a command that named it may have brought."""

    def __init__(self) -> None:
        self._set: set[int | None] = {None}
        self._acting: dict[TabletId, set[int | None]] = {}

    def may_be_set(self, value: int) -> None:
        self._set.add(value)

    def is_set(self, value: int) -> None:
        self._set = {value}

    def may_be_taken(self, topic: Topic, tablets: TabletRange) -> None:
        """Before a mount or remount of these tablets, whatever becomes of it."""
        for index in tablets.of(topic):
            self._acting.setdefault(topic.record.tablets[index], {None}).update(self._set)

    def check(self, topic: Topic) -> None:
        """Each tablet that was seen before has what it had, or what it was to take."""
        table = topic.record.table
        assert table is not None
        for tablet, acting in zip(topic.record.tablets, table.mounted, strict=True):
            value = acting.get(SIMULATED_ATTRIBUTE)
            known = self._acting.setdefault(tablet, {value})
            expect(value in known, f"{SIMULATED_ATTRIBUTE}={value} acts in tablet {tablet}, which took none of {known}")


class SimulatedTable:
    """Changes its table at random, and leaves it dynamic and mounted at the end."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = world.chance("table")
        self._produced: set[tuple[bytes, int]] = set()
        self._book: TopicBook | None = None
        self._glued: tuple[Rows, Rows] | None = None
        """Rows of the last tablet but one, and those of the last that may stand behind them."""
        self._converted: list[Rows] = []
        """Rows that the table may have alone, in this order, under another id."""
        self._asked_in = 0
        """Generation of the system cell that was asked for such a change: while it is open it may still come."""
        self._attributes = SimulatedAttributes()

    async def run(self) -> None:
        actions = [self._change_states] * 5 + [self._mount] * 3
        actions += [self._grow] * 3 + [self._shrink] * 2 + [self._convert]
        actions += [self._set_attribute, self._remount] * 2
        while not self._world.is_ending:
            await asyncio.sleep(self._chance.expovariate(ACTIONS_A_SECOND))
            topic = self._found()
            if topic is not None:
                action = self._convert if topic.record.is_static else self._chance.choice(actions)
                await action(topic)
            elif self._world.node.is_up:
                await self._create()
        is_at_rest = False
        while not is_at_rest:
            is_at_rest = await self._is_at_rest()
            await asyncio.sleep(BACK_OFF_S)

    async def _is_at_rest(self) -> bool:
        if not (self._world.node.is_up and self._world.node.owner.is_open):
            return False  # an unmount whose answer was lost shows in the next opening
        topic = self._found()
        if topic is None:
            return self._book is None
        if topic.record.is_static:
            await self._set_static(is_static=False)
        elif set(topic.states) != {"mounted"}:
            await self._mount(topic)
        topic = self._found()
        return topic is not None and not topic.record.is_static and set(topic.states) == {"mounted"}

    def _found(self) -> Topic | None:
        """The table, with the books as it stands."""
        if not self._world.node.is_up:
            return None
        topic = self._world.node.node.cell.current.topics.get(TABLE, or_static=True)
        if topic is None:
            return None
        book = self._look_up(topic)
        self._settle_glued(topic, book)
        self._attributes.check(topic)
        book.count = len(topic.partitions)
        for server in topic.partitions if not topic.record.is_static else ():
            key = (book.topic_id, server.index)
            if key not in self._produced:
                self._produced.add(key)
                producer = SimulatedProducer(self._world, book.topic_id, server.index)
                self._world.clients.create_task(producer.run())
        return topic

    def _look_up(self, topic: Topic) -> TopicBook:
        before = self._book
        if before is not None and before.topic_id == topic.record.topic_id:
            if self._converted and not topic.record.is_static and not self._may_still_come():
                self._converted = []
                before.deleting = False
            return before
        book = self._book = self._world.book(topic.record)
        if before is not None:
            expect(bool(self._converted), "the table has another id though nobody has made it static")
            before.gone = True
            base = 0
            for rows in self._converted:
                base = rows.stand(book.partition(0), base)
            self._converted = []
        return book

    def _settle_glued(self, topic: Topic, book: TopicBook) -> None:
        if self._glued is None:
            return
        there, rows = self._glued
        index = len(book.partitions) - 1
        is_done = len(topic.partitions) == index
        if is_done or not self._may_still_come():
            self._glued = None
        if is_done:
            rows.stand(there.book, there.end)
            del book.partitions[index]
            self._produced.discard((book.topic_id, index))
            self._world.note(f"tablet {index} is glued")

    def _generation(self) -> int:
        generation: int = self._world.node.node.cell.current.cell.generation
        return generation

    def _may_still_come(self) -> bool:
        """Return True if a change whose answer was lost is seen only once the cell is open again."""
        return self._generation() == self._asked_in

    async def _do(self, told: str, change: Callable[[DirectCaller[Node]], Coroutine[Any, Any, Any]]) -> bool:
        """Whether it was done; not, where it was refused or nobody knows."""
        node = self._world.node
        if not node.is_up:
            return False
        try:
            await change(DirectCaller(node.node))
        except _REFUSED as refusal:
            code = getattr(refusal, "code", "")
            self._world.note(f"table: no {told}: {type(refusal).__name__} {code}")
            return False
        self._world.note(f"table: {told}")
        return True

    async def _create(self) -> None:
        await self._do("create", lambda caller: create(caller, _NEW))

    async def _change(self, change: MountChange) -> bool:
        told = f"{change.command} {_told(change.tablets)}"
        if change.cell is not None:
            told += f" in cell {change.cell}"
        return await self._do(told, lambda caller: change_state(caller, TABLE, change))

    async def _reshard(self, change: ReshardChange) -> None:
        told = f"reshard {_told(change.tablets)} to {change.tablet_count} from {change.trimmed_row_counts}"
        await self._do(told, lambda caller: reshard(caller, TABLE, change))

    async def _set_static(self, *, is_static: bool) -> None:
        told = "make static" if is_static else "make dynamic"
        await self._do(told, lambda caller: convert(caller, TABLE, is_static=is_static))

    def _range(self, topic: Topic) -> TabletRange:
        first = self._chance.randrange(len(topic.partitions))
        return TabletRange(first, self._chance.randrange(first, len(topic.partitions)))

    async def _change_states(self, topic: Topic) -> None:
        commands = (MountCommand.MOUNT, MountCommand.UNMOUNT, MountCommand.FREEZE, MountCommand.UNFREEZE)
        change = MountChange(self._chance.choice(commands), self._range(topic))
        if change.command is MountCommand.UNMOUNT and self._chance.random() < 0.3:
            change = replace(change, is_forced=True)
        if change.command is MountCommand.MOUNT and self._world.has_cells and self._chance.random() < 0.5:
            cells = [SYSTEM_CELL, *sorted(self._world.node.owner.current.hive.cells)]
            change = replace(change, cell=str(self._chance.choice(cells)))
        if change.command is MountCommand.MOUNT:
            self._attributes.may_be_taken(topic, change.tablets)
        await self._change(change)

    async def _set_attribute(self, topic: Topic) -> None:
        """Rows are kept whatever it is: min_data_versions is 1."""
        value = self._chance.randrange(1000)
        self._attributes.may_be_set(value)
        told, given = f"set {SIMULATED_ATTRIBUTE} = {value}", {SIMULATED_ATTRIBUTE: value}
        if await self._do(told, lambda caller: set_attributes(caller, TABLE, given)):
            self._attributes.is_set(value)

    async def _remount(self, topic: Topic) -> None:
        tablets = self._range(topic)
        self._attributes.may_be_taken(topic, tablets)
        await self._do(f"remount {_told(tablets)}", lambda caller: remount(caller, TABLE, tablets))

    async def _mount(self, topic: Topic) -> None:
        """All, so that rows come again."""
        commands = {"frozen": MountCommand.UNFREEZE, "unmounted": MountCommand.MOUNT}
        for index, state in enumerate(topic.states):
            if state in commands:
                tablets = TabletRange(index, index)
                self._attributes.may_be_taken(topic, tablets)
                await self._change(MountChange(commands[state], tablets))

    async def _grow(self, topic: Topic) -> None:
        last = len(topic.partitions) - 1
        if len(topic.partitions) == TABLETS_MAX or not await self._unmounted(topic, [last]):
            return
        first_rows = [self._chance.randrange(20)] if self._chance.random() < 0.5 else None
        await self._reshard(ReshardChange(2, TabletRange(last, last), first_rows))

    async def _shrink(self, topic: Topic) -> None:
        last = len(topic.partitions) - 1
        if last < 1 or not await self._unmounted(topic, [last - 1, last]):
            return
        topic_or_none = self._found()
        if topic_or_none is None or len(topic_or_none.partitions) != last + 1:
            return
        there, rows = (self._rows(topic_or_none, index) for index in (last - 1, last))
        self._glued, self._asked_in = (there, rows), self._generation()
        await self._reshard(ReshardChange(1, TabletRange(last - 1, last)))

    async def _convert(self, topic: Topic) -> None:
        if topic.record.is_static:
            await self._set_static(is_static=False)
            return
        if not await self._unmounted(topic, range(len(topic.partitions))):
            return
        found = self._found()
        if found is None or found.record.is_static or self._book is None:
            return
        self._converted = [self._rows(found, index, by_chunk=True) for index in range(len(found.partitions))]
        self._book.deleting, self._asked_in = True, self._generation()
        await self._set_static(is_static=True)

    async def _unmounted(self, topic: Topic, indexes: Sequence[int]) -> bool:
        tablets = TabletRange(indexes[0], indexes[-1])
        await self._change(MountChange(MountCommand.UNFREEZE, tablets))
        return await self._change(MountChange(MountCommand.UNMOUNT, tablets))

    def _rows(self, topic: Topic, index: int, *, by_chunk: bool = False) -> Rows:
        """Of a tablet as it stands, or all that its chunks have."""
        assert self._book is not None
        server = topic.partitions[index]
        log = server.state
        start = min(first_kept(log.bodies, log.head, 0), server.end_offset) if by_chunk else server.start_offset
        return Rows(self._book.partition(index), start, server.end_offset)


def _told(tablets: TabletRange) -> str:
    return f"tablets {tablets.first} to {tablets.last}"
