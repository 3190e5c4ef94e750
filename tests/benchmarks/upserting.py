"""Rows of Arrow written into a sorted table: python -m tests.benchmarks.upserting [--seconds 600] [--beside]

Batches of rows over all keys are written one behind the other, over HTTP; each ten seconds rows a second, overlap and
the broker's memory are shown. With `--beside` instead: a producer's rate alone and beside 5 000 updates a second, in
turn.
"""

import argparse
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy
import pyarrow

from pqbroker.client import Client, ClientError
from pqbroker.fixture.http_calls import HttpCalls
from pqbroker.testing import Broker, broker
from tests.benchmarks.feeding import PARTITIONS, produced

KEYS = 5_000_000
BATCH = 20_000
SHOWN_S = 10.0
TURN_S = 10.0
TURNS = 4
UPDATES_PER_S = 5_000
UPDATED = 250
SCHEMA: list[dict[str, Any]] = [
    {"name": "id", "type": "int64", "sort_order": "ascending", "required": True}, {"name": "amount", "type": "int64"},
    {"name": "price", "type": "double"}, {"name": "note", "type": "utf8"},
]  # fmt: skip


def batch_of(dice: numpy.random.Generator, count: int, version: int) -> pyarrow.RecordBatch:
    """Rows of about 100 bytes over all keys."""
    ids = numpy.unique(dice.integers(0, KEYS, count))
    notes = [f"{number * 7919 % 1000003:060d}" for number in ids]
    columns = [pyarrow.array(ids), pyarrow.array(ids * 0 + version), pyarrow.array(ids / 7), pyarrow.array(notes)]
    return pyarrow.RecordBatch.from_arrays(columns, ["id", "amount", "price", "note"])


def resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096 / 2**20


def insert(client: Client, batch: pyarrow.RecordBatch) -> int:
    """Insert rows, and try again where the table has no memory for them: how often."""
    refused = 0
    while True:
        try:
            client.table("load").insert(batch)
        except ClientError as refusal:
            if refusal.code != "OUT_OF_TABLET_MEMORY":
                raise
            refused += 1
            time.sleep(0.05)
        else:
            return refused


def upsert(node: Broker, calls: HttpCalls, client: Client, seconds: float) -> None:
    """Write for that many seconds, and show rates, overlap and memory."""
    dice, end_s = numpy.random.default_rng(1), time.perf_counter() + seconds
    shown_s, rows, total, waits, slowest_s = time.perf_counter(), 0, 0, 0, 0.0
    ready = [batch_of(dice, BATCH, 1) for _ in range(20)]
    while (now_s := time.perf_counter()) < end_s:
        batch = ready[total // BATCH % len(ready)]
        waits += insert(client, batch)
        slowest_s = max(slowest_s, time.perf_counter() - now_s)
        rows, total = rows + batch.num_rows, total + batch.num_rows
        if now_s - shown_s >= SHOWN_S:
            inside = calls.ask("GET", "/v1/tables/load/inside")
            overlap = max(each["overlap"] for each in inside["tablets"])
            print(
                f"{rows / (now_s - shown_s):.0f} rows/s, slowest {slowest_s * 1000:.0f} ms, overlap {overlap},"
                f" {resident_mib(node.pid):.0f} MiB", flush=True,
            )  # fmt: skip
            shown_s, rows, slowest_s = now_s, 0, 0.0
    print(f"in all: {total / seconds:.0f} rows/s; {waits} refusals until memory was free again")


def update(client: Client, stopping: threading.Event) -> None:
    """Update rows over all keys at the rate."""
    dice, due_s, version = numpy.random.default_rng(2), time.perf_counter(), 1
    ready = [batch_of(dice, UPDATED, version) for _ in range(50)]
    while not stopping.is_set():
        version += 1
        insert(client, ready[version % len(ready)])
        due_s = max(due_s + UPDATED / UPDATES_PER_S, time.perf_counter() - 1)
        time.sleep(max(due_s - time.perf_counter(), 0))


def beside(node: Broker, client: Client) -> None:
    """Show a producer's rate alone and beside updates, in turn."""
    for _ in range(TURNS):
        alone = produced(node, "other", TURN_S, threading.Event())
        stopping = threading.Event()
        updating = threading.Thread(target=update, args=(client, stopping))
        updating.start()
        together = produced(node, "other", TURN_S, threading.Event())
        stopping.set()
        updating.join()
        print(f"produce alone {alone:.0f} MB/s, beside {together:.0f} MB/s: {together / alone:.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--beside", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, broker(Path(directory) / "data") as node:
        calls, client = HttpCalls(lambda: node.http), Client(node.http)
        calls.ask("POST", "/v1/tables", {"path": "//load", "schema": SCHEMA})
        if not args.beside:
            upsert(node, calls, client, args.seconds)
            return
        config = {"retention.bytes": 1 << 28}
        calls.ask("POST", "/v1/topics", {"name": "other", "partitions": PARTITIONS, "config": config})
        dice = numpy.random.default_rng(1)
        for _ in range(100):
            insert(client, batch_of(dice, BATCH, 1))
        beside(node, client)


if __name__ == "__main__":
    main()
