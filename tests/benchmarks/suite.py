"""The workloads, and how they are run: in rounds, the systems in turn within a workload, each on a new topic."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from tests.benchmarks import consuming, latency, producing
from tests.benchmarks.figures import CPU_PER_GB, CPU_PER_REQUEST, EARLIER, KAFKA, LOOP_LAG, OURS, Run
from tests.benchmarks.meter import cpu_seconds
from tests.benchmarks.systems import System
from tests.benchmarks.topics import new_topic
from tests.benchmarks.wire import end_offsets
from tests.benchmarks.workload import Outcome, Scale, Target, Workload

WORKLOADS = (
    Workload(
        "produce-librdkafka-1", "librdkafka, 128 KiB batches of 10 KB values, acks=all, 1 partition",
        producing.produce_librdkafka,
    ),
    Workload(
        "produce-librdkafka-6", "the same, 6 partitions", producing.produce_librdkafka, partitions=6,
    ),
    Workload(
        "produce-raw-1", "ready-made Produce requests of a 127 KiB batch, 8 in flight on 1 connection, 1 partition",
        producing.produce_raw,
    ),
    Workload("produce-raw-6", "the same, 6 partitions in turn", producing.produce_raw, partitions=6),
    Workload(
        "produce-java", "kafka-clients' ProducerPerformance at the producer's defaults, 1 KB records, 1 partition",
        producing.produce_java,
    ),
    Workload(
        "consume-librdkafka", "librdkafka by assignment, 10 KB values in 127 KiB batches, 1 partition, thrice",
        consuming.consume_librdkafka, prepare=consuming.fill_for_reading, systems=(OURS, EARLIER, KAFKA),
    ),
    Workload(
        "consume-raw", "one Fetch of 1 MiB after another on 1 connection, 1 partition, thrice",
        consuming.consume_raw, prepare=consuming.fill_for_reading, systems=(OURS, EARLIER, KAFKA),
    ),
    Workload("small-1", "one record of 100 bytes a request, one request in flight", latency.one_in_flight),
    Workload("small-8", "the same on 8 connections, 1 partition", latency.eight_connections),
    Workload("small-8-spread", "the same on 8 connections, 8 partitions", latency.eight_connections, partitions=8),
    Workload(
        "end-to-end", "1 000 records a second of 100 bytes, a request each, to a waiting Fetch", latency.end_to_end,
    ),
)  # fmt: skip


def warm(system: System, scale: Scale) -> None:
    """Let a system meet `warm_bytes` of large batches, and every other kind of request, before it is measured."""
    with new_topic(system, "warm", 6) as target:
        producing.fill(target, scale.warm_bytes // 2)
        producing.produce_librdkafka(target, replace(scale, produce_bytes=scale.warm_bytes // 2))
        consuming.consume_librdkafka(target, scale)
        consuming.consume_raw(target, scale)
        latency.eight_connections(target, scale)
    with new_topic(system, "warm", 1) as target:
        latency.end_to_end(target, scale)
        latency.one_in_flight(target, scale)


def run_rounds(
    workloads: Sequence[Workload],
    systems: Sequence[System],
    scale: Scale,
    rounds: int,
    tell: Callable[[int, Run], None],
) -> Iterator[Run]:
    """Every workload on every system, `rounds` times; who goes first changes with the round."""
    for number in range(rounds):
        for workload in workloads:
            for index in range(len(systems)):
                system = systems[(index + number) % len(systems)]
                if system.name in workload.systems:
                    run = run_once(workload, system, scale)
                    tell(number + 1, run)
                    yield run


def run_once(workload: Workload, system: System, scale: Scale) -> Run:
    """One run; what earlier ones left to be written is written first, so that nobody's fsync pays for another."""
    with new_topic(system, workload.name, workload.partitions) as target:
        prepared = workload.prepare(target, scale)
        os.sync()
        cpu_before = cpu_seconds(system.pid)
        outcome = workload.run(target, scale)
        cpu_s = cpu_seconds(system.pid) - cpu_before
        _check_appended(target, prepared + outcome.appended)
        return Run(workload.name, system.name, _figures(outcome, cpu_s, system.loop_lag_ms()))


def _figures(outcome: Outcome, cpu_s: float, lag_ms: float | None) -> dict[str, float]:
    figures = dict(outcome.figures)
    if outcome.payload_bytes:
        figures[CPU_PER_GB] = cpu_s / (outcome.payload_bytes / 1e9)
    if outcome.requests:
        figures[CPU_PER_REQUEST] = cpu_s / outcome.requests * 1e6
    if lag_ms is not None:
        figures[LOOP_LAG] = lag_ms
    return figures


def _check_appended(target: Target, expected: int) -> None:
    held = sum(end_offsets(target.address, target.topic, target.partitions))
    assert held == expected, f"{target.topic} holds {held} records instead of {expected}"
