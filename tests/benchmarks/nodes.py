"""Two nodes against one under the same load: python -m tests.benchmarks.nodes --megabytes 400

Prints the processor time per megabyte that is written and read: of the busiest node, and of all processes together.
On a quiet machine the busiest of two nodes takes at most 0.6 of what one node takes, and all together at most 1.2.
"""

import argparse
import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from pqbroker.fixture.http_calls import HttpCalls
from tests.benchmarks.producing import LIBRDKAFKA
from tests.support.several_nodes import SeveralNodes
from tests.support.waiting import wait_until

PARTITIONS: Final = 8
VALUE_BYTES: Final = 10_000
READINGS: Final = 3
PATIENCE_S: Final = 120.0
BUSIEST_MAX, TOGETHER_MAX = 0.6, 1.2
_TOPIC: Final = "load"


class Measured(NamedTuple):
    """Processor time in ms per MB written and read, and MB a second."""

    busiest: float
    together: float
    megabytes_per_s: float


class Compared(NamedTuple):
    """Shares of what one node takes."""

    busiest: float
    together: float

    @property
    def is_met(self) -> bool:
        return self.busiest <= BUSIEST_MAX and self.together <= TOGETHER_MAX


def measure(directory: Path, nodes: int, size: int) -> Measured:
    """Write `size` bytes to a broker of `nodes` nodes, and read them several times."""
    broker = SeveralNodes(directory / "data", nodes, {}, directory / "log")
    try:
        broker.start()
        client: dict[str, str | int] = {"bootstrap.servers": broker.kafka, "log_level": 0}
        calls = HttpCalls(lambda: broker.http)
        wait_until(lambda: _are_open(calls), "all cells are open", PATIENCE_S)
        leaders = _make_topic(client, nodes)
        pids = [broker.parent.pid, *broker.pids().values()]
        before, started = _cpu_s(pids), time.perf_counter()
        count = _write(client, size // VALUE_BYTES)
        for _ in range(READINGS):
            _read(client, count)
        took_s, after = time.perf_counter() - started, _cpu_s(pids)
    finally:
        broker.end()
    spent = {pid: after[pid] - before[pid] for pid in pids}
    megabytes = (1 + READINGS) * count * VALUE_BYTES / 1e6
    print(f"nodes {nodes}: partitions by node {dict(sorted(leaders.items()))}", flush=True)
    return Measured(
        1000 * max(spent.values()) / megabytes, 1000 * sum(spent.values()) / megabytes, megabytes / took_s
    )  # fmt: skip


def compare(one: Measured, several: Measured) -> Compared:
    """Return the shares of the busiest of several nodes, and of all together, of what one node takes."""
    return Compared(several.busiest / one.together, several.together / one.together)


def _are_open(calls: HttpCalls) -> bool:
    """Return True once each cell is open, and its node has said what it runs."""
    cells = calls.ask("GET", "/v1/cells")["cells"]
    return all(cell["health"] == "good" and cell["generation"] is not None for cell in cells)


def _make_topic(client: Mapping[str, str | int], nodes: int) -> Counter[int]:
    """Make the topic; return how many partitions each node leads, once each leads as many as the others or nearly."""
    admin = AdminClient({**client})
    topic = NewTopic(_TOPIC, PARTITIONS, config={"pq.partitions.per.tablet": "1"})
    found: Counter[int] = Counter()

    def is_even() -> bool:
        try:
            admin.create_topics([topic])[_TOPIC].result(PATIENCE_S)
        except KafkaException as refused:
            if refused.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                return False  # a cell is not open yet
        partitions = admin.list_topics(_TOPIC, timeout=PATIENCE_S).topics[_TOPIC].partitions.values()
        found.clear()
        found.update(partition.leader for partition in partitions)
        if len(found) == nodes and max(found.values()) - min(found.values()) <= 1 and min(found) > 0:
            return True
        admin.delete_topics([_TOPIC])[_TOPIC].result(PATIENCE_S)
        return False

    wait_until(is_even, "a topic that is spread evenly", PATIENCE_S)
    return found


def _write(client: Mapping[str, str | int], count: int) -> int:
    producer = Producer({**LIBRDKAFKA, **client, "enable.idempotence": True})
    value = random.Random(1).randbytes(VALUE_BYTES)
    for index in range(count):
        while True:
            try:
                producer.produce(_TOPIC, value, partition=index % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.005)
    assert producer.flush(PATIENCE_S) == 0
    return count


def _read(client: Mapping[str, str | int], count: int) -> None:
    consumer = Consumer({**client, "group.id": "benchmark", "enable.auto.commit": False, "auto.offset.reset": "error"})
    consumer.assign([TopicPartition(_TOPIC, partition, 0) for partition in range(PARTITIONS)])
    read = 0
    while read < count:
        found = consumer.consume(min(500, count - read), PATIENCE_S)
        assert found, f"{read} of {count} records"
        read += sum(message.error() is None for message in found)
    consumer.close()


def _cpu_s(pids: Sequence[int]) -> dict[int, float]:
    """Return the processor time of processes so far."""
    ticks = os.sysconf("SC_CLK_TCK")

    def spent(pid: int) -> float:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / ticks

    return {pid: spent(pid) for pid in pids}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.nodes", description=__doc__)
    parser.add_argument("--megabytes", type=int, default=400)
    size = parser.parse_args().megabytes * 1_000_000
    found = []
    for nodes in (1, 2):
        with tempfile.TemporaryDirectory(prefix="pqbroker-nodes-") as directory:
            found.append(measure(Path(directory), nodes, size))
        one = found[-1]
        print(
            f"nodes {nodes}: busiest {one.busiest:.2f} ms/MB, together {one.together:.2f} ms/MB, "
            f"{one.megabytes_per_s:.0f} MB/s", flush=True,
        )  # fmt: skip
    compared = compare(*found)
    print(
        f"two nodes against one: busiest {compared.busiest:.2f} (at most {BUSIEST_MAX}), together "
        f"{compared.together:.2f} (at most {TOGETHER_MAX}): {'met' if compared.is_met else 'not met'}"
    )


if __name__ == "__main__":
    main()
