"""`python -m tests.benchmarks.inserting [ROWS]`: rows a second that `pqbroker.client` inserts into a table, from Arrow
and from Python objects; a broker in a process of its own on a disk, acknowledged after the sync."""

import sys
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from pqbroker.client import Client, Column
from pqbroker.testing import broker

ROWS = 1_000_000
PYTHON_SHARE = 20
"""Python objects take longer: so many times fewer."""
_TYPES = {"id": "int64", "price": "double", "paid": "boolean", "at": "timestamp", "customer": "utf8", "note": "utf8"}


def rows(count: int) -> Any:
    """Six columns, about 70 bytes a row in Arrow and 110 as JSON."""
    times = pa.array(range(1_700_000_000_000_000, 1_700_000_000_000_000 + count), pa.timestamp("us", "UTC"))
    return pa.table(
        {
            "id": range(count), "price": [number / 4 for number in range(count)],
            "paid": [number % 3 == 0 for number in range(count)], "at": times,
            "customer": [f"customer {number % 1000}" for number in range(count)], "note": ["paid by card"] * count,
        }
    )  # fmt: skip


def main(count: int) -> None:
    table = rows(count)
    objects = table.slice(0, count // PYTHON_SHARE).to_pylist()
    with broker() as running, Client(running.http, timeout_s=120) as client:
        filled = client.table("bench.orders")
        filled.create([Column(name, kind) for name, kind in _TYPES.items()])
        filled.insert(table.slice(0, 1000))  # the worker starts
        _show("Arrow", count, lambda: filled.insert(table))
        _show("Python objects", len(objects), lambda: filled.insert(objects))


def _show(what: str, count: int, insert: Callable[[], Any]) -> None:
    started = time.perf_counter()
    inserted = insert()
    seconds = time.perf_counter() - started
    assert inserted.row_count == count
    requests = len(inserted.parts)
    print(f"{what:15} {count / seconds:9,.0f} rows/s  {count:,} rows in {requests} requests, {seconds:.2f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROWS)
