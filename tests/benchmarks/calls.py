"""What requests over HTTP cost, counted: python -m tests.benchmarks.calls [--against COMMIT]

Calls of the broker's own functions on the thread of its loop from a request to its answer, and how many of its files
take part: what a reader goes through who follows the request. Each figure is the least of several requests, so that the
broker's periodic work is in none.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import aiohttp

import pqbroker
from pqbroker.broker.node.server import Server
from pqbroker.conf.addresses import Address
from pqbroker.conf.broker import BrokerSettings
from pqbroker.storage.disk.rocks import RocksEngine
from tests.benchmarks.earlier import earlier_tree, importing_from

REQUESTS = 7
CELL = 1
_HOME = str(Path(pqbroker.__file__).parent)
_TABLE = {"path": "//rows", "schema": [{"name": "id", "type": "int64"}]}
Ask = Callable[[str, str, Any], Awaitable[None]]
Costs = Mapping[str, tuple[int, int]]
"""By request: calls and files."""


@dataclass(slots=True)
class Counter:
    """Calls of the broker's functions on this thread, and the files that these stand in."""

    calls: int = 0
    files: set[str] = field(default_factory=set)

    def count(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(_HOME):
            self.calls += 1
            self.files.add(frame.f_code.co_filename)


@contextmanager
def counted() -> Iterator[Counter]:
    counter = Counter()
    sys.setprofile(counter.count)
    try:
        yield counter
    finally:
        sys.setprofile(None)


async def measure(directory: Path, requests: int = REQUESTS) -> Costs:
    """Calls and files of each request."""
    server = Server(BrokerSettings(), RocksEngine(directory), Address("127.0.0.1", 0), Address("127.0.0.1", 0))
    await server.start()
    try:
        async with aiohttp.ClientSession(f"http://{server.http_address}", raise_for_status=True) as session:

            async def ask(method: str, path: str, body: Any) -> None:
                async with session.request(method, path, json=body) as answer:
                    await answer.read()

            return await _measured(ask, requests)
    finally:
        await server.stop()


async def _measured(ask: Ask, requests: int) -> Costs:
    await ask("POST", "/v1/cells", {"bundle": "default"})
    await ask("POST", "/v1/tables", _TABLE)
    cells, names = count(CELL), count()

    async def insert() -> None:
        await ask("POST", "/v1/tables/rows/rows", {"rows": [{"id": 1}]})

    async def query() -> None:
        await ask("POST", "/v1/sql", {"query": "SELECT count(*) FROM rows"})

    async def move() -> None:
        await ask("POST", "/v1/tables/rows/unmount", {})
        await ask("POST", "/v1/tables/rows/mount", {"cell_id": str(next(cells) % 2)})

    async def create() -> None:
        await ask("POST", "/v1/topics", {"name": f"topic-{next(names)}"})

    asked = {"insert a row": insert, "count rows in SQL": query, "move a tablet": move, "create a topic": create}
    return {name: await _least(request, requests) for name, request in asked.items()}


async def _least(request: Callable[[], Awaitable[None]], requests: int) -> tuple[int, int]:
    await request()
    found = []
    for _ in range(requests):
        with counted() as counter:
            await request()
        found.append((counter.calls, len(counter.files)))
    return min(found)


def earlier(commit: str) -> Costs:
    """What an earlier commit takes. UnknownCommit."""
    with earlier_tree(commit) as tree, importing_from(tree):
        command = [sys.executable, "-m", "tests.benchmarks.calls", "--json"]
        found = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True)
    costs: Costs = json.loads(found.stdout)
    return costs


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.calls", description=__doc__)
    parser.add_argument("--against", metavar="COMMIT", help="beside an earlier commit")
    parser.add_argument("--json", action="store_true", help="figures for a program")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pqbroker-calls-") as scratch:
        costs = asyncio.run(measure(Path(scratch, "data")))
    if options.json:
        print(json.dumps(costs))
        return
    before = earlier(options.against) if options.against else {}
    for name, (calls, files) in costs.items():
        was = f" (was {before[name][0]} and {before[name][1]})" if name in before else ""
        print(f"{name}: {calls} calls in {files} files{was}")


if __name__ == "__main__":
    main()
