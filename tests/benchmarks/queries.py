"""SQL: rows a second, and what a scan takes from producers and from the loop: python -m tests.benchmarks.queries

The worker has a processor of its own, broker and producers have the other, as far as the machine has two: what is left
of their rate is then what handing over rows costs. The loop's lag is of wall time, on a processor that it shares.
"""

import argparse
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Producer

from pqbroker.testing import Broker, broker
from tests.benchmarks.producing import fill
from tests.benchmarks.systems import System, scraped_lag_ms
from tests.benchmarks.topics import new_topic

SCHEMA = [{"name": "id", "type": "int64"}, {"name": "name", "type": "utf8"}, {"name": "price", "type": "double"}]
SUM = "SELECT sum(id), count(name), max(price) FROM scanned"
TIMEOUT_S = 120
_COPY = "data = bytearray(64 << 20)\nwhile True: bytes(data)"
_BROKERS_CORE, _WORKERS_CORE = {0}, {1}


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    rows: int
    bulk_bytes: int = 1_000_000_000
    produced_bytes: int = 300_000_000
    rounds: int = 5


@dataclass(frozen=True, slots=True)
class Found:
    """Rows a second of the first and of the next scan; produce's rate beside a scan, as a share of that without, and
    beside a process that copies memory on the worker's processor and has nothing to do with the broker."""

    first: float
    next: float
    share: float
    beside_copying: float
    lag_ms: float

    def __str__(self) -> str:
        return (
            f"rows a second: {self.first:,.0f} the first time, {self.next:,.0f} then; beside a scan produce keeps "
            f"{self.share:.0%} of its rate, beside another process {self.beside_copying:.0%}; the loop's worst lag "
            f"{self.lag_ms:.0f} ms"
        )


def measure(directory: Path, size: Size) -> Found:
    """Fill, scan twice, then produce with and without scans, in turn."""
    settings = {"pqbroker.sql.time.ms.max": str(TIMEOUT_S * 1000)}
    with broker(directory / "data", settings) as running:
        _write(running, size.rows)
        query(running, "SELECT 1")
        first, then = (size.rows / _timed(running, SUM) for _ in range(2))
        system = System("ours", running.kafka, running.pid, {}, lambda: None)
        with new_topic(system, "bulk", 1) as bulk, new_topic(system, "produced", 1) as produced:
            fill(bulk, size.bulk_bytes)
            scan = f'SELECT count(value) FROM "{bulk.topic}" WHERE timestamp_ms > 0'  # with it nothing is kept
            shares, controls = [], []
            with _pinned(running):
                for _ in range(size.rounds):
                    alone = _seconds(lambda: fill(produced, size.produced_bytes))
                    with _scanning(running, scan):
                        shares.append(alone / _seconds(lambda: fill(produced, size.produced_bytes)))
                    with _copying():
                        controls.append(alone / _seconds(lambda: fill(produced, size.produced_bytes)))
        lag_ms = scraped_lag_ms(running.http)
    return Found(first, then, statistics.median(shares), statistics.median(controls), lag_ms or 0.0)


def query(running: Broker, text: str) -> bytes:
    """The answer to one query."""
    return post(running, "/v1/sql", {"query": text})


def _write(running: Broker, rows: int) -> None:
    post(running, "/v1/tables", {"path": "//scanned", "schema": SCHEMA})
    producer = Producer({"bootstrap.servers": running.kafka, "log_level": 0, "linger.ms": 20, "batch.size": 900_000})
    for number in range(rows):
        row = {"id": number, "name": f"name-{number % 1000}", "price": number / 7}
        while True:
            try:
                producer.produce("scanned", json.dumps(row).encode())
                break
            except BufferError:
                producer.poll(0.01)
    assert producer.flush(TIMEOUT_S) == 0


def _timed(running: Broker, text: str) -> float:
    return _seconds(lambda: query(running, text))


def _seconds(act: Any) -> float:
    started = time.perf_counter()
    act()
    return time.perf_counter() - started


@contextmanager
def _scanning(running: Broker, text: str) -> Iterator[None]:
    """The query, over and over."""
    ended, begun = threading.Event(), threading.Event()

    def scan() -> None:
        while not ended.is_set():
            begun.set()
            query(running, text)

    thread = threading.Thread(target=scan)
    thread.start()
    begun.wait()
    yield
    ended.set()
    thread.join()


@contextmanager
def _copying() -> Iterator[None]:
    """A process on the worker's processor that takes as much of memory and cache as one can."""
    with subprocess.Popen([sys.executable, "-c", _COPY]) as process:
        with suppress(AttributeError, OSError):
            os.sched_setaffinity(process.pid, _WORKERS_CORE)
        try:
            yield
        finally:
            process.kill()


@contextmanager
def _pinned(running: Broker) -> Iterator[None]:
    """Give the worker a processor, and the broker and this process the other, where there are two."""
    if (os.cpu_count() or 1) < 2 or not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    workers = [child.pid for child in psutil.Process(running.pid).children(recursive=True)]
    for pid in (os.getpid(), running.pid):
        _pin(pid, _BROKERS_CORE)
    for pid in workers:
        _pin(pid, _WORKERS_CORE)
    try:
        yield
    finally:
        _pin(os.getpid(), before)


def _pin(pid: int, cores: set[int]) -> None:
    for thread in psutil.Process(pid).threads():
        with suppress(ProcessLookupError):
            os.sched_setaffinity(thread.id, cores)


def post(running: Broker, path: str, body: Any) -> bytes:
    """The answer to a request that is not refused."""
    connection = http.client.HTTPConnection(running.http, timeout=TIMEOUT_S)
    try:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        data = answer.read()
    finally:
        connection.close()
    assert answer.status < 300, data
    return data


def main() -> None:
    """Print what was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.queries", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the scan (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="of producing (%(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        print(measure(Path(directory), Size(rows=options.rows, rounds=options.rounds)))


if __name__ == "__main__":
    main()
