"""Kafka's transactions beside plain produces: python -m tests.benchmarks.transacting [--kafka] [--seconds 5]

One producer (librdkafka) sends records of 100 bytes in transactions of 1 000, then without transactions; the ways take
turns. Then some producers send transactions of one record, ten a second each, over shared partitions, beside plain
produces at the same pace: latencies of a commit and of a produce. With `--kafka` Apache Kafka is measured too, with a
flush of each message and without.
"""

import argparse
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.benchmarks.meter import cpu_seconds
from tests.benchmarks.systems import System, apache_kafka, our_broker

RECORDS = 1000
"""Records of a transaction."""
PARTITIONS = 12
PACE_S = 0.1
ROUNDS = 5
TIMEOUT_S = 30
VALUE = b"0123456789" * 10


def make_topic(system: System, name: str, partitions: int) -> None:
    topic = NewTopic(name, partitions, 1, config=dict(system.topic_config))
    admin = AdminClient({"bootstrap.servers": system.address})
    admin.create_topics([topic])[name].result(TIMEOUT_S)


def producer_of(system: System, transactional_id: str = "") -> Producer:
    config = {"bootstrap.servers": system.address, "linger.ms": 0, "enable.idempotence": True}
    if not transactional_id:
        return Producer(config)
    made = Producer({**config, "transactional.id": transactional_id})
    made.init_transactions(TIMEOUT_S)
    return made


def large(system: System, seconds: float) -> dict[str, float]:
    """Return records a second with transactions, and without: flushed as often, or never waited for."""
    topic = f"large-{time.time_ns()}"
    make_topic(system, topic, 1)
    transactional, plain = producer_of(system, f"id-{topic}"), producer_of(system)

    def transact() -> None:
        transactional.begin_transaction()
        send(transactional)
        transactional.commit_transaction(TIMEOUT_S)

    def flushed() -> None:
        send(plain)
        plain.flush(TIMEOUT_S)

    def send(producer: Producer) -> None:
        for _ in range(RECORDS):
            producer.produce(topic, VALUE)
        producer.poll(0)

    def streamed() -> None:
        send(plain)
        while len(plain) > 20 * RECORDS:
            plain.poll(0.001)

    ways: dict[str, Callable[[], None]] = {"transactions": transact, "flushed": flushed, "streamed": streamed}
    sent, spent = dict.fromkeys(ways, 0), dict.fromkeys(ways, 0.0)
    for _ in range(ROUNDS):
        for name, way in ways.items():
            begun = time.perf_counter()
            while time.perf_counter() - begun < seconds / ROUNDS:
                way()
                sent[name] += RECORDS
            plain.flush(TIMEOUT_S)
            spent[name] += time.perf_counter() - begun
    return {name: sent[name] / spent[name] for name in ways}


def paced(system: System, producers: int, seconds: float, *, is_transactional: bool) -> Sequence[float]:
    """Return latencies in ms of the last request of each step of all producers, which share partitions."""
    topic = f"paced-{time.time_ns()}"
    make_topic(system, topic, PARTITIONS)
    ready = threading.Barrier(producers)

    def run(number: int) -> list[float]:
        producer = producer_of(system, f"{topic}-{number}" if is_transactional else "")
        ready.wait()
        begun = time.perf_counter() + PACE_S * number / producers
        times: list[float] = []
        for step in range(int(seconds / PACE_S)):
            time.sleep(max(0.0, begun + step * PACE_S - time.perf_counter()))
            if is_transactional:
                producer.begin_transaction()
            start = time.perf_counter()
            producer.produce(topic, VALUE, partition=(number + step) % PARTITIONS)
            producer.flush(TIMEOUT_S)
            if is_transactional:
                start = time.perf_counter()
                producer.commit_transaction(TIMEOUT_S)
            times.append((time.perf_counter() - start) * 1000)
        return times[len(times) // 5 :]

    with ThreadPoolExecutor(producers) as threads:
        return sorted(one for times in threads.map(run, range(producers)) for one in times)


def measure(system: System, producers: int, seconds: float) -> None:
    rates = large(system, seconds)
    base = rates["streamed"]
    shown = ", ".join(f"{name} {rate:,.0f}/s ({rate / base:.2f})" for name, rate in rates.items())
    print(f"{system.name}: {RECORDS} records each: {shown}", flush=True)
    for is_transactional in (True, False):
        cpu_s = cpu_seconds(system.pid)
        times = paced(system, producers, seconds, is_transactional=is_transactional)
        each_us = (cpu_seconds(system.pid) - cpu_s) / (producers * int(seconds / PACE_S)) * 1e6
        what = "commit" if is_transactional else "plain produce"
        p50, p99 = (times[int(len(times) * part)] for part in (0.5, 0.99))
        print(
            f"{system.name}: {producers} producers, {what}: p50 {p50:.1f} ms, p99 {p99:.1f} ms, {each_us:.0f} CPU-us",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kafka", action="store_true")
    parser.add_argument("--producers", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=5.0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        started = [stack.enter_context(our_broker(Path(directory)))]
        if args.kafka:
            started.append(stack.enter_context(apache_kafka(Path(directory))))
        for each in started:
            for system in each.systems:
                measure(system, args.producers, args.seconds)


if __name__ == "__main__":
    main()
