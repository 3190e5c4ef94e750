"""Cost of the look at keys: python -m tests.benchmarks.compacted [--records N] [--value-bytes N]

One librdkafka producer writes the same records with keys into a plain topic and into a compacted one, in turn. The
broker looks at every key of the compacted one's. No pass of the cleaner runs meanwhile.
"""

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer

from pqbroker.testing import Broker, broker
from tests.benchmarks.meter import cpu_seconds

CODECS = ("none", "lz4")
KEYS = 100_000
TIMEOUT_S = 120
ROUNDS = 3
_COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1"}
_CLIENT = {"log_level": 0, "linger.ms": 20, "delivery.report.only.error": True, "queue.buffering.max.kbytes": 1 << 20}


@dataclass(frozen=True, slots=True)
class Found:
    """Megabytes of values a second to a plain and to a compacted topic, and the broker's processor seconds per GB."""

    codec: str
    plain: float
    plain_cpu_s: float
    compacted: float
    compacted_cpu_s: float

    def __str__(self) -> str:
        return (
            f"{self.codec}: {self.plain:.0f} MB/s plain, {self.compacted:.0f} compacted, "
            f"{self.compacted / self.plain:.0%}; CPU seconds per GB {self.plain_cpu_s:.2f}, {self.compacted_cpu_s:.2f}"
        )


def measure(directory: Path, records: int, value_bytes: int, rounds: int = ROUNDS) -> Iterable[Found]:
    """Medians of `rounds`, for each codec."""
    half = random.Random(1).randbytes(value_bytes // 2)
    value = half + b"." * (value_bytes - len(half))
    with broker(directory / "data") as running:
        running.create_topic("plain")
        running.create_topic("compacted", configs=_COMPACTED)
        for codec in CODECS:
            found: dict[str, list[tuple[float, float]]] = {"plain": [], "compacted": []}
            for _ in range(rounds):
                for topic, figures in found.items():
                    before_s = cpu_seconds(running.pid)
                    took_s = _seconds(running, topic, codec, [value] * records)
                    gigabytes = records * value_bytes / 1e9
                    figures.append((1000 * gigabytes / took_s, (cpu_seconds(running.pid) - before_s) / gigabytes))
            plain, compacted = ([statistics.median(each) for each in zip(*one, strict=True)] for one in found.values())
            yield Found(codec, *plain, *compacted)


def _seconds(running: Broker, topic: str, codec: str, values: Iterable[bytes]) -> float:
    producer = Producer({
        **_CLIENT, "bootstrap.servers": running.kafka, "compression.type": codec,
        "queue.buffering.max.messages": 10_000_000,
    })  # fmt: skip
    keys = [b"key-%08d" % number for number in range(KEYS)]
    producer.list_topics(topic, timeout=TIMEOUT_S)  # connects, so that the clock does not see it
    started = time.perf_counter()
    for number, value in enumerate(values):
        producer.produce(topic, value, keys[number % KEYS])
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0
    return time.perf_counter() - started


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--value-bytes", type=int, default=1000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pqbroker-compacted-") as scratch:
        for found in measure(Path(scratch), options.records, options.value_bytes):
            print(found)


if __name__ == "__main__":
    main()
