"""Clients with transactional ids, and readers of what they commit, while partitions move, restart and are cleaned."""

import asyncio

from tests.simulation.producing_story import (
    PARTITIONS,
    PlannedBatch,
    PlannedTransaction,
    ProducingStory,
    TransactionalClient,
)
from tests.simulation.world import World

CLIENTS = 3
TRANSACTIONS_A_SECOND = 3.0
DISTURBANCES_A_SECOND = 3.0
READS_A_SECOND = 5.0
TIMEOUTS_MS = (300, 2_000, 20_000, 20_000)
THINKS_S = (0.0, 0.0, 0.01, 0.2)
POLICIES = ("delete", "compact")
KEYS = 4
PADDINGS = (0, 0, 300, 1200)
COMMITTED, LEFT_OPEN, SENT_TWICE, BEGINS_AGAIN, DIES = 0.7, 0.1, 0.2, 0.1, 0.15


class SimulatedProducing:
    """Lives the story of a world that has Kafka transactions."""

    def __init__(self, world: World, story: ProducingStory) -> None:
        self._world = world
        self._story = story
        self._chance = world.chance("Kafka transactions")
        self._clients = [
            TransactionalClient(
                f"client {number}", f"id {number}", is_second=self._chance.random() < 0.5,
                timeout_ms=self._chance.choice(TIMEOUTS_MS),
            )
            for number in range(CLIENTS)
        ]  # fmt: skip

    async def run(self) -> None:
        await self._story.create({"cleanup.policy": self._chance.choice(POLICIES)})
        async with asyncio.TaskGroup() as tasks:
            for client in self._clients:
                tasks.create_task(self._produce(client))
            for index in range(PARTITIONS):
                tasks.create_task(self._read(index))
            tasks.create_task(self._disturb())
        await self._story.settle()

    async def _produce(self, client: TransactionalClient) -> None:
        await self._story.begin(client)
        while not self._world.is_ending:
            await asyncio.sleep(self._chance.expovariate(TRANSACTIONS_A_SECOND))
            if self._chance.random() < BEGINS_AGAIN:
                await self._story.begin(client, is_new=self._chance.random() < 0.5)
            planned = self._plan()
            await self._story.transact(client, planned)
            self._world.note(f"{client.name} {client.claim}: {len(planned.batches)} batches, {planned.is_commit}")

    def _plan(self) -> PlannedTransaction:
        return PlannedTransaction(
            [self._batch() for _ in range(self._chance.choice((0, 1, 1, 2, 4)))],
            self._batch(),
            is_commit=self._chance.random() < COMMITTED,
            has_offsets=self._chance.random() < 0.5,
            think_s=self._chance.choice(THINKS_S),
            is_left_open=self._chance.random() < LEFT_OPEN,
            writes_dropped=self._chance.random() < 0.4,
            dies=self._chance.random() < DIES,
        )

    def _batch(self) -> PlannedBatch:
        keys = [self._chance.randrange(KEYS) for _ in range(self._chance.choice((1, 1, 3)))]
        padding = self._chance.choice(PADDINGS)
        return PlannedBatch(
            self._chance.randrange(PARTITIONS), keys, padding, is_sent_twice=self._chance.random() < SENT_TWICE
        )

    async def _read(self, index: int) -> None:
        while not self._world.is_ending:
            await asyncio.sleep(self._chance.expovariate(READS_A_SECOND))
            await self._story.read(index, from_start=self._chance.random() < 0.2)
            self._story.look_at_offsets()

    async def _disturb(self) -> None:
        story = self._story
        while not self._world.is_ending:
            await asyncio.sleep(self._chance.expovariate(DISTURBANCES_A_SECOND))
            index, kind = self._chance.randrange(PARTITIONS), self._chance.random()
            client = self._chance.choice(self._clients)
            if kind < 0.3 and self._world.has_cells:
                await story.move(index, self._chance.randrange(2))
            elif kind < 0.4:
                await story.restart_tablet(index)
            elif kind < 0.6:
                await story.flush(index)
            elif kind < 0.7:
                await story.clean(index)
            elif kind < 0.75:
                await story.abort(client)
            elif kind < 0.92:
                await story.drop()
            elif client.earlier:
                await story.trespass(client, self._chance.choice(client.earlier), self._batch())
