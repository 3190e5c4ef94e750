"""Updates of a sorted table with a change feed and without: python -m tests.benchmarks.change_feeds [--rows 20000]

Services are called as doors do, without HTTP, some calls at once, in one broker on a disk of this machine. Every row
was written before, so that each change has a row before and one after. The ways take turns. Shown: rows a second, and
CPU-us of a row, by the number of rows in a request.
"""

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

from pqbroker.broker.ground.access import DirectCaller
from pqbroker.broker.node.server import Server
from pqbroker.broker.services.sorted_tables import making, rows
from pqbroker.broker.services.tables.inserting import GivenRows
from pqbroker.conf.addresses import Address
from pqbroker.conf.broker import BrokerSettings
from pqbroker.storage.disk.rocks import RocksEngine

SCHEMA = [{"name": "id", "type": "int64", "sort_order": "ascending"}, {"name": "note", "type": "utf8"}]
NOTE = "0123456789" * 8
AT_ONCE = 8
"""Requests on their way."""
BATCHES = (1, 10, 250)
"""Rows of a request."""
ROUNDS = 5
PIVOTS = [[], [AT_ONCE // 2 * 1_000_000]]


async def run(directory: Path, count: int) -> None:
    server = Server(
        BrokerSettings(), RocksEngine(directory), Address("127.0.0.1", 0), None, lambda: time.time_ns() // 1_000_000
    )
    await server.start()
    caller: DirectCaller[Any] = DirectCaller(server.node)
    tables = {"without a feed": "plain", "with a feed": "fed"}
    for table, attributes in (("plain", {}), ("fed", {"changes": "changes"})):
        await making.create_sorted(caller, making.NewSortedTable(f"//{table}", SCHEMA, attributes, pivot_keys=PIVOTS))
        await write(caller, table, 250, count // AT_ONCE)
    for batch in BATCHES:
        each = max(count * batch // max(BATCHES) // AT_ONCE // ROUNDS, batch)
        spent = {name: [0.0, 0.0] for name in tables}
        for _ in range(ROUNDS):
            for name, table in tables.items():
                begun_s, cpu_s = time.perf_counter(), time.process_time()
                await write(caller, table, batch, each)
                spent[name][0] += time.perf_counter() - begun_s
                spent[name][1] += time.process_time() - cpu_s
        for name, (wall_s, cpu_s) in spent.items():
            total = each * AT_ONCE * ROUNDS
            each_us = cpu_s / total * 1e6
            print(f"{batch} rows a request, {name}: {total / wall_s:,.0f} rows/s, {each_us:.0f} CPU-us a row")
    await server.stop()


async def write(caller: DirectCaller[Any], table: str, batch: int, count: int) -> None:
    """Have `AT_ONCE` clients write rows of keys of their own, `count` each, in requests of `batch`."""

    async def client(number: int) -> None:
        first = number * 1_000_000
        for begin in range(0, count, batch):
            items = [{"id": first + key, "note": NOTE} for key in range(begin, min(begin + batch, count))]
            await rows.insert_sorted(caller, table, GivenRows(items), is_update=False)

    await asyncio.gather(*map(client, range(AT_ONCE)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=20_000)
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(run(Path(directory), parser.parse_args().rows))


if __name__ == "__main__":
    main()
