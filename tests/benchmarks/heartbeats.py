"""Groups of KIP-848 by their number and size: python -m tests.benchmarks.heartbeats [--shape GROUPSxMEMBERS]

The broker's processor time to create a group, for a heartbeat of a stable one, for a second without any request, and to
start after a kill -9; its resident memory for each group, beside that without groups.
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pqbroker.fixture.process import BrokerProcess
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from pqbroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.benchmarks.meter import cpu_seconds, memory
from tests.benchmarks.report import number, text_table
from tests.benchmarks.wire import Connection
from tests.broker.wire import BY_REQUEST, read_response, request_frame
from tests.faults.exec_time import start

SHAPES: Final = ((1, 100), (1, 500), (2_500, 1), (5_000, 1), (10_000, 1))
"""Groups, and members of each."""
PARTITIONS: Final = 2
"""Partitions of the topic for each member of a group."""
BEATS: Final = 10_000
"""Heartbeats that are measured, at least one a member."""
IDLE_S: Final = 10.0
STARTS: Final = 3
SETTINGS: Final = {
    "group.consumer.max.session.timeout.ms": "3600000", "group.consumer.session.timeout.ms": "3600000",
    "group.consumer.assignment.interval.ms": "0", "group.consumer.max.size": "10000",
    "pqbroker.groups.bytes.max": str(1 << 30),
}  # fmt: skip
HEADER: Final = [
    "groups", "members of each", "CPU µs to join", "rounds to stable", "rounds after one leaves", "CPU µs/heartbeat",
    "idle CPU ms/s", "KB a group", "start CPU s",
]  # fmt: skip
_TOPIC: Final = "all"
_ROUNDS_MAX: Final = 100
_LEAVING: Final = -1
"""Epoch of a member that leaves."""


@dataclass(slots=True)
class Beating:
    """A member as its heartbeats know it."""

    group: str
    member_id: str
    epoch: int = 0
    owned: list[TopicPartitions] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Cost:
    """Figures of one shape."""

    groups: int
    members: int
    join_us: float
    rounds: int
    left_rounds: int
    """Heartbeats of each member from when one leaves until the others have its partitions; 0: groups of one."""
    beat_us: float
    idle_ms: float
    group_kb: float
    start_s: float

    def row(self) -> list[str]:
        figures = (self.join_us, self.rounds, self.left_rounds, self.beat_us, self.idle_ms, self.group_kb, self.start_s)
        return [str(self.groups), str(self.members), *map(number, figures)]


def measure(
    groups: int, members: int, directory: Path, *, beats: int = BEATS, idle_s: float = IDLE_S, starts: int = STARTS
) -> Cost:
    """Return the figures of some groups of equal size, on a fresh broker."""
    directory.mkdir(parents=True)
    log_file = directory / "log"
    log_file.touch()
    node = BrokerProcess(directory / "data", SETTINGS, log_file, "info")
    try:
        node.start()
        crowd = [Beating(f"group-{group}", f"member-{each}") for group in range(groups) for each in range(members)]
        with Connection(node.kafka) as connection:
            _create_topic(connection, PARTITIONS * members)
            empty_mib = _start_again(node)[1]
        with Connection(node.kafka) as connection:
            join_us = _cpu_us(node, lambda: _round(connection, crowd)) / len(crowd)
            rounds = _settle(connection, crowd, PARTITIONS * members)
            turns = -(-beats // len(crowd))
            beat_us = _cpu_us(node, lambda: _stay(connection, crowd, turns)) / (turns * len(crowd))
            left_rounds = _leave(connection, crowd, members) if members > 1 else 0
        idle_ms = _cpu_us(node, lambda: time.sleep(idle_s)) / idle_s / 1e3
        started = [_start_again(node) for _ in range(starts)]
        group_kb = (min(mib for _, mib in started) - empty_mib) * 1024 / groups
        start_s = min(cpu for cpu, _ in started)
        return Cost(groups, members, join_us, rounds, left_rounds, beat_us, idle_ms, group_kb, start_s)
    finally:
        node.kill()
        shutil.rmtree(directory, ignore_errors=True)


def _cpu_us(node: BrokerProcess, act: Callable[[], object]) -> float:
    """Return the µs of processor time that the broker needs meanwhile."""
    before = cpu_seconds(node.pid)
    act()
    return (cpu_seconds(node.pid) - before) * 1e6


def _start_again(node: BrokerProcess) -> tuple[float, float]:
    """Kill and start; return seconds of processor time until it answers, and MiB resident then."""
    node.kill()
    start(node, _TOPIC)
    return cpu_seconds(node.pid), memory(node.pid).now_mib


def _create_topic(connection: Connection, partitions: int) -> None:
    topic = CreatableTopic(name=_TOPIC, num_partitions=partitions, replication_factor=1)
    connection.send(request_frame(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 2))
    connection.receive()


def _settle(connection: Connection, crowd: Sequence[Beating], partitions: int) -> int:
    """Let all members beat until each group's have all partitions in one epoch; return how often."""
    for count in range(1, _ROUNDS_MAX):
        is_new = _round(connection, crowd)
        epochs: dict[str, set[int]] = {}
        owned: Counter[str] = Counter()
        for each in crowd:
            epochs.setdefault(each.group, set()).add(each.epoch)
            owned[each.group] += sum(len(topic.partitions) for topic in each.owned)
        if not is_new and set(owned.values()) == {partitions} and all(len(seen) == 1 for seen in epochs.values()):
            return count
    raise AssertionError(f"a group is not stable after {_ROUNDS_MAX} rounds")


def _leave(connection: Connection, crowd: Sequence[Beating], members: int) -> int:
    """Let one member of each group leave; return how often the others beat until they have its partitions."""
    for each in crowd[::members]:
        each.epoch, each.owned = _LEAVING, []
        _beat(connection, each)
    others = [each for number, each in enumerate(crowd) if number % members]
    return _settle(connection, others, PARTITIONS * members) - 1  # the last one brings nothing new


def _stay(connection: Connection, crowd: Sequence[Beating], turns: int) -> None:
    for _ in range(turns):
        assert not _round(connection, crowd), "a stable group has changed"


def _round(connection: Connection, crowd: Sequence[Beating]) -> int:
    """Let every member beat once; return how many of them heard of a change."""
    return sum([_beat(connection, each) for each in crowd])


def _beat(connection: Connection, member: Beating) -> bool:
    """Send a heartbeat and do what the answer says; True if that is anything new."""
    request = ConsumerGroupHeartbeatRequest(
        group_id=member.group, member_id=member.member_id, member_epoch=member.epoch, topic_partitions=member.owned
    )
    if member.epoch == 0:
        request.subscribed_topic_names, request.rebalance_timeout_ms = [_TOPIC], 300_000
    connection.send(request_frame(request, 1))
    api = BY_REQUEST[ConsumerGroupHeartbeatRequest]
    answer: ConsumerGroupHeartbeatResponse = read_response(api, 1, bytes(connection.receive()))[1]
    assert answer.error_code == ErrorCode.NONE, (answer.error_code, answer.error_message)
    is_new = answer.assignment is not None or answer.member_epoch != member.epoch
    member.epoch = answer.member_epoch
    if answer.assignment is not None:
        member.owned = answer.assignment.topic_partitions
    return is_new


def _shapes(text: str) -> Iterator[tuple[int, int]]:
    for shape in text.split(","):
        groups, _, members = shape.partition("x")
        yield int(groups), int(members)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.heartbeats", description=__doc__)
    parser.add_argument("--shape", default=",".join(f"{groups}x{members}" for groups, members in SHAPES),
                        metavar="GROUPSxMEMBERS", help="shapes, with commas between them (%(default)s)")  # fmt: skip
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="pqbroker-heartbeats-"))
    try:
        costs: list[Cost] = []
        for groups, members in _shapes(options.shape):
            costs.append(measure(groups, members, directory / f"{groups}-{members}"))
            print(f"{groups} groups of {members} measured", file=sys.stderr, flush=True)
        print(text_table(HEADER, [cost.row() for cost in costs]), flush=True)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
