"""`kill -9` at random moments under load: python -m tests.faults.kills --kills 100 --gigabyte

What was acknowledged is there once and in order, the end of a log never moves back, and the broker serves again soon.
"""

import argparse
import os
import random
import signal
import statistics
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Producer

from pqbroker.testing import Broker, BrokerFailedError, broker
from tests.faults.exec_time import Start, start
from tests.faults.load import Load, check
from tests.support.drivers.librdkafka_driver import LibrdkafkaDriver
from tests.support.waiting import wait_until
from tests.support.wire import LATEST, Wire

RESTART_MAX_S = 1.5
BULK_PARTITIONS = 100
GIGABYTE = 1 << 30
_BULK_VALUE_BYTES = 128 << 10
_UNDER_LOAD_MAX_S = 0.4
_STARTING_MAX_S = 0.5
_KILL_STARTING_EVERY = 4
_TOPIC, _BULK = "load", "bulk"
_LOADED = [0, 1, 1]  # the partition of each producer: one alone, two together


@dataclass(slots=True)
class Outcome:
    """What a run saw: every restart, and how many records were acknowledged."""

    restarts: list[Start] = field(default_factory=list)
    acknowledged: int = 0


def run(directory: Path, *, kills: int, seed: int, bulk_bytes: int = 0) -> Outcome:
    """Kill and restart a broker `kills` times under load. AssertionError when it breaks what the module promises."""
    source = random.Random(seed)
    outcome = Outcome()
    with broker(directory) as node:
        client = LibrdkafkaDriver(node.kafka)
        client.create_topic(_TOPIC, partitions=max(_LOADED) + 1)
        bulk_ends = _fill(client, node.kafka, bulk_bytes) if bulk_bytes else {}
        with Load(node.kafka, _TOPIC, _LOADED, seed) as load:
            ends: dict[int, int] = {}
            for kill in range(kills):
                load.await_acknowledgements(1)
                _watch(node.kafka, ends, source.uniform(0, _UNDER_LOAD_MAX_S))
                node.kill()
                if kill % _KILL_STARTING_EVERY == 1:
                    _kill_while_it_starts(node, source.uniform(0, _STARTING_MAX_S))
                for partition, end in load.ends().items():
                    ends[partition] = max(ends.get(partition, 0), end)
                outcome.restarts.append(_restart(node, ends))
            load.await_acknowledgements(1)
            load.settle()
        failures = [failure for book in load.books for failure in book.failures]
        assert not failures, failures[0]
        outcome.acknowledged = check(load, node.kafka)
        assert _ends(node.kafka, _BULK, len(bulk_ends)) == bulk_ends
    return outcome


def _watch(address: str, ends: dict[int, int], duration_s: float) -> None:
    """Follow the ends of the logs for a while: they only grow. Each Fetch waits at the end, which paces the loop."""
    deadline = time.monotonic() + duration_s
    with Wire(address) as wire:
        while time.monotonic() < deadline:
            for partition in set(_LOADED):
                fetched = wire.fetch(_TOPIC, partition, ends.get(partition, 0), bytes_max=1, wait_ms=20)
                _advance(ends, partition, fetched.error_code, fetched.high_watermark)


def _restart(node: Broker, ends: dict[int, int]) -> Start:
    """Start the broker, and see that no log's end went back."""
    started = start(node, _TOPIC)
    with Wire(node.kafka) as wire:
        for partition in set(_LOADED):
            _advance(ends, partition, *wire.offset(_TOPIC, partition, LATEST))
    return started


def _advance(ends: dict[int, int], partition: int, error_code: int, end: int) -> None:
    assert error_code == 0, f"partition {partition}: error code {error_code}"
    assert end >= ends.get(partition, 0), f"partition {partition}: the end went back to {end} from {ends[partition]}"
    ends[partition] = end


def _kill_while_it_starts(node: Broker, delay_s: float) -> None:
    """Start the broker and kill it some time after exec, ready or not."""

    def end_process() -> None:
        wait_until(lambda: node.running, "the process there")
        threading.Event().wait(delay_s)
        os.kill(node.pid, signal.SIGKILL)

    killer = threading.Thread(target=end_process)
    killer.start()
    try:
        node.start()
    except BrokerFailedError:
        killer.join()
        return
    killer.join()
    node.kill()


def _fill(client: LibrdkafkaDriver, address: str, size: int) -> dict[int, int]:
    """Write `size` bytes over many partitions of a topic of their own; the end of each."""
    client.create_topic(_BULK, partitions=BULK_PARTITIONS)
    producer = Producer({"bootstrap.servers": address, "linger.ms": 20, "queue.buffering.max.kbytes": 1 << 17})
    value = random.Random(size).randbytes(_BULK_VALUE_BYTES)
    for number in range(size // _BULK_VALUE_BYTES):
        while len(producer) > 500:
            producer.poll(0.01)
        producer.produce(_BULK, value, partition=number % BULK_PARTITIONS)
    assert producer.flush(120) == 0
    return _ends(address, _BULK, BULK_PARTITIONS)


def _ends(address: str, topic: str, partitions: int) -> dict[int, int]:
    with Wire(address) as wire:
        return {partition: wire.offset(topic, partition, LATEST)[1] for partition in range(partitions)}


def main() -> None:
    """Run from the command line and print what was seen."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--gigabyte", action="store_true", help="on a directory of a gigabyte in 100 partitions")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="pqbroker-kills-") as scratch:
        bulk_bytes = GIGABYTE if options.gigabyte else 0
        outcome = run(Path(scratch), kills=options.kills, seed=options.seed, bulk_bytes=bulk_bytes)
    print(f"{options.kills} kills, {outcome.acknowledged} records acknowledged, each there once and in order")
    own = [restart.own_s for restart in outcome.restarts]
    for title, seconds in (("on the clock", [each.wall_s for each in outcome.restarts]), ("the broker's own", own)):
        print(f"exec to first answer, {title}: median {statistics.median(seconds):.3f} s, worst {max(seconds):.3f} s")
    assert max(own) <= RESTART_MAX_S, f"a restart took longer than {RESTART_MAX_S} s"


if __name__ == "__main__":
    main()
