"""Lookups over HTTP beside the cheapest route: python -m tests.benchmarks.looking_up [--rows 100000] [--requests 2000]

One broker, one connection, one request behind the other; shown are the CPU-microseconds of the broker's process for a
request, of several rounds in turn the least: of `GET /v1/features`, of lookups of one key and of a hundred, where rows
lie in memory and where they lie in a chunk whose blocks are kept.
"""

import argparse
import json
import random
import tempfile
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import NamedTuple

from pqbroker.fixture.http_calls import HttpCalls
from pqbroker.testing import Broker, broker
from tests.benchmarks.meter import cpu_seconds

SCHEMA = [
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "amount", "type": "int64"},
    {"name": "price", "type": "double"},
    {"name": "note", "type": "utf8"},
]
ROUNDS = 5
INSERTED = 1_000
KEYS = 100
TABLES = ("memory", "chunk")
ROUTE = "/v1/features"
"""The cheapest one of those that leave the connection open."""

Ask = Callable[[], None]


class Found(NamedTuple):
    """CPU-microseconds of the route, and of lookups in one table of one key and of `KEYS`."""

    table: str
    route_us: float
    one_us: float
    many_us: float

    @property
    def one_above_us(self) -> float:
        return self.one_us - self.route_us

    @property
    def each_us(self) -> float:
        return self.many_us / KEYS

    def __str__(self) -> str:
        return (
            f"{self.table}: {ROUTE} {self.route_us:.0f}, one key {self.one_us:.0f}, {self.one_above_us:.0f} above;"
            f" {KEYS} keys {self.many_us:.0f}, {self.each_us:.1f} each"
        )


def fill(calls: HttpCalls, name: str, rows: int) -> None:
    calls.ask("POST", "/v1/tables", {"path": f"//{name}", "schema": SCHEMA})
    for first in range(0, rows, INSERTED):
        some = [
            {"id": number, "amount": number, "price": number / 7, "note": f"{number:060d}"}
            for number in range(first, min(first + INSERTED, rows))
        ]
        calls.ask("POST", f"/v1/tables/{name}/rows", {"rows": some})


def measure(node: Broker, rows: int, requests: int) -> Iterator[Found]:
    """Measure lookups in each of the tables, which are made."""
    calls = HttpCalls(lambda: node.http)
    for name in TABLES:
        fill(calls, name, rows)
    calls.ask("POST", "/v1/tables/chunk/freeze", {})
    calls.ask("POST", "/v1/tables/chunk/unfreeze", {})
    connection, dice = HTTPConnection(node.http, timeout=60), random.Random(1)

    def looks(name: str, count: int) -> Ask:
        def look() -> None:
            body = json.dumps({"keys": [{"id": dice.randrange(rows)} for _ in range(count)]})
            connection.request("POST", f"/v1/tables/{name}/lookup", body, {"Content-Type": "application/json"})
            found = json.loads(connection.getresponse().read())["rows"]
            assert None not in found
            assert len(found) == count

        return look

    def route() -> None:
        connection.request("GET", ROUTE)
        connection.getresponse().read()

    for name in TABLES:
        asks = (route, looks(name, 1), looks(name, KEYS))
        counts = (requests, requests, max(requests // 10, 1))
        for ask, count in zip(asks, counts, strict=True):
            _round_us(node.pid, ask, count)  # blocks are kept from then on
        rounds = [
            [_round_us(node.pid, ask, count) for ask, count in zip(asks, counts, strict=True)] for _ in range(ROUNDS)
        ]
        yield Found(name, *map(min, zip(*rounds, strict=True)))
    connection.close()


def _round_us(pid: int, ask: Ask, count: int) -> float:
    begun_s = cpu_seconds(pid)
    for _ in range(count):
        ask()
    return (cpu_seconds(pid) - begun_s) / count * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--requests", type=int, default=2_000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, broker(Path(directory) / "data") as node:
        for found in measure(node, args.rows, args.requests):
            print(found, flush=True)


if __name__ == "__main__":
    main()
