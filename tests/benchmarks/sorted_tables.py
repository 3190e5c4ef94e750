"""A sorted table under load: python -m tests.benchmarks.sorted_tables [--rows 10000000] [--seconds 1200] [--rate 5000]

Rows of four columns, about 100 bytes, are written once over all keys, then updated at a rate over all keys, with
lookups beside, in one broker on a disk of this machine. Services are called as doors do, without HTTP: its cost is a
door's. Shown: rows a second, percentiles of lookups, the longest turn of the loop in CPU-ms, overlap, amplification,
memory, and what ran in the background.
"""

import argparse
import asyncio
import random
import resource
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from pqbroker.broker.ground.access import DirectCaller
from pqbroker.broker.node.python_gc import CycleCollector
from pqbroker.broker.node.python_gc import Load as Collected
from pqbroker.broker.node.server import Server
from pqbroker.broker.services.sorted_tables import making, rows
from pqbroker.broker.services.tables.inserting import GivenRows
from pqbroker.conf.addresses import Address
from pqbroker.conf.broker import BrokerSettings
from pqbroker.storage.disk.rocks import RocksEngine
from pqbroker.tables.refusals import TableError
from pqbroker.tables.serving.table import SortedTable
from pqbroker.tables.serving.tasks import amplification_of

NAME = "load"
SCHEMA = [
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "amount", "type": "int64"},
    {"name": "price", "type": "double"},
    {"name": "note", "type": "utf8"},
]
BATCH = 1000
UPDATED = 50
LOOKUPS_A_SECOND = 500


class TurnMeter:
    """CPU seconds of the loop's turns."""

    def __init__(self) -> None:
        loop: Any = asyncio.get_running_loop()
        self._select = loop._selector.select
        self._begun_s = time.thread_time()
        self.longest_s = 0.0
        loop._selector.select = self._measured

    def _measured(self, timeout: float | None = None) -> Any:
        self.longest_s = max(self.longest_s, time.thread_time() - self._begun_s)
        found = self._select(timeout)
        self._begun_s = time.thread_time()
        return found


def row(number: int, version: int) -> dict[str, Any]:
    return {"id": number, "amount": version, "price": number / 7, "note": f"{number * 7919 % 1000003:060d}"}


class Load:
    """One run."""

    def __init__(self, caller: DirectCaller[Any], count: int, rate: int) -> None:
        self._caller = caller
        self._count = count
        self._rate = rate
        self.refused: Counter[str] = Counter()
        self.updated = 0
        self.lookup_s: list[float] = []
        self.overlap = 0

    @property
    def table(self) -> SortedTable:
        found: SortedTable = self._caller.node.cell.current.sorted_tables.tables[NAME]
        return found

    async def fill(self) -> float:
        """Write every row once: rows a second."""
        begun_s = time.perf_counter()
        for first in range(0, self._count, BATCH):
            await self._write([row(number, 0) for number in range(first, min(first + BATCH, self._count))])
        return self._count / (time.perf_counter() - begun_s)

    async def update(self, seconds: float) -> None:
        """Update rows over all keys at the rate, and look rows up beside."""
        end_s = time.perf_counter() + seconds
        await asyncio.gather(self._update(end_s), self._look_up(end_s), self._watch(end_s))

    async def _update(self, end_s: float) -> None:
        dice, due_s, version = random.Random(1), time.perf_counter(), 0
        while (now_s := time.perf_counter()) < end_s:
            version += 1
            keys = {dice.randrange(self._count) for _ in range(UPDATED)}
            await self._write([row(number, version) for number in keys])
            self.updated += len(keys)
            due_s = max(due_s + UPDATED / self._rate, now_s - 1)
            await asyncio.sleep(max(due_s - time.perf_counter(), 0))

    async def _look_up(self, end_s: float) -> None:
        dice, due_s = random.Random(2), time.perf_counter()
        while (begun_s := time.perf_counter()) < end_s:
            key = {"id": dice.randrange(self._count)}
            (found,) = await rows.look_up(self._caller, NAME, [key], None, None)
            self.lookup_s.append(time.perf_counter() - begun_s)
            assert found is not None, key
            due_s = max(due_s + 1 / LOOKUPS_A_SECOND, begun_s)
            await asyncio.sleep(max(due_s - time.perf_counter(), 0))

    async def _watch(self, end_s: float) -> None:
        while time.perf_counter() < end_s:
            structures = [tablet.structure for tablet in self.table.tablets]
            self.overlap = max(self.overlap, *(structure.overlap for structure in structures))
            await asyncio.sleep(0.2)

    async def _write(self, items: list[dict[str, Any]]) -> None:
        while True:
            try:
                await rows.insert_sorted(self._caller, NAME, GivenRows(items), is_update=False)
            except TableError as refusal:
                self.refused[refusal.code] += 1
                await asyncio.sleep(0.05)
            else:
                return


async def run(directory: Path, args: argparse.Namespace) -> None:
    engine, address = RocksEngine(directory), Address("127.0.0.1", 0)
    server = Server(BrokerSettings(), engine, address, None, lambda: time.time_ns() // 1_000_000)
    await server.start()
    cycles, node = CycleCollector(), server.node
    stores = node.cell.current.sorted_tables.share
    is_loaded = time.monotonic_ns  # bytes of requests, which are calls here
    collected = Collected(is_loaded, lambda: 0, lambda: stores.stores_lists, lambda: stores.stores_blocks)
    cycles.begin(collected.served())
    collecting = asyncio.create_task(cycles.collect_at_quiet_moments(collected, node.metrics.observe_deep_pass))
    caller: DirectCaller[Any] = DirectCaller(node)
    attributes = dict(pair.split("=") for pair in args.attribute)
    new = making.NewSortedTable(f"//{NAME}", SCHEMA, {name: int(value) for name, value in attributes.items()})
    await making.create_sorted(caller, new)
    load, meter = Load(caller, args.rows, args.rate), TurnMeter()
    rate = await load.fill()
    print(f"filled: {rate:.0f} rows/s; refused {dict(load.refused)}; longest turn {meter.longest_s * 1000:.1f} CPU-ms")
    meter.longest_s = 0.0
    load.refused.clear()
    await load.update(args.seconds)
    show(load, meter, caller, args.seconds)
    collecting.cancel()
    await server.stop()


def show(load: Load, meter: TurnMeter, caller: DirectCaller[Any], seconds: float) -> None:
    times = sorted(load.lookup_s)
    p50, p99 = (times[int(len(times) * part)] * 1000 for part in (0.5, 0.99))
    background = caller.node.cell.current.sorted_tables.background
    failed = [task.failure for task in background.history.ended if task.failure]
    totals = caller.node.cell.current.sorted_tables.share.counters.tasks
    done = {kind: (of_kind.done, of_kind.failed, of_kind.bytes_written) for kind, of_kind in totals.items()}
    print(f"updates: {load.updated / seconds:.0f} a second; refused {dict(load.refused)}")
    print(f"lookups: {len(times) / seconds:.0f} a second, p50 {p50:.2f} ms, p99 {p99:.2f} ms")
    print(f"longest turn {meter.longest_s * 1000:.1f} CPU-ms; overlap at most {load.overlap}")
    print(f"tasks by kind, done, failed, bytes written: {done}; amplification {amplification_of([totals])}")
    print(f"failures of the last hundred: {failed[:3]}")
    chunks = sum(len(tablet.structure.chunks) for tablet in load.table.tablets)
    partitions = sum(len(tablet.structure.partitions) for tablet in load.table.tablets)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{chunks} chunks in {partitions} partitions; {memory:.0f} MiB at most")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--seconds", type=float, default=1200)
    parser.add_argument("--rate", type=int, default=5000)
    parser.add_argument("--attribute", action="append", default=[], metavar="NAME=NUMBER")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(run(Path(directory), args))


if __name__ == "__main__":
    main()
