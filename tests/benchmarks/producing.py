"""Produce as fast as the broker takes it: librdkafka with large batches, Java at its defaults, ready-made requests."""

import random
import re
import subprocess
import time

from confluent_kafka import Producer

from tests.benchmarks.figures import MEGABYTES, P99
from tests.benchmarks.wire import Connection, check_produced, produce_request, record_batch
from tests.benchmarks.workload import Outcome, Scale, Target
from tests.support.kafka.jars import classpath, java

VALUE_BYTES = 10_000
RAW_BATCH_RECORDS = 13  # of VALUE_BYTES: just under 128 KiB
RAW_IN_FLIGHT = 8
JAVA_VALUE_BYTES = 1_000
LIBRDKAFKA = {
    "acks": "all",
    "batch.size": 131_072,
    "batch.num.messages": 100_000,
    "linger.ms": 10,
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": 262_144,
    "delivery.report.only.error": True,
}
_JAVA_HEAP = "256m"
_JAVA_TIMEOUT_S = 300
_FLUSH_TIMEOUT_S = 120
_STEADY = re.compile(r"^(\d+) (?:steady state )?records sent, ([\d.]+) records/sec .*?([\d.]+) ms 99th", re.MULTILINE)


def produce_librdkafka(target: Target, scale: Scale) -> Outcome:
    """confluent-kafka, partitions in turn; the values are large, so that Python is not what is measured."""
    value = random.Random(1).randbytes(VALUE_BYTES)
    count = scale.produce_bytes // VALUE_BYTES
    producer = Producer(LIBRDKAFKA | {"bootstrap.servers": target.address, "log_level": 0, **target.client})
    producer.list_topics(target.topic, timeout=10)  # connects, so that the clock does not see it
    started = time.perf_counter()
    for index in range(count):
        while True:
            try:
                producer.produce(target.topic, value, partition=index % target.partitions)
                break
            except BufferError:
                producer.poll(0.005)
    left = producer.flush(_FLUSH_TIMEOUT_S)
    took = time.perf_counter() - started
    assert left == 0, f"{left} records were not acknowledged within {_FLUSH_TIMEOUT_S} s"
    size = count * VALUE_BYTES
    return Outcome({MEGABYTES: size / took / 1e6}, payload_bytes=size, appended=count)


def produce_raw(target: Target, scale: Scale) -> Outcome:
    """The same request over and over on one connection, several in flight; partitions in turn."""
    started = time.perf_counter()
    count = fill(target, scale.produce_bytes)
    took = time.perf_counter() - started
    size = count * VALUE_BYTES
    return Outcome({MEGABYTES: size / took / 1e6}, payload_bytes=size, appended=count)


def fill(target: Target, size: int) -> int:
    """Append at least `size` bytes of values in batches of just under 128 KiB; returns the count of records."""
    value = random.Random(2).randbytes(VALUE_BYTES)
    batch = record_batch([value] * RAW_BATCH_RECORDS, timestamp_ms=time.time_ns() // 1_000_000)
    requests = [produce_request(target.topic, [(partition, batch)]) for partition in range(target.partitions)]
    count = -(-size // (RAW_BATCH_RECORDS * VALUE_BYTES))
    with Connection(target.address) as connection:
        for index in range(count):
            if index >= RAW_IN_FLIGHT:
                check_produced(connection.receive(), target.topic)
            connection.send(requests[index % target.partitions])
        for _ in range(min(count, RAW_IN_FLIGHT)):
            check_produced(connection.receive(), target.topic)
    return count * RAW_BATCH_RECORDS


def produce_java(target: Target, scale: Scale) -> Outcome:
    """Kafka's own ProducerPerformance at the producer's defaults; the first fifth, Java warming up, is not timed."""
    count = scale.java_records
    run = subprocess.run(
        [
            java(), f"-Xms{_JAVA_HEAP}", f"-Xmx{_JAVA_HEAP}", "-cp", classpath(),
            "org.apache.kafka.tools.ProducerPerformance", "--bootstrap-server", target.address,
            "--topic", target.topic, "--num-records", str(count), "--record-size", str(JAVA_VALUE_BYTES),
            "--throughput", "-1", "--warmup-records", str(count // 5),
        ],
        capture_output=True, text=True, timeout=_JAVA_TIMEOUT_S, check=False,
    )  # fmt: skip
    summaries = _STEADY.findall(run.stdout)
    assert run.returncode == 0 and summaries, f"ProducerPerformance failed:\n{run.stdout[-2000:]}{run.stderr[-2000:]}"  # noqa: PT018
    _, records_per_s, p99_ms = summaries[-1]
    return Outcome(
        {MEGABYTES: float(records_per_s) * JAVA_VALUE_BYTES / 1e6, P99: float(p99_ms)},
        payload_bytes=count * JAVA_VALUE_BYTES,
        appended=count,
    )
