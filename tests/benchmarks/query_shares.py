"""SQL beside DuckDB alone, in rows per CPU-second of the same run: python -m tests.benchmarks.query_shares

First scans: no column is kept (`pqbroker.sql.columns.bytes.max` is 0), so each scan reads and parses every record. The
CPU time is that of broker and worker together, the least of several rounds, which take turns with those of DuckDB: it
sums the same fields of the same documents, an Arrow column in this process. Answers in JSON are beside columns that
this process zips and encodes row by row.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import psutil
import pyarrow
from confluent_kafka import Producer

from pqbroker.testing import Broker, broker
from tests.benchmarks.queries import SCHEMA, TIMEOUT_S, post, query

SCAN = "SELECT sum(id), count(name), max(price) FROM {}"
ALONE = (
    "SELECT sum((value->>'$.id')::BIGINT), count(value->>'$.name'), max((value->>'$.price')::DOUBLE) FROM documents"
)
ANSWER = "SELECT id, name, price FROM plain"
FALLING = b'{"id":1,"id":%d,"name":"twice","price":1}'
"""A document with one field twice, which DuckDB and the rules read differently."""
EVERY = 100
"""Documents of which one is read row by row."""


@dataclass(frozen=True, slots=True)
class Shares:
    """Our rate as a share of the other one's: a first scan, one with a hundredth of documents that are read one by one,
    an answer in JSON."""

    scan: float
    scan_falling_back: float
    answer: float
    rates: tuple[float, ...]
    """Rows per CPU-second, in the same order: ours, then DuckDB's and that of columns zipped and encoded."""

    def __str__(self) -> str:
        rates = ", ".join(f"{rate:,.0f}" for rate in self.rates)
        return (
            f"a first scan has {self.scan:.2f} of DuckDB's rate, {self.scan_falling_back:.2f} where 1 % fall back; "
            f"JSON answers {self.answer:.2f} of zipped columns (rows per CPU-second: {rates})"
        )


def measure(directory: Path, rows: int, rounds: int) -> Shares:
    """Fill two tables, and take turns."""
    settings = {"pqbroker.sql.time.ms.max": str(TIMEOUT_S * 1000), "pqbroker.sql.columns.bytes.max": "0"}
    plain = [json.dumps({"id": n, "name": f"name-{n % 1000}", "price": n / 7}).encode() for n in range(rows)]
    falling = [each if n % EVERY else FALLING % n for n, each in enumerate(plain)]
    with broker(directory / "data", settings) as running:
        for name, documents in {"plain": plain, "falling": falling}.items():
            post(running, "/v1/tables", {"path": f"//{name}", "schema": SCHEMA})
            _produce(running, name, documents)
        query(running, SCAN.format("plain"))
        ours = _cpu_of(running)
        column = pyarrow.array(plain, pyarrow.binary()).cast(pyarrow.string())
        acts: list[Callable[[], float]] = [
            lambda: ours(SCAN.format("plain")), lambda: ours(SCAN.format("falling")), lambda: ours(ANSWER),
            lambda: _alone(column), lambda: _zipped(rows),
        ]  # fmt: skip
        found = [[act() for act in acts] for _ in range(rounds)]
    rates = [rows / max(min(each), 1e-9) for each in zip(*found, strict=True)]
    return Shares(rates[0] / rates[3], rates[1] / rates[3], rates[2] / rates[4], tuple(rates))


def _produce(running: Broker, topic: str, documents: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": running.kafka, "log_level": 0, "linger.ms": 20, "batch.size": 900_000})
    for document in documents:
        while True:
            try:
                producer.produce(topic, document)
                break
            except BufferError:
                producer.poll(0.01)
    assert producer.flush(TIMEOUT_S) == 0


def _cpu_of(running: Broker) -> Callable[[str], float]:
    """Return CPU seconds that a query takes of the broker and its workers."""
    parent = psutil.Process(running.pid)
    processes = [parent, *parent.children(recursive=True)]

    def take(text: str) -> float:
        before = sum(sum(each.cpu_times()[:2]) for each in processes)
        query(running, text)
        return sum(sum(each.cpu_times()[:2]) for each in processes) - before

    return take


def _alone(column: Any) -> float:
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.register("documents", pyarrow.table({"value": column}))
        began = time.process_time()
        connection.sql(ALONE).fetchall()
        return time.process_time() - began


def _zipped(rows: int) -> float:
    columns = {
        "id": pyarrow.array(range(rows)), "name": pyarrow.array([f"name-{n % 1000}" for n in range(rows)]),
        "price": pyarrow.array([n / 7 for n in range(rows)]),
    }  # fmt: skip
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    began = time.process_time()
    rows_of = zip(*(column.to_pylist() for column in columns.values()), strict=True)
    "\n".join(encode(dict(zip(columns, row, strict=True))) for row in rows_of).encode()
    return time.process_time() - began


def main() -> None:
    """Print what was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.query_shares", description=__doc__)
    parser.add_argument("--rows", type=int, default=300_000, help="of each table (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="of each measure (%(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        print(measure(Path(directory), options.rows, options.rounds))


if __name__ == "__main__":
    main()
