"""A topic that feeds a sorted table: python -m tests.benchmarks.feeding [--records 3000000]

Records of 100 bytes with keys are produced first; then the table is tied to the topic, and the clock runs until its
lag is 0. Behind it the same while a producer appends without a pause, beside the producer's rate before.
"""

import argparse
import tempfile
import threading
import time
from pathlib import Path

from confluent_kafka import Producer

from pqbroker.fixture.http_calls import HttpCalls
from pqbroker.testing import Broker, broker
from tests.benchmarks.producing import LIBRDKAFKA

PARTITIONS = 4
KEYS = 1_000_000
PRODUCED_S = 15.0
VALUE_BYTES = 10_000
SCHEMA = [
    {"name": "key", "type": "utf8", "sort_order": "ascending", "required": True}, {"name": "value", "type": "utf8"},
]  # fmt: skip


def fill(node: Broker, topic: str, count: int) -> None:
    """Produce records of about 100 bytes over all keys."""
    producer = Producer(LIBRDKAFKA | {"bootstrap.servers": node.kafka, "log_level": 0, "compression.type": "lz4"})
    for number in range(count):
        key = number * 7919 % KEYS
        while True:
            try:
                producer.produce(topic, f"{number:080d}", f"key-{key:08d}", partition=key % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.005)
    assert producer.flush(120) == 0


def fed_at(calls: HttpCalls, topic: str, count: int) -> float:
    """Tie a new table to a topic: records a second until its lag is 0."""
    calls.ask("POST", "/v1/tables", {"path": f"//of_{topic}", "schema": SCHEMA, "pivot_keys": [[], ["key-00500000"]]})
    started = time.perf_counter()
    body = {"topic": topic, "table": f"of_{topic}", "columns": {"key": "key", "value": "value"}}
    calls.ask("POST", "/v1/materializations", body)
    while (found := calls.ask("GET", f"/v1/materializations/of_{topic}"))["lag"] or not found["partitions"]:
        assert found["state"] != "stopped", found["reason"]
        time.sleep(0.05)
    return count / (time.perf_counter() - started)


def produced(node: Broker, topic: str, seconds: float, stopping: threading.Event) -> float:
    """Produce large values until the time is over, or `stopping` is set: MB/s."""
    producer, value = Producer(LIBRDKAFKA | {"bootstrap.servers": node.kafka, "log_level": 0}), bytes(VALUE_BYTES)
    started, count = time.perf_counter(), 0
    while time.perf_counter() < started + seconds and not stopping.is_set():
        try:
            producer.produce(topic, value, partition=count % PARTITIONS)
            count += 1
        except BufferError:
            producer.poll(0.005)
    assert producer.flush(120) == 0
    return count * VALUE_BYTES / (time.perf_counter() - started) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=3_000_000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, broker(Path(directory) / "data") as node:
        calls = HttpCalls(lambda: node.http)
        for topic in ("alone", "beside", "other"):
            calls.ask("POST", "/v1/topics", {"name": topic, "partitions": PARTITIONS})
        for topic in ("alone", "beside"):
            fill(node, topic, args.records)
        print(f"alone: {fed_at(calls, 'alone', args.records):.0f} records/s")
        print(f"produce alone: {produced(node, 'other', PRODUCED_S, threading.Event()):.1f} MB/s")
        stopping, rates = threading.Event(), list[float]()
        producing = threading.Thread(target=lambda: rates.append(produced(node, "other", 600, stopping)))
        producing.start()
        print(f"beside produce: {fed_at(calls, 'beside', args.records):.0f} records/s")
        stopping.set()
        producing.join()
        print(f"produce beside: {rates[0]:.1f} MB/s")


if __name__ == "__main__":
    main()
