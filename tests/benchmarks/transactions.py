"""Transactions of two rows beside insertions of two rows: python -m tests.benchmarks.transactions [--count 2000]

Services are called as doors do, without HTTP, one call after the other, in one broker on a disk of this machine. The
ways take turns, so that what else the machine does meets all. Shown: CPU-us and latency of each, with ratios to an
insertion of two rows in one request of one cell.
"""

import argparse
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvloop

from pqbroker.broker.ground.access import DirectCaller
from pqbroker.broker.node.server import Server
from pqbroker.broker.services.sorted_tables import making, rows
from pqbroker.broker.services.tables.inserting import GivenRows
from pqbroker.broker.services.transactions import transactions
from pqbroker.broker.services.transactions.writes import TableWrite, WriteKind
from pqbroker.conf.addresses import Address
from pqbroker.conf.broker import BrokerSettings
from pqbroker.storage.disk.rocks import RocksEngine

SCHEMA = [{"name": "id", "type": "int64", "sort_order": "ascending"}, {"name": "number", "type": "int64"}]
TURN = 50
"""Calls of one way before the next one has its turn."""


async def insert(caller: DirectCaller[Any], number: int) -> None:
    """Insert two rows of two tablets of one cell."""
    items = [{"id": number, "number": number}, {"id": -1 - number, "number": number}]
    await rows.insert_sorted(caller, "one", GivenRows(items), is_update=False)


def transact(tables: tuple[str, str]) -> Callable[[DirectCaller[Any], int], Awaitable[None]]:
    """Return what writes a row to each of two tables as a transaction."""

    async def write(caller: DirectCaller[Any], number: int) -> None:
        started = await transactions.start(caller, "benchmark")
        writes = [
            TableWrite(table, WriteKind.ROWS, GivenRows([{"id": key, "number": number}]))
            for table, key in zip(tables, (number, -1 - number), strict=True)
        ]
        await transactions.commit(caller, started.name, writes)

    return write


async def commit_alone(caller: DirectCaller[Any], number: int) -> None:
    """Insert two rows of tablets of two cells."""
    items = [{"id": number, "number": number}, {"id": -1 - number, "number": number}]
    await rows.insert_sorted(caller, "apart", GivenRows(items), is_update=False)


WAYS: dict[str, Callable[[DirectCaller[Any], int], Awaitable[None]]] = {
    "insert of two rows, one cell": insert,
    "transaction of two rows, one cell": transact(("one", "other")),
    "transaction of two rows, two cells": transact(("one", "away")),
    "insert of two rows, two cells": commit_alone,
}


async def run(directory: Path, count: int) -> None:
    server = Server(
        BrokerSettings(), RocksEngine(directory), Address("127.0.0.1", 0), None, lambda: time.time_ns() // 1_000_000
    )
    await server.start()
    caller: DirectCaller[Any] = DirectCaller(server.node)
    await make(caller)
    latencies: dict[str, list[float]] = {name: [] for name in WAYS}
    cpu: dict[str, float] = dict.fromkeys(WAYS, 0.0)
    number = 0
    for _ in range(count // TURN):
        for name, way in WAYS.items():
            cpu_s = time.process_time()
            for _ in range(TURN):
                number += 1
                begun_s = time.perf_counter()
                await way(caller, number)
                latencies[name].append(time.perf_counter() - begun_s)
            cpu[name] += time.process_time() - cpu_s
    show(latencies, cpu)
    await server.stop()


async def make(caller: DirectCaller[Any]) -> None:
    """Make four tables: two in the system cell, one in another cell, one in both."""
    others = caller.node.cell.current.others
    await others.create("default")
    pivots = [[], [0]]
    for name in ("one", "other", "away", "apart"):
        await making.create_sorted(caller, making.NewSortedTable(f"//{name}", SCHEMA, pivot_keys=pivots))
    for name, cells in (("one", (0, 0)), ("other", (0, 0)), ("away", (1, 1)), ("apart", (0, 1))):
        opened = caller.node.cell.current
        table = opened.sorted_tables.tables[name]
        for tablet_id, cell in zip(table.record.tablets, cells, strict=True):
            await opened.others.move_tablet(opened.sorted_tables.owner_of(table), tablet_id, cell)


def show(latencies: dict[str, list[float]], cpu: dict[str, float]) -> None:
    first = next(iter(WAYS))
    for name, found in latencies.items():
        times, base = sorted(found), sorted(latencies[first])
        p50, p99 = (times[int(len(times) * part)] * 1000 for part in (0.5, 0.99))
        base50, base99 = (base[int(len(base) * part)] * 1000 for part in (0.5, 0.99))
        each = cpu[name] / len(found) * 1e6
        ratio = each / (cpu[first] / len(latencies[first]) * 1e6)
        print(
            f"{name}: {each:.0f} CPU-us ({ratio:.2f}), p50 {p50:.2f} ms ({p50 / base50:.2f}), "
            f"p99 {p99:.2f} ms ({p99 / base99:.2f})"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=2000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        uvloop.run(run(Path(directory), args.count))  # the loop of a broker


if __name__ == "__main__":
    main()
