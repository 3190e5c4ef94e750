"""A reader that waits for what comes, as a Fetch does: parked at several partitions, hurried now and then."""

import asyncio
from functools import partial

from pqbroker.broker.kafka.apis.fetch_sessions import SessionPartition
from pqbroker.broker.kafka.apis.parked_fetch import FetchWait, ParkedFetch
from pqbroker.pq.reading.query import READ_COMMITTED
from pqbroker.pq.serving.partition_server import PartitionServer
from tests.simulation.ledger import expect
from tests.simulation.world import World

PARTITIONS_MAX = 3
WAITS_MS = (50, 500, 3_000)
HURRIED = 0.3
LATE_S = 0.01


class SimulatedFollower:
    """Parks, is answered in time whatever happens to the node, and parks again."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = world.chance("follower")

    async def run(self) -> None:
        while not self._world.is_ending:
            await asyncio.sleep(self._chance.expovariate(2))
            servers = self._servers()
            if servers:
                await self._park(servers)

    def _servers(self) -> list[PartitionServer]:
        if not self._world.node.is_up:
            return []
        groups = self._world.node.node.cell.current.topics
        found = [group for name in sorted(groups.names()) if (group := groups.get(name)) is not None]
        servers = [server for group in found for server in group.partitions if not server.is_unmounted]
        return self._chance.sample(servers, min(len(servers), PARTITIONS_MAX))

    def _wanted(self, servers: list[PartitionServer]) -> list[SessionPartition]:
        """What comes behind the end of each."""
        found = []
        for server in servers:
            wanted = SessionPartition("", bytes(16), server.index)
            wanted.partition, wanted.offset, wanted.bytes_max = server, server.end_offset, 1
            found.append(wanted)
        return found

    async def _park(self, servers: list[PartitionServer]) -> None:
        loop = asyncio.get_running_loop()
        wait_ms = self._chance.choice(WAITS_MS)
        deadline = loop.time() + wait_ms / 1000
        wanted = ParkedFetch(self._wanted(servers), READ_COMMITTED, 1, wait_ms)
        parked = FetchWait(loop, loop.call_soon, wanted, lambda: None)
        answered: asyncio.Future[None] = loop.create_future()
        parked.answer.when_settled(partial(_tell, answered))
        finish = parked.answer.hurry
        assert finish is not None
        self._world.parked += 1
        is_hurried = self._chance.random() < HURRIED
        hurry = loop.call_at(deadline - wait_ms / 2000 if is_hurried else deadline + LATE_S, finish)
        try:
            await answered
        finally:
            finish()  # as a connection that closes does
            hurry.cancel()
            self._world.parked -= 1
        expect(loop.time() <= deadline + LATE_S, f"a Fetch was answered {loop.time() - deadline:.3f} s too late")


def _tell(answered: "asyncio.Future[None]") -> None:
    if not answered.done():
        answered.set_result(None)
