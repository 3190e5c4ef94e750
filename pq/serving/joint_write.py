"""Batches for several partitions of a cell as one commit: all of them are stored, or none.

    planned by each partition's writer, when its turn comes --all are--> one request --durable--> applied in all
                                 --one is refused, held or lost--> rolled back in all

The call takes its place in every writer's queue in one turn of the loop, so that two calls stand in the same order in
all queues that they share, and none waits for the other in a circle.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from pqbroker.pq.log.blob_cycles import plan_batches
from pqbroker.pq.log.partition import Partition
from pqbroker.pq.log.row_facts import Weighed
from pqbroker.pq.log.session_cycles import why_late
from pqbroker.pq.log.sessions import Fence, SessionBatch
from pqbroker.pq.log.transacted_cycles import remember
from pqbroker.pq.log.write_cycle import Cycle, Written
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.store_refusals import not_leader
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.records import BatchHeader
from pqbroker.storage.engine import CommitRefused, ShardLost
from pqbroker.storage.kept_errors import raised_again
from pqbroker.storage.kv.commands import Command
from pqbroker.storage.kv.joint_request import execute_together
from pqbroker.storage.kv.tablet import KeyValueTablet
from pqbroker.storage.outcome import Outcome, Told


class Share(NamedTuple):
    """The checked batches that one partition is to store."""

    partition: PartitionServer
    batches: Sequence[tuple[memoryview, BatchHeader]]
    weights: Sequence[Weighed] = ()
    """Weights of the rows of each batch; empty: none are kept."""

    @property
    def size(self) -> int:
        return sum([len(batch) for batch, _ in self.batches])

    @property
    def row_count(self) -> int:
        return sum([header.record_count for _, header in self.batches])


async def write_together(
    shares: Sequence[Share], fence: Fence | None, clock: Callable[[], int]
) -> Sequence[Sequence[Written]]:
    """Write batches and return where they are, by share. One share a partition, all partitions of one cell; durable
    when this returns. `fence`: what the batches are remembered by, in each partition.

    KafkaError as `PartitionServer.write`; nothing is stored then, but where the cell was lost nobody knows.
    """
    return await _JointWrite(shares, fence, clock).write()


def is_of_one_cell(partitions: Sequence[PartitionServer]) -> bool:
    """Return True if one request can write to all of the partitions."""
    first, *others = [partition.storage for partition in partitions]
    return all(storage.shares_cell(first) for storage in others)


def batches_taken(partitions: Sequence[PartitionServer], session: str) -> dict[int, SessionBatch]:
    """Return the last batch of a session in each partition, by partition. NOT_LEADER_OR_FOLLOWER where some partition
    may know more."""
    for partition in partitions:
        if not partition.is_loaded:
            raise not_leader()
        if partition.known_transactions is not None and partition.known_transactions.prepared:
            text = f"{partition.known_transactions.why_held}: retry"  # it may be this session's batch
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, text)
    found = ((partition.index, partition.state.sessions.get(session)) for partition in partitions)
    return {index: batch for index, batch in found if batch is not None}


class _Ready(NamedTuple):
    """A cycle that waits for the others."""

    kv: KeyValueTablet
    cycle: Cycle
    told: Told


class _JointWrite:
    """One call."""

    __slots__ = ("_clock", "_fence", "_is_sent", "_planned", "_ready", "_refusal", "_shares", "_written")

    def __init__(self, shares: Sequence[Share], fence: Fence | None, clock: Callable[[], int]) -> None:
        self._shares = shares
        self._fence = fence
        self._clock = clock
        self._planned: list[tuple[Partition, Cycle]] = []
        self._ready: list[_Ready] = []
        self._written: list[Sequence[Written]] = [()] * len(shares)
        self._refusal: KafkaError | None = None
        self._is_sent = False

    async def write(self) -> Sequence[Sequence[Written]]:
        jobs = [
            share.partition.writer.perform(partial(self._plan, number), share.size)
            for number, share in enumerate(self._shares)
        ]
        for job in jobs:
            job.add_done_callback(self._heard)
        for job in jobs:
            await job.wait()
        if self._refusal is not None:
            raise raised_again(self._refusal)
        for job in jobs:
            job.result()
        return self._written

    def commit(self, kv: KeyValueTablet, cycle: Cycle, told: Told) -> None:
        """Commit as `JointCommit` does."""
        self._ready.append(_Ready(kv, cycle, told))
        if self._refusal is not None:
            self._roll_back()
        elif len(self._ready) == len(self._shares):
            self._is_sent = True
            self._stamp()
            parts: dict[KeyValueTablet, list[Command]] = defaultdict(list)
            for one in self._ready:
                parts[one.kv] += one.cycle.as_commands()
            execute_together(list(parts.items())).add_done_callback(self._settle)

    def give_up(self, why: KafkaError) -> None:
        """Give up as `JointCommit` does; too late when the request is on its way."""
        if self._is_sent or self._refusal is not None:
            return
        self._refusal = why
        self._roll_back()

    def _stamp(self) -> None:
        """Give all rows one timestamp, the last one that was given for any of them: that is above those of all rows
        before, in each partition, since none of them has planned another cycle meanwhile."""
        timestamp = max(0 if cycle.rows is None else cycle.rows.greatest_timestamp for _, cycle in self._planned)
        for partition, cycle in self._planned:
            partition.stamp(cycle, timestamp)

    def _plan(self, number: int) -> Cycle:
        partition, batches, weights = self._shares[number]
        late = None if self._fence is None else why_late(partition.state, self._fence)
        if late is not None:
            self.give_up(late)
        if self._refusal is not None:
            return partition.state.no_change(self._clock())
        cycle = plan_batches(partition.state, batches, self._clock(), weights)
        written = [outcome for outcome in cycle.outcomes if isinstance(outcome, Written)]
        refusals = [outcome for outcome in cycle.outcomes if isinstance(outcome, KafkaError)]
        cycle.outcomes = []
        if refusals:
            if not cycle.is_empty:
                partition.state.rollback(cycle)
            self.give_up(refusals[0])
            return partition.state.no_change(self._clock())
        if self._fence is not None:
            remember(partition.state, cycle, self._fence)
        self._written[number] = written
        self._planned.append((partition.state, cycle))
        cycle.joint = self
        return cycle

    def _heard(self, job: Outcome[None]) -> None:
        error = job.exception()
        if isinstance(error, KafkaError):
            self.give_up(error)

    def _roll_back(self) -> None:
        ready, self._ready = self._ready, []
        for _, _, told in ready:
            asyncio.get_running_loop().call_soon(told, CommitRefused(str(self._refusal)))

    def _settle(self, request: Outcome[None]) -> None:
        error = request.exception()
        for kv, _, told in self._ready:
            told(CommitRefused(str(error)) if isinstance(error, ShardLost) and kv.lost is None else error)
