"""The cleaner of compacted topics: python -m tests.benchmarks.cleaning [--gigabytes 1] [--codec lz4]

Records over a million keys are produced first, then the topic is cleaned on command. Shown: bytes a second that the
pass went through, and bytes a CPU-second of worker and broker, which other work on the machine changes less; the pass's
memory, the longest turn of the broker's loop, and the rate of a producer to another topic alone and beside a pass over
as much, in turn.
"""

import argparse
import random
import re
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from confluent_kafka import Producer

from pqbroker.fixture.http_calls import HttpCalls
from pqbroker.testing import Broker, broker
from tests.benchmarks.feeding import PARTITIONS, produced
from tests.benchmarks.meter import cpu_seconds
from tests.benchmarks.producing import LIBRDKAFKA

KEYS = 1_000_000
ALONE_S = 10.0
TURNS = 4
"""Each begins with the other way: what is on its way to the disk meets both."""
CONFIG = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 1}


def fill(node: Broker, gigabytes: float, value_bytes: int, codec: str) -> None:
    """Produce so much, uncompressed, over all keys."""
    producer = Producer(LIBRDKAFKA | {"bootstrap.servers": node.kafka, "log_level": 0, "compression.type": codec})
    dice = random.Random(1)
    words = [dice.randbytes(value_bytes // 4).hex() + "0" * (value_bytes // 2) for _ in range(100)]
    for number in range(int(gigabytes * 1e9 / (value_bytes + 20))):
        while True:
            try:
                producer.produce("users", words[number % 100], f"key-{dice.randrange(KEYS):010d}", partition=0)
                break
            except BufferError:
                producer.poll(0.005)
    assert producer.flush(120) == 0


def cleaned(node: Broker, calls: HttpCalls) -> dict[str, Any]:
    """Clean the topic: the pass, with the most memory that its worker had, and CPU-seconds of worker and broker."""
    most, broker_s, worker_s = 0, cpu_seconds(node.pid), _worker_use(node.pid)[1]
    calls.ask("POST", "/v1/topics/users/clean", {})
    spent_s = worker_s
    path = "/v1/topics/users/partitions/0?limit=1"
    while (found := calls.ask("GET", path)["cleaning"])["state"] in ("due", "cleaning"):
        size, now_s = _worker_use(node.pid)
        most, spent_s = max(most, size), max(spent_s, now_s)
        time.sleep(0.1)
    cpu_s = spent_s - worker_s + cpu_seconds(node.pid) - broker_s
    return {**found["last"], "memory_mib": most >> 20, "cpu_s": cpu_s}


def _worker_use(pid: int) -> tuple[int, float]:
    """Return resident bytes of the largest worker process of a broker, and processor seconds of all of them."""
    sizes, spent_s = [0], 0.0
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            is_child = re.search(rf"^PPid:\t{pid}$", (directory / "status").read_text(encoding="ascii"), re.M)
            if is_child:
                sizes.append(int((directory / "statm").read_text(encoding="ascii").split()[1]) * 4096)
                spent_s += cpu_seconds(int(directory.name))
        except OSError:
            continue
    return max(sizes), spent_s


def longest_turn_ms(node: Broker) -> float:
    with urlopen(f"http://{node.http}/metrics") as answer:
        text = answer.read().decode()
    found = re.search(r"^pqbroker_loop_turn_worst_seconds (\S+)$", text, re.M)
    assert found is not None
    return float(found[1]) * 1000


def show(what: str, done: dict[str, Any]) -> None:
    seconds = (done["ended_ms"] - done["begun_ms"]) / 1000
    print(
        f"{what}: {done['bytes_before'] / seconds / 1e6:.1f} MB/s of stored bytes,"
        f" {done['bytes_before'] / done['cpu_s'] / 1e6:.1f} MB a CPU-second"
        f" ({done['records']} records, {done['records_gone']} gone, {done['bodies_replaced']} bodies to"
        f" {done['bodies_written']}, {seconds:.1f} s, {done['memory_mib']} MiB) {done['failure']}", flush=True,
    )  # fmt: skip


def produced_alone(node: Broker) -> float:
    """Return the rate of a producer, in MB/s, beside no pass."""
    return produced(node, "other", ALONE_S, threading.Event())


def produced_beside(node: Broker, calls: HttpCalls) -> float:
    """Return the rate of a producer, in MB/s, beside a pass, which is shown."""
    stopping, rates = threading.Event(), list[float]()
    producing = threading.Thread(target=lambda: rates.append(produced(node, "other", 600, stopping)))
    producing.start()
    show("beside a producer", cleaned(node, calls))
    stopping.set()
    producing.join()
    return rates[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--gigabytes", type=float, default=1)
    parser.add_argument("--value-bytes", type=int, default=1000)
    parser.add_argument("--codec", default="none")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, broker(Path(directory) / "data") as node:
        calls = HttpCalls(lambda: node.http)
        calls.ask("POST", "/v1/topics", {"name": "users", "config": CONFIG})
        calls.ask("POST", "/v1/topics", {"name": "other", "partitions": PARTITIONS})
        fill(node, args.gigabytes, args.value_bytes, args.codec)
        before_ms = longest_turn_ms(node)
        show("alone", cleaned(node, calls))
        print(f"longest turn {longest_turn_ms(node):.1f} CPU-ms, {before_ms:.1f} before", flush=True)
        rates: dict[str, list[float]] = {"alone": [], "beside": []}
        for turn in range(TURNS):
            fill(node, args.gigabytes, args.value_bytes, args.codec)
            for way in ("alone", "beside") if turn % 2 else ("beside", "alone"):
                rates[way].append(produced_alone(node) if way == "alone" else produced_beside(node, calls))
        alone, beside = map(statistics.median, rates.values())
        print(f"produce alone {alone:.0f} MB/s, beside {beside:.0f} MB/s: {beside / alone:.2f}")


if __name__ == "__main__":
    main()
