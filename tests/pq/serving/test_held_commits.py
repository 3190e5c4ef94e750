"""Commits of offsets that wait for partitions on their way between nodes: in order, group by group, for a while."""

import asyncio
from unittest.mock import patch

import pytest

from pqbroker.pq.serving import held_commits
from pqbroker.pq.serving.held_commits import HeldCommits, TopicPartition

HERE, MOVING = ("t", 0), ("t", 1)


class Partitions:
    """Partitions of which some are on their way, and the commits that were enqueued, in order."""

    def __init__(self) -> None:
        self.moving = {MOVING}
        self.held = HeldCommits(lambda partition: partition in self.moving)
        self.enqueued: list[str] = []

    def begin(self, name: str, *partitions: TopicPartition, group_id: str = "g") -> "asyncio.Task[None]":
        async def commit() -> None:
            async with self.held.held(group_id, partitions):
                self.enqueued.append(name)

        return asyncio.create_task(commit())


@pytest.fixture
def partitions() -> Partitions:
    return Partitions()


def test_a_commit_is_held_only_for_partitions_that_are_on_their_way(partitions: Partitions) -> None:
    assert not partitions.held.must_wait("g", [HERE])
    assert partitions.held.must_wait("g", [HERE, MOVING])


async def test_commits_of_a_group_are_enqueued_in_the_order_of_their_requests(partitions: Partitions) -> None:
    first, second = partitions.begin("first", MOVING), partitions.begin("second", HERE)
    await asyncio.sleep(0)
    assert partitions.held.must_wait("g", [HERE])
    assert not partitions.held.must_wait("other", [HERE])
    await partitions.begin("other", HERE, group_id="other")
    assert partitions.enqueued == ["other"]
    partitions.moving.clear()
    await asyncio.gather(first, second)
    assert partitions.enqueued == ["other", "first", "second"]
    assert not partitions.held.must_wait("g", [HERE])


async def test_a_commit_that_is_given_up_lets_the_next_one_come(partitions: Partitions) -> None:
    first, second = partitions.begin("first", MOVING), partitions.begin("second", HERE)
    await asyncio.sleep(0)
    first.cancel()
    await second
    assert partitions.enqueued == ["second"]
    assert not partitions.held.must_wait("g", [HERE])


async def test_a_commit_is_not_held_for_longer_than_its_limit(partitions: Partitions) -> None:
    with patch.object(held_commits, "HELD_S", 0.0):
        await partitions.begin("late", MOVING)
    assert partitions.enqueued == ["late"]
