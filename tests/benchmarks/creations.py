"""Measures if a topic costs as much as the one before: python -m tests.benchmarks.creations [--sizes 1000,3000,10000]

Topics are made one by one over a connection of a Kafka client. Of the first hundred, and of the last hundred of each
size, each of one creation: processor time of the whole process (the median), bytes that the store wrote, and calls of
the broker's own functions on the thread of its loop. A snapshot of the scheme falls into some hundreds and not into
others, so bytes are also those of all creations so far. `--deletions` deletes all topics at the end, and measures the
same of the first and the last hundred.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

from pqbroker.broker.node.server import Server
from pqbroker.conf.addresses import Address
from pqbroker.conf.broker import BrokerSettings
from pqbroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pqbroker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from pqbroker.storage.disk.rocks import RocksEngine
from tests.benchmarks.calls import counted
from tests.benchmarks.report import text_table
from tests.broker.wire import Client

SIZES = (1_000, 3_000, 10_000)
HUNDRED = 100
COUNTED = 5
"""Requests whose calls are counted; the least of them counts."""
HEADER = ["what", "CPU µs", "bytes", "bytes so far", "calls"]


@dataclass(frozen=True, slots=True)
class ChangeCost:
    """Cost of one change: processor time, bytes written by those of the hundred, by all so far, and calls."""

    what: str
    cpu_us: float
    written: float
    written_so_far: float
    calls: int

    def row(self) -> list[str]:
        return [self.what, f"{self.cpu_us:.0f}", f"{self.written:.0f}", f"{self.written_so_far:.0f}", str(self.calls)]


class _Changes:
    """Changes of topics, one by one, and what they cost."""

    def __init__(self, server: Server, client: Client, ask: Iterator[Any]) -> None:
        self._server = server
        self._client = client
        self._ask = ask
        self.done = 0
        self._written = self._bytes()

    async def make(self, number: int) -> list[float]:
        """Return the seconds of processor time of each."""
        found = []
        for _ in range(number):
            began = time.process_time()
            await self._client.ask(next(self._ask))
            found.append(time.process_time() - began)
        self.done += number
        assert not self._client.codes
        return found

    async def measure(self, what: str) -> ChangeCost:
        """Make a hundred, and a few more whose calls are counted."""
        before = self._bytes()
        cpu_us = median(await self.make(HUNDRED)) * 1e6
        written, so_far = self._bytes() - before, self._bytes() - self._written
        done = self.done
        calls = [await self._counted() for _ in range(COUNTED)]
        return ChangeCost(what, cpu_us, written / HUNDRED, so_far / done, min(calls))

    async def _counted(self) -> int:
        with counted() as counter:
            await self.make(1)
        return counter.calls

    def _bytes(self) -> int:
        return self._server.node.cell.current.cells.system.cell.stats().bytes_written


async def measure_creations(
    directory: Path, sizes: Sequence[int], *, deletions: bool, say: Callable[[ChangeCost], None] = lambda _: None
) -> list[ChangeCost]:
    """Costs of the first hundred, of the last of each size, and of deletions."""
    settings = BrokerSettings(partitions_max=2 * max(sizes))
    server = Server(settings, RocksEngine(directory), Address("127.0.0.1", 0), None)
    await server.start()
    try:
        address = server.listeners[0].address
        client = await Client.connect(address.host, address.port)
        found: list[ChangeCost] = []

        async def take(changes: _Changes, what: str) -> None:
            found.append(await changes.measure(what))
            say(found[-1])

        made = _Changes(server, client, map(_creation, count()))
        await take(made, "creation 1")
        for size in sizes:
            await made.make(size - HUNDRED - made.done)
            await take(made, f"creation {size}")
        if deletions:
            total = made.done
            gone = _Changes(server, client, map(_deletion, count()))
            await take(gone, "deletion 1")
            await gone.make(total - gone.done - HUNDRED - COUNTED)
            await take(gone, f"deletion {total}")
        await client.close()
        return found
    finally:
        await server.stop()


def _name(number: int) -> str:
    return f"shop.orders_{number}"


def _creation(number: int) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[CreatableTopic(name=_name(number), num_partitions=1, replication_factor=1)])


def _deletion(number: int) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topics=[DeleteTopicState(name=_name(number))])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.creations", description=__doc__)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="topics after which a hundred is measured")
    parser.add_argument("--deletions", action="store_true", help="delete them all at the end")
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes.split(",")]
    with tempfile.TemporaryDirectory(prefix="pqbroker-creations-") as scratch:
        costs = measure_creations(Path(scratch, "data"), sizes, deletions=options.deletions)
        print(text_table(HEADER, [cost.row() for cost in asyncio.run(costs)]))


if __name__ == "__main__":
    main()
