"""Ends of transactions in one commit: the decision, markers and offsets of all that were decided together.

    decided --every participant can write now--> waits --its round--> one request --durable--> ended
        |                                                                  |-------refused---> in the usual way
        '-- one lives in another cell, is held, is slow, or they are many -------------------> in the usual way

The usual way (`ending.py`): the decision is durable first, markers and offsets follow. One round is under way at a
time; what is decided meanwhile shares the next one, so that its partitions and coordinators write once for all of it.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from pqbroker.broker.services.commits.commit import CommitUnknown
from pqbroker.broker.services.commits.commits import Commits
from pqbroker.broker.services.commits.ids_part import IdsPart
from pqbroker.broker.services.coordination.coordinator import Coordinator
from pqbroker.broker.services.transactional_producers.ending import (
    coming_offsets,
    find_server,
    log_left_behind,
    marker_of,
)
from pqbroker.pq.log.consumers import ConsumerOffset
from pqbroker.pq.serving.end_markers import MARKERS_AT_ONCE
from pqbroker.pq.serving.markers_part import MarkersPart
from pqbroker.pq.serving.offsets import OffsetsPart, TopicPartition
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.topics import Topics
from pqbroker.pq.transactions.participants import BesidePart
from pqbroker.protocol.errors import KafkaError
from pqbroker.storage.engine import CommitRefused, ShardLost
from pqbroker.storage.outcome import Told
from pqbroker.storage.tablets.coordinator_rows import PartitionId, PendingOffset, TransactionalImage
from pqbroker.tables.refusals import TableError

WRITES_AT_ONCE: Final = 200
"""Markers and offsets of one round: a turn of the loop plans them."""
HELD_S: Final = 0.25
"""Seconds that partitions of a round may wait for others."""
SLOW_S: Final = 10.0
"""Seconds in which a partition that was waited for in vain has its markers in the usual way."""
SLOW_MAX: Final = 1000
"""Slow partitions that are known; more, and all are forgotten."""

log = logging.getLogger(__name__)


class Ending(NamedTuple):
    """A decided transaction. `told`: called once; None: all of it is durable, an error: nothing is known to be."""

    coordinator: Coordinator
    decided: TransactionalImage
    completed: TransactionalImage
    told: Told

    @property
    def weight(self) -> int:
        return len(self.decided.partitions) + len(self.decided.offsets)


class EndRounds:
    """Rounds of one opening of the system cell. `clock`: milliseconds since 1970."""

    def __init__(self, topics: Topics, commits: Commits, clock: Callable[[], int]) -> None:
        self._topics = topics
        self._commits = commits
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._waiting: list[Ending] = []
        self._task: asyncio.Task[None] | None = None
        self._slow: dict[PartitionId, float] = {}
        """The loop's time until which partitions are left to the usual way."""

    def takes(self, coordinator: Coordinator, decided: TransactionalImage) -> bool:
        """Return True if a transaction can be ended in one commit, as far as is known now."""
        if len(decided.partitions) + len(decided.offsets) > WRITES_AT_ONCE:
            return False
        storage = coordinator.storage
        for partition in sorted(decided.partitions):
            server = find_server(self._topics, partition)
            if server is None:
                continue
            if not (server.writer.is_prompt and server.storage.shares_cell(storage)) or self._is_slow(partition):
                return False
        for pending in decided.offsets:
            server = find_server(self._topics, pending.partition)
            if server is not None and (server.is_lost or not server.storage.shares_cell(storage)):
                return False
        return True

    def add(self, ending: Ending) -> None:
        """End a transaction with the next round."""
        self._waiting.append(ending)
        self._go_on()

    def _go_on(self) -> None:
        if self._waiting and self._task is None:
            self._task = self._loop.create_task(self._run())
            self._task.add_done_callback(self._ended)

    async def _run(self) -> None:
        while self._waiting:
            endings = self._take()
            error: BaseException | None = CommitRefused("the round of ends failed")
            try:
                await self._commit(endings)
                error = None
            except (CommitRefused, CommitUnknown, ShardLost, KafkaError, TableError) as refusal:
                log.debug("%d transactions are ended in the usual way: %s", len(endings), refusal)
                error = refusal
            finally:
                for ending in endings:
                    ending.told(error)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._task = None
        if task.cancelled():
            return
        if (defect := task.exception()) is not None:
            log.critical("a round of ends of transactions failed; this is a defect", exc_info=defect)
        self._go_on()  # what came after the last look of the task, and before this call

    def _take(self) -> Sequence[Ending]:
        """Return the endings of the next round: at least one."""
        count, weight = 0, 0
        for ending in self._waiting[:MARKERS_AT_ONCE]:
            weight += ending.weight
            if count and weight > WRITES_AT_ONCE:
                break
            count += 1
        taken = self._waiting[:count]
        del self._waiting[:count]
        return taken

    def parts_of(self, endings: Sequence[Ending]) -> tuple[Mapping[PartitionId, MarkersPart], Sequence[OffsetsPart]]:
        """Return the markers and offsets that end some transactions."""
        return self._marker_parts(endings), self._offset_parts(endings)

    async def _commit(self, endings: Sequence[Ending]) -> None:
        """Commit all of them. CommitRefused, KafkaError, TableError: none of it is stored; CommitUnknown, ShardLost."""
        parts, offsets = self.parts_of(endings)
        beside: list[BesidePart] = [*_id_parts(endings), *offsets]
        try:
            await self._commits.end_together(list(parts.values()), beside, HELD_S)
        except TableError:
            self._note_slow(parts)
            raise
        for partition, part in parts.items():
            for refusal in part.refused:
                log_left_behind(partition, refusal)

    def _marker_parts(self, endings: Sequence[Ending]) -> Mapping[PartitionId, MarkersPart]:
        found: dict[PartitionId, tuple[PartitionServer, list[Ending]]] = {}
        for ending in endings:
            for partition in sorted(ending.decided.partitions):
                server = find_server(self._topics, partition)
                if server is not None:
                    found.setdefault(partition, (server, []))[1].append(ending)
        return {
            partition: MarkersPart(
                server, [marker_of(each.decided, each.coordinator.generation) for each in some], self._clock
            )
            for partition, (server, some) in found.items()
        }

    def _offset_parts(self, endings: Sequence[Ending]) -> Sequence[OffsetsPart]:
        by_group: dict[str, list[PendingOffset]] = {}
        for ending in endings:
            for pending in ending.decided.offsets:
                by_group.setdefault(pending.group_id, []).append(pending)
        storage = endings[0].coordinator.storage

        def offsets_of(group_id: str) -> Callable[[], Mapping[TopicPartition, ConsumerOffset]]:
            return lambda: dict(coming_offsets(self._topics, group_id, by_group[group_id]).values())

        return [OffsetsPart(self._topics.offsets, each, storage, offsets_of(each)) for each in by_group]

    def _is_slow(self, partition: PartitionId) -> bool:
        until_s = self._slow.get(partition)
        if until_s is None:
            return False
        if until_s > self._loop.time():
            return True
        del self._slow[partition]
        return False

    def _note_slow(self, parts: Mapping[PartitionId, MarkersPart]) -> None:
        """Leave partitions that were waited for in vain to the usual way for a while."""
        if len(self._slow) + len(parts) > SLOW_MAX:
            self._slow.clear()
        until_s = self._loop.time() + SLOW_S
        self._slow.update((partition, until_s) for partition, part in parts.items() if not part.is_holding)


def _id_parts(endings: Sequence[Ending]) -> Sequence[IdsPart]:
    """Return a part for each coordinator, in the order of tablets: rounds and other commits hold them in that order."""
    found: dict[int, tuple[Coordinator, list[TransactionalImage]]] = {}
    for ending in endings:
        number = ending.coordinator.storage.tablet_id
        found.setdefault(number, (ending.coordinator, []))[1].append(ending.completed)
    return [IdsPart(*found[number]) for number in sorted(found)]
