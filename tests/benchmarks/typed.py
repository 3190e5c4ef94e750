"""What the check of rows takes from produce: python -m tests.benchmarks.typed [--rows N] [--note-bytes N]

One librdkafka producer writes the same JSON rows into a topic and into a table, in turn: every record of the table's is
checked against its schema (value.invalid=refuse).
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer

from pqbroker.client import Client, Column
from pqbroker.testing import Broker, broker

_TYPES = {"id": "int64", "note": "utf8", "price": "double", "on": "boolean"}
TIMEOUT_S = 120
ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Found:
    """Rows a second without and with the check."""

    raw: float
    typed: float

    def __str__(self) -> str:
        return f"rows a second: {self.raw:,.0f} raw, {self.typed:,.0f} checked, {self.typed / self.raw:.0%}"


def measure(directory: Path, rows: int, note_bytes: int, rounds: int = ROUNDS) -> Found:
    """Medians of `rounds`."""
    note = "n" * note_bytes
    values = [json.dumps({"id": n, "note": note, "price": n / 7, "on": n % 2 == 0}).encode() for n in range(rows)]
    with broker(directory / "data") as running, Client(running.http) as client:
        client.table("typed").create([Column(name, kind) for name, kind in _TYPES.items()])
        _seconds(running, "raw", values[:1])  # which creates it
        found: dict[str, list[float]] = {"raw": [], "typed": []}
        for _ in range(rounds):
            for topic, rates in found.items():
                rates.append(rows / _seconds(running, topic, values))
    return Found(*(statistics.median(rates) for rates in found.values()))


def _seconds(running: Broker, topic: str, values: Sequence[bytes]) -> float:
    settings = {"bootstrap.servers": running.kafka, "log_level": 0, "linger.ms": 20, "batch.size": 900_000}
    producer = Producer({**settings, "queue.buffering.max.messages": len(values) + 1})
    started = time.perf_counter()
    for number, value in enumerate(values):
        producer.produce(topic, value)
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--note-bytes", type=int, default=40)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        print(measure(Path(scratch), given.rows, given.note_bytes))


if __name__ == "__main__":
    main()
