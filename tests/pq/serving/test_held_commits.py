"""Commits of offsets that wait for partitions on their way between nodes: in order, group by group, for a while."""

import asyncio
from collections.abc import Awaitable, Mapping
from unittest.mock import patch

import pytest

from pqbroker.pq.log.consumers import ConsumerOffset
from pqbroker.pq.serving import held_commits
from pqbroker.pq.serving.held_commits import HeldCommits, Offsets, Outcomes, TopicPartition
from pqbroker.protocol.errors import ErrorCode, KafkaError

HERE, MOVING = ("t", 0), ("t", 1)
LOST = KafkaError(ErrorCode.NOT_COORDINATOR, "the store is lost")


class Partitions:
    """Partitions of which some are on their way, and the commits that were enqueued, in order. A commit is done at
    once, with the outcomes that `refusals` has next, unless it is kept."""

    def __init__(self) -> None:
        self.moving = {MOVING}
        self.held = HeldCommits(lambda partition: partition in self.moving, is_used=True)
        self.enqueued: list[int] = []
        self.refusals: list[KafkaError] = []
        self.kept: asyncio.Future[Outcomes] | None = None
        self.check: KafkaError | None = None

    def begin(self, number: int, *partitions: TopicPartition, group_id: str = "g") -> "asyncio.Task[Outcomes]":
        """Begin a commit; return once it is enqueued or held."""
        offsets = dict.fromkeys(partitions, ConsumerOffset(number))
        return asyncio.create_task(self.held.commit(group_id, offsets, self._enqueue))

    def _enqueue(self, offsets: Offsets) -> Awaitable[Outcomes]:
        if self.check is not None:
            raise self.check
        self.enqueued += {state.offset for state in offsets.values() if state is not None}
        done: asyncio.Future[Mapping[TopicPartition, KafkaError | None]] = asyncio.get_running_loop().create_future()
        if self.kept is not None:
            done, self.kept = self.kept, None
        else:
            done.set_result(dict.fromkeys(offsets, self.refusals.pop(0) if self.refusals else None))
        return done


@pytest.fixture
def partitions() -> Partitions:
    return Partitions()


async def test_commits_of_a_group_are_enqueued_in_the_order_of_their_requests(partitions: Partitions) -> None:
    first, second = partitions.begin(1, MOVING), partitions.begin(2, HERE)
    assert await partitions.begin(3, HERE, group_id="other") == {HERE: None}
    assert partitions.enqueued == [3]
    partitions.moving.clear()
    assert (await first, await second) == ({MOVING: None}, {HERE: None})
    assert partitions.enqueued == [3, 1, 2]


async def test_a_commit_that_is_given_up_lets_the_next_one_come(partitions: Partitions) -> None:
    first, second = partitions.begin(1, MOVING), partitions.begin(2, HERE)
    await asyncio.sleep(0)
    first.cancel()
    await second
    assert partitions.enqueued == [2]


async def test_a_commit_is_not_held_for_longer_than_its_limit(partitions: Partitions) -> None:
    partitions.refusals.append(LOST)
    with patch.object(held_commits, "COMMIT_HELD_S", 0.0):
        assert await partitions.begin(1, MOVING) == {MOVING: LOST}
    assert partitions.enqueued == [1]


async def test_what_a_move_has_lost_is_committed_again(partitions: Partitions) -> None:
    partitions.refusals += [LOST, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "refused")]
    assert await partitions.begin(1, HERE) == {HERE: None}
    assert partitions.enqueued == [1, 1, 1]


@pytest.mark.parametrize("is_closed", [False, True])
async def test_only_what_passes_is_committed_again_and_nothing_by_a_node_that_stops(
    partitions: Partitions, *, is_closed: bool
) -> None:
    refusal = LOST if is_closed else KafkaError(ErrorCode.OFFSET_METADATA_TOO_LARGE, "")
    partitions.refusals.append(refusal)
    if is_closed:
        partitions.held.close()
    assert await partitions.begin(1, HERE) == {HERE: refusal}
    assert partitions.enqueued == [1]


async def test_a_commit_is_not_tried_again_behind_a_later_one_of_its_partition(partitions: Partitions) -> None:
    kept = partitions.kept = asyncio.get_running_loop().create_future()
    first = partitions.begin(1, HERE)
    await asyncio.sleep(0)
    of_second = partitions.kept = asyncio.get_running_loop().create_future()
    second = partitions.begin(2, HERE)
    await asyncio.sleep(0)
    kept.set_result({HERE: LOST})
    assert await first == {HERE: LOST}
    of_second.set_result({HERE: None})
    assert await second == {HERE: None}
    assert partitions.enqueued == [1, 2]
    assert await partitions.begin(3, HERE) == {HERE: None}


async def test_a_member_that_has_left_does_not_commit_again_nor_is_told_that_nothing_is_stored(
    partitions: Partitions,
) -> None:
    kept = partitions.kept = asyncio.get_running_loop().create_future()
    first = partitions.begin(1, HERE)
    await asyncio.sleep(0)
    partitions.check = KafkaError(ErrorCode.ILLEGAL_GENERATION, "")
    kept.set_result({HERE: LOST})
    assert await first == {HERE: LOST}
    assert partitions.enqueued == [1]
    with pytest.raises(KafkaError, match="ILLEGAL_GENERATION"):
        await partitions.begin(2, HERE)


async def test_a_commit_does_not_pass_one_that_is_held_where_the_one_between_is_cancelled(
    partitions: Partitions,
) -> None:
    first, second = partitions.begin(1, MOVING), partitions.begin(2, HERE)
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.wait([second])
    third = partitions.begin(3, HERE)
    for _ in range(5):
        await asyncio.sleep(0)
    assert partitions.enqueued == []
    partitions.moving.clear()
    assert (await first, await third) == ({MOVING: None}, {HERE: None})
    assert partitions.enqueued == [1, 3]
