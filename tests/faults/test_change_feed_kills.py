"""kill -9 of a broker, and of its workers, under writes of a table with a change feed: a consumer that has every record
of the feed once, in order, has the table."""

import asyncio
import json
import os
import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from pqbroker.cli.commands.doctor import examine_directory
from pqbroker.doctor.findings import Weight
from pqbroker.fixture.http_calls import BrokerRefusedError, HttpCalls
from pqbroker.testing import Broker, broker
from tests.faults.sorted_kills import SETTINGS, kill_workers, patiently

KILLS = int(os.environ.get("PQBROKER_TESTS_KILLS", "3"))
KEYS = 60
TABLETS = 3
UNDER_LOAD_MAX_S = 0.8
TABLE: dict[str, Any] = {
    "path": "//fed",
    "schema": [{"name": "id", "type": "int64", "sort_order": "ascending"}, {"name": "number", "type": "int64"}],
    "pivot_keys": [[], [KEYS // TABLETS], [2 * KEYS // TABLETS]],
    "attributes": {"changes": "feed", "max_dynamic_store_row_count": 200},
}
ROWS = "/v1/tables/fed/rows"


class Rebuilt:
    """The table as the feed tells it."""

    def __init__(self) -> None:
        self.rows: dict[int, Any] = {}
        self.offsets: defaultdict[int, int] = defaultdict(int)
        self.stamps: defaultdict[int, int] = defaultdict(int)
        self.transactions: defaultdict[str, set[int]] = defaultdict(set)

    def take(self, record: Any) -> None:
        key, change = json.loads(record.key)["id"], json.loads(record.value)
        assert record.offset == self.offsets[record.partition], "each record comes once, in order"
        assert record.partition == key * TABLETS // KEYS, "partition i is of tablet i"
        assert change["timestamp"] >= self.stamps[record.partition], "changes are in the order of their commits"
        assert change["before"] == self.rows.get(key), f"key {key} at offset {record.offset}"
        self.rows[key] = change["after"]
        self.offsets[record.partition] += 1
        self.stamps[record.partition] = change["timestamp"]
        if change["transaction"] is not None:
            self.transactions[change["transaction"]].add(record.partition)


@contextmanager
def consuming(node: Broker, rebuilt: Rebuilt) -> Iterator[None]:
    """Consume from where the one before was killed, until the block ends."""
    stopping = threading.Event()
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(lambda: asyncio.run(consume(node.kafka, rebuilt, stopping)))
        try:
            yield
        finally:
            stopping.set()
            running.result()


async def consume(address: str, rebuilt: Rebuilt, stopping: threading.Event | None) -> None:
    """Consume until that is set; None: to the end."""
    consumer = await _started(address)
    try:
        places = [TopicPartition("feed", index) for index in range(TABLETS)]
        consumer.assign(places)
        for place in places:
            consumer.seek(place, rebuilt.offsets[place.partition])
        ends = None if stopping is not None else await consumer.end_offsets(places)
        while not _is_over(rebuilt, ends, stopping):
            found = await consumer.getmany(timeout_ms=200)
            for record in (record for some in found.values() for record in some):
                rebuilt.take(record)
    finally:
        with suppress(KafkaError, OSError, asyncio.CancelledError):  # it cancels what still calls a dead broker
            await consumer.stop()


async def _started(address: str) -> AIOKafkaConsumer:
    """Return a consumer that a broker has answered, which may be dead at first."""
    while True:
        consumer = AIOKafkaConsumer(bootstrap_servers=address, request_timeout_ms=2_000, retry_backoff_ms=50)
        try:
            await consumer.start()
        except (KafkaError, OSError):
            await consumer.stop()
            await asyncio.sleep(0.05)
        else:
            return consumer


def _is_over(rebuilt: Rebuilt, ends: Any, stopping: threading.Event | None) -> bool:
    if stopping is not None:
        return stopping.is_set()
    return all(rebuilt.offsets[place.partition] >= end for place, end in ends.items())


def write(calls: HttpCalls, stopping: threading.Event, dice: random.Random) -> None:
    """Insert, update and delete rows, of several cells too, and commit transactions."""
    number = 0
    while not stopping.is_set():
        number += 1
        keys = dice.sample(range(KEYS), dice.randint(1, 8))
        rows = [{"id": key, "number": number} for key in keys]
        try:
            kind = dice.random()
            if kind < 0.2:
                calls.ask("DELETE", ROWS, {"keys": [{"id": key} for key in keys]})
            elif kind < 0.4:
                begun = calls.ask("POST", "/v1/transactions", {})["transaction"]
                calls.ask("POST", f"/v1/transactions/{begun}/commit", {"writes": [{"table": "fed", "rows": rows}]})
            else:
                calls.ask("POST", ROWS, {"rows": rows, "update": kind < 0.6})
        except (BrokerRefusedError, OSError, HTTPException):
            time.sleep(0.01)


@contextmanager
def load(node: Broker, seed: int) -> Iterator[None]:
    stopping = threading.Event()
    with ThreadPoolExecutor(3) as threads:
        calls = HttpCalls(lambda: node.http)
        writing = [
            threads.submit(write, calls, stopping, random.Random(f"{seed}:{number}")) for number in range(3)
        ]
        try:
            yield
        finally:
            stopping.set()
            for one in writing:
                one.result()


@pytest.mark.timeout(120 + 30 * KILLS)
def test_the_feed_tells_the_table_however_often_it_was_killed(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    dice, rebuilt = random.Random(seed), Rebuilt()
    with broker(tmp_path / "data", SETTINGS) as node:
        calls = HttpCalls(lambda: node.http)
        for _ in range(2):
            calls.ask("POST", "/v1/cells", {"bundle": "default"})
        calls.ask("POST", "/v1/tables", TABLE)
        tablets = calls.ask("GET", "/v1/tables/fed/tablets")["tablets"]
        assert len({tablet["cell_id"] for tablet in tablets}) > 1, "commits are of several cells"
        for number in range(KILLS):
            with load(node, seed + number):
                with consuming(node, rebuilt):
                    time.sleep(dice.uniform(0.2, UNDER_LOAD_MAX_S))
                    if number % 3 == 2:
                        kill_workers(node.pid)
                    else:
                        node.kill()
                if not node.running:
                    node.start()
        keys = [{"id": key} for key in range(KEYS)]
        rows = patiently(lambda: calls.ask("POST", "/v1/tables/fed/lookup", {"keys": keys}))["rows"]
        asyncio.run(consume(node.kafka, rebuilt, None))
        assert [rebuilt.rows.get(key) for key in range(KEYS)] == rows
        print(f"{sum(rebuilt.offsets.values())} changes")
        assert any(len(some) > 1 for some in rebuilt.transactions.values()), "commits over cells are in the feed"
        node.stop()
    findings = examine_directory(tmp_path / "data", {}).found
    assert [one for one in findings if (one.check, one.weight) != ("segment", Weight.HARMLESS)] == []
