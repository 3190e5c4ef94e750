"""One broker node without its sockets: the real cell owner, topics and coordinators over an engine that can fail."""

import asyncio

from pqbroker.broker.ground.metrics import Metrics
from pqbroker.broker.ground.turns import Turns
from pqbroker.broker.kafka.apis.answer_budget import AnswerBudget
from pqbroker.broker.kafka.apis.fetch_sessions import FetchSessions
from pqbroker.broker.kafka.net.connections import Connections
from pqbroker.broker.node.parts import Node
from pqbroker.broker.services.cells.cell_owner import CellOwner
from pqbroker.broker.services.leaders import Leaders
from pqbroker.broker.services.logins.logins import Logins
from pqbroker.broker.services.producer_ids import ProducerIds, allocate
from pqbroker.conf.broker import BrokerSettings
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.topic import Topic
from pqbroker.storage.engine import CommitRefused, EngineError, ShardLost
from pqbroker.storage.memory import MemoryEngine

START_MS = 1_700_000_000_000
ENGINE_BYTES = 1 << 30
RETRY_S = 0.05
SETTLES_S = 1.0
TRIES = 30


class SimulatedNode:
    """`start` and `kill` it as often as you like: the engine stays. `node` is what handlers would see."""

    def __init__(self, settings: BrokerSettings, *, forgettable: int = 0) -> None:
        self.engine = MemoryEngine(ENGINE_BYTES, forgettable=forgettable)
        self.openings = 0
        """Starts of the process."""
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._tasks: list[asyncio.Task[None]] = []
        self._owner: CellOwner | None = None
        self._others: list[MemoryEngine] = []

    node: Node

    def clock(self) -> int:
        """Milliseconds since 1970."""
        return START_MS + int(self._loop.time() * 1000)

    @property
    def is_up(self) -> bool:
        return self._owner is not None

    @property
    def engines(self) -> list[MemoryEngine]:
        """Return the engines of all cells, the system cell's first; of a node that is down those known last."""
        if self.is_up:
            cells = sorted(self.owner.current.hive.cells)
            self._others = [self.engine.sibling(str(cell), must_exist=True) for cell in cells]
        return [self.engine, *self._others]

    @property
    def owner(self) -> CellOwner:
        assert self._owner is not None, "the node is down"
        return self._owner

    async def start(self) -> None:
        """Open the cell, however often that takes; an owner that still has it is fenced."""
        owner = CellOwner(self.engine, self._settings, self.clock)
        while True:
            try:
                opened = await owner.open()
                break
            except (EngineError, CommitRefused, ShardLost):
                await asyncio.sleep(RETRY_S)
        await self._abandon()
        self.node = Node(
            cell=owner,
            loop=self._loop,
            clock=self.clock,
            metrics=(metrics := Metrics()),
            sessions=FetchSessions(
                self._settings.fetch_sessions_max, self._settings.fetch_session_partitions_max, self.clock
            ),
            producer_ids=ProducerIds(lambda: allocate(owner.current.scheme)),
            cluster_id=opened.scheme.cluster_id,
            leaders=Leaders(self._settings.node_id),
            turns=Turns(self._loop, self._loop.time),
            answers=AnswerBudget(self._settings.unsent_bytes_max, self._loop.time),
            logins=Logins(self._loop, lambda: owner.current.scheme, lambda: self._settings, self.clock),
            connections=Connections(self._loop, metrics, lambda: 0),
        )
        self._owner = owner
        self.openings += 1
        self._retention = self._loop.create_task(self._retain(owner))
        cleaning = self._loop.create_task(self.node.cleaner.run(self.node))
        self._tasks = [self._loop.create_task(owner.watch(self._opened)), self._retention, cleaning]

    def _opened(self) -> None:
        self.node.metrics.cell_openings += 1

    async def kill(self, durable: int = 0) -> None:
        """The process dies; of the commits on their way the first `durable` have become so."""
        for engine in self.engines:
            if engine.is_open:
                engine.crash(durable=durable)
        await self._abandon()

    async def settle(self) -> None:
        """Return when the cell is open, a loss that was on its way notwithstanding; retention rests from now on."""
        self._retention.cancel()
        for _ in range(TRIES):
            await asyncio.sleep(SETTLES_S)
            if self.owner.is_open and self._are_cells_good():
                return
        raise AssertionError("a cell is not opened again though nothing stands in the way")

    def _are_cells_good(self) -> bool:
        opened = self.owner.current
        return all(opened.others.health(cell) == "good" for cell in opened.hive.cells)

    async def stop(self) -> None:
        """End it in peace."""
        self._others = self.engines[1:]
        owner, self._owner = self.owner, None
        await self._cancel()
        await owner.close()

    async def end(self) -> None:
        """Stop it, unless it is down."""
        if self.is_up:
            await self.stop()

    def group(self, topic_id: bytes) -> Topic | None:
        """The topic or static table, None when there is none now."""
        if not self.is_up:
            return None
        topics = self.node.cell.current.topics
        known = (topics.get(name, or_static=True) for name in topics.names(or_static=True))
        return next((topic for topic in known if topic is not None and topic.record.topic_id == topic_id), None)

    def partition(self, topic_id: bytes, index: int) -> PartitionServer | None:
        group = self.group(topic_id)
        return group.partitions[index] if group is not None and index < len(group.partitions) else None

    def tasks_failed(self) -> list[BaseException]:
        """Why periodic work has ended, where it did for a reason."""
        done = [task for task in self._tasks if task.done() and not task.cancelled()]
        return [error for task in done if (error := task.exception()) is not None]

    async def _abandon(self) -> None:
        """Nothing of a dead process moves any more; its connections break."""
        owner, self._owner = self._owner, None
        if owner is None:
            return
        await self._cancel()
        await owner.current.stop()

    async def _cancel(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _retain(self, owner: CellOwner) -> None:
        while True:
            await asyncio.sleep(self._settings.retention_check_interval_ms / 1000)
            await owner.retain()


