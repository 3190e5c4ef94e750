"""Commits of offsets that are held back for a moment: their partitions are on the way from one node to another.

Clients see a slow answer then. A refusal would reach their programs: librdkafka retries one commit a few times only.

    comes       a partition is awaited, or an earlier commit of its group is held   held
    comes       none is                                                              enqueued
    held        its offsets are known, or its time is over                           enqueued
    enqueued    the store refuses or loses it, nothing later has its partitions      held
    held        the group refuses it meanwhile                                       answered as refused or lost
    enqueued    the store has it, or its time is over                                answered
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Final

from pqbroker.pq.log.consumers import ConsumerOffset
from pqbroker.protocol.errors import ErrorCode, KafkaError

COMMIT_HELD_S: Final = 5.0
"""Seconds that a commit is held at most. Heartbeats of the client may wait behind it on their connection: this is less
than the shortest session that a group has by default."""
_LOOK_S: Final = 0.02
_PASSING: Final = frozenset(
    (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
)

TopicPartition = tuple[str, int]
"""A topic's name and the index of one of its partitions."""
Offsets = Mapping[TopicPartition, ConsumerOffset | None]
Outcomes = Mapping[TopicPartition, KafkaError | None]
"""Outcome of each partition's offset; None: it is durable."""
Enqueue = Callable[[Offsets], Awaitable[Outcomes]]
"""Checks that these offsets may be committed now, and enqueues them, both in the call. KafkaError."""


class HeldCommits:
    """Commits by group, in the order in which they came. `is_awaited`: returns True for a partition whose offsets are
    not known yet, and will be. `is_used` False: nothing is held, because no other node has partitions."""

    def __init__(self, is_awaited: Callable[[TopicPartition], bool], *, is_used: bool) -> None:
        self.is_used = is_used
        self._is_awaited = is_awaited
        self._held: dict[str, asyncio.Future[None]] = {}
        """The commit of each group that came last, of those that are held; resolves when that is enqueued."""
        self._latest: dict[tuple[str, TopicPartition], int] = {}
        """Number of the last commit of a group that has a partition, while it is under way."""
        self._commits = 0

    def close(self) -> None:
        """Hold nothing any more: what is not known now will not be known here."""
        self.is_used = False

    async def commit(self, group_id: str, offsets: Offsets, enqueue: Enqueue) -> Outcomes:
        """Commit offsets in the order of the calls; again where a partition moves away meanwhile. KafkaError where the
        first call of `enqueue` raises it."""
        until = asyncio.get_running_loop().time() + COMMIT_HELD_S
        self._commits += 1
        number = self._commits
        self._latest.update(dict.fromkeys(((group_id, each) for each in offsets), number))
        try:
            async with self.held(group_id, offsets, until):
                enqueued = enqueue(offsets)
            outcomes = dict(await enqueued)
            while again := self._again(group_id, number, offsets, outcomes, until):
                await asyncio.sleep(_LOOK_S)
                async with self.held(group_id, again, until):
                    repeated = self._enqueue_again(group_id, number, again, enqueue)
                if repeated is None:
                    break  # an earlier try may be stored though its outcome was lost: its refusal stands
                outcomes.update(await repeated)
            return outcomes
        finally:
            for each in offsets:
                if self._latest.get((group_id, each)) == number:
                    del self._latest[group_id, each]

    def _again(self, group_id: str, number: int, offsets: Offsets, outcomes: Outcomes, until: float) -> Offsets:
        """Return what a commit tries again: nothing that a later one has."""
        if not self.is_used or asyncio.get_running_loop().time() >= until:
            return {}
        return {
            each: offsets[each] for each, refusal in outcomes.items()
            if refusal is not None and refusal.code in _PASSING and self._latest.get((group_id, each)) == number
        }

    def _enqueue_again(
        self, group_id: str, number: int, offsets: Offsets, enqueue: Enqueue
    ) -> Awaitable[Outcomes] | None:
        """Enqueue what no later commit has by now; None if the group has gone on, and refuses it."""
        left = {each: state for each, state in offsets.items() if self._latest.get((group_id, each)) == number}
        try:
            return enqueue(left)
        except KafkaError:
            return None

    @asynccontextmanager
    async def held(
        self, group_id: str, partitions: Collection[TopicPartition], until: float | None = None
    ) -> AsyncIterator[None]:
        """Enter the block, which enqueues the commit, once the offsets are known, or at a time of the loop, in
        `COMMIT_HELD_S` unless it is given. Blocks of one group are entered in the order of the calls."""
        before = self._held.get(group_id)
        if before is None and not self._are_awaited(partitions):
            yield
            return
        loop = asyncio.get_running_loop()
        enqueued = self._held[group_id] = loop.create_future()
        until = loop.time() + COMMIT_HELD_S if until is None else until
        try:
            if before is not None:
                await asyncio.wait([before])
            while self._are_awaited(partitions) and loop.time() < until:  # noqa: ASYNC110 (many events)
                await asyncio.sleep(_LOOK_S)
            yield
        finally:
            if before is None or before.done():
                self._let_next(group_id, enqueued)
            else:  # cancelled while it waited: who comes behind it waits for the same
                before.add_done_callback(lambda _: self._let_next(group_id, enqueued))

    def _let_next(self, group_id: str, enqueued: asyncio.Future[None]) -> None:
        enqueued.set_result(None)
        if self._held[group_id] is enqueued:
            del self._held[group_id]

    def _are_awaited(self, partitions: Collection[TopicPartition]) -> bool:
        return self.is_used and any(map(self._is_awaited, partitions))
