"""Kafka's own assignors, in a Java process (`Assignors.java`)."""

import json
import subprocess
from collections.abc import Iterator
from typing import Self

from pqbroker.broker.services.coordination.assigning.assignor import Assignment
from tests.broker.services.coordination.assigning.drawn_groups import Group, Target, topic_id
from tests.support.java import program

_NUMBERS = {"uniform": 0, "range": 1}


class KafkaAssignors:
    """A context manager."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] = program.start("Assignors", [], program.NEWER)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        program.stop(self._process)

    def assign(self, assignor: str, group: Group) -> Target:
        """Return what Kafka's assignor of that name gives the members."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(map(str, _words(assignor, group))) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        return dict(zip(group.members, map(_assignment, answer.values()), strict=True))


def _words(assignor: str, group: Group) -> Iterator[int]:
    yield _NUMBERS[assignor]
    yield len(group.topics)
    for topic, partitions in group.topics.items():
        yield from (_number(topic), partitions.count)
    yield len(group.members)
    for member in group.members.values():
        yield -1 if member.instance_id is None else int(member.instance_id[1:])
        yield len(member.topic_ids)
        yield from map(_number, member.topic_ids)
        had = [(_number(topic), partition) for topic, numbers in member.assigned.items() for partition in numbers]
        yield len(had)
        for place in had:
            yield from place


def _number(topic: bytes) -> int:
    return int.from_bytes(topic[8:], "big")


def _assignment(partitions: list[list[int]]) -> Assignment:
    found: dict[bytes, list[int]] = {}
    for topic, partition in partitions:
        found.setdefault(topic_id(topic), []).append(partition)
    return {topic: tuple(sorted(numbers)) for topic, numbers in found.items()}
