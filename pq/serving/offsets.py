"""Progress of every consumer group over all partitions. The offsets themselves are the partitions' (consumers.py)

event                    what happens
commit                   enqueued at the tablets of all its partitions in the same call, as one shard commit a cell
its commit is durable    the partitions and the index change; it is answered
its commit is refused    nothing changes; every partition of it is answered with a retriable error
topic deleted            its offsets are gone; a commit still on its way is answered UNKNOWN_TOPIC_OR_PARTITION

Commits of one group and partition are applied in the order of the calls: the KV tablets see to it. `settled` waits for
all commits of a group that were there before, so that nobody reads offsets which an earlier commit then changes.

A group outlives its last offset for offsets.retention.check.interval.ms, as in Kafka: it is empty, and DeleteGroups
deletes it. A restart forgets it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple

from pqbroker.pq.log.consumers import ConsumerOffset
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.store_refusals import GROUPS, store_refusal
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.engine import CommitRefused, ShardLost
from pqbroker.storage.kv.commands import Command
from pqbroker.storage.kv.joint_request import execute_together
from pqbroker.storage.kv.tablet import KeyValueTablet
from pqbroker.storage.outcome import Outcome

_log = logging.getLogger(__name__)

EMPTIED_GROUPS_MAX = 10_000
"""Groups that are remembered after their last offset went; the one that was emptied first is forgotten first."""

TopicPartition = tuple[str, int]
"""A topic's name and the index of one of its partitions."""

Outcomes = Mapping[TopicPartition, KafkaError | None]
"""Outcome of each partition's offset; None: it is durable."""

UnreadSince = Callable[[str, str], int | None]
"""Group id and topic: since when (ms) no member of the group reads the topic. None: one does. 0: nobody knows."""

class GroupOffsets:
    """Commits over several partitions, and the index from groups to partitions. `find` gives a partition's server."""

    def __init__(self, find: Callable[[str, int], PartitionServer | None]) -> None:
        self._find = find
        self._partitions: dict[str, set[TopicPartition]] = {}
        self._emptied: dict[str, int] = {}
        """Groups whose last offset went, in that order, and the time of the next look at them; 0: not looked at yet."""
        self._pending: dict[str, set[Outcome[None]]] = {}
        """Commits on their way, by group id."""
        self._stopped = False
        self._awaited: set[str] = set()
        """Topics of which some offsets are not known yet: their cell is not open."""

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, ConsumerOffset | None]) -> Awaitable[Outcomes]:
        """Store the offsets, or delete them (None), in one commit; enqueued in this call.

        A partition's own error (UNKNOWN_TOPIC_OR_PARTITION, OFFSET_METADATA_TOO_LARGE, …) leaves the others alone. When
        the store fails all others have COORDINATOR_NOT_AVAILABLE (refused) or NOT_COORDINATOR (lost).
        """
        changes = OffsetChanges(group_id, self._served)
        for partition, state in offsets.items():
            changes.add(partition, state)
        return self.enqueue(changes)

    def begin(self, group_id: str) -> "OffsetChanges":
        """A commit of so many partitions that they are planned in slices; `enqueue` or `give_up` has to follow."""
        return OffsetChanges(group_id, self._served)

    def enqueue(self, changes: "OffsetChanges") -> Awaitable[Outcomes]:
        """Store what was planned, as `commit` does."""
        shares = changes.by_cell()
        answer = _Answer(changes.outcomes, len(shares))
        for share in shares:
            committed = execute_together(list(share.parts.items()))
            self._pending.setdefault(changes.group_id, set()).add(committed)
            committed.add_done_callback(partial(self._settle, share, answer))
        return answer.given

    async def settled(self, group_id: str) -> None:
        """Return when the commits of the group that were asked for before this call are done."""
        for committed in tuple(self._pending.get(group_id, ())):
            await committed.wait()

    def is_committing(self, group_id: str) -> bool:
        """Return True if a commit of the group is on its way."""
        return group_id in self._pending

    def of(self, group_id: str) -> dict[TopicPartition, ConsumerOffset]:
        """The group's durable offsets, in the order of topics and partitions.

        KafkaError NOT_COORDINATOR when a cell is lost, or not open yet: an answer without offsets would send consumers
        to the start.
        """
        if self._awaited:
            raise _lost()
        found = {}
        for partition in sorted(self._partitions.get(group_id, ())):
            state = self._known(partition).consumers.get(group_id)
            assert state is not None, (group_id, partition)
            found[partition] = state
        return found

    def at(self, group_id: str, partition: TopicPartition) -> ConsumerOffset | None:
        """The group's durable offset in one partition. KafkaError NOT_COORDINATOR, as in `of`."""
        if partition not in self._partitions.get(group_id, ()):
            if partition[0] in self._awaited:
                self._known(partition)
            return None
        return self._known(partition).consumers.get(group_id)

    def groups(self) -> list[str]:
        """Return the groups that have offsets, or had until lately."""
        return [*self._partitions, *self._emptied]

    def has(self, group_id: str) -> bool:
        """Return True if the group has an offset anywhere."""
        return group_id in self._partitions

    def knows(self, group_id: str) -> bool:
        """Return True if the group has an offset anywhere, or had until lately."""
        return group_id in self._partitions or group_id in self._emptied

    def forget_group(self, group_id: str) -> None:
        """Forget a group that outlived its last offset, and whose deletion was asked for."""
        self._emptied.pop(group_id, None)

    def lag(self, group_id: str) -> dict[TopicPartition, int]:
        """Records that the group has not read in each of its partitions. KafkaError NOT_COORDINATOR."""
        offsets = self.of(group_id)
        return {partition: state.lag(self._known(partition).end_offset) for partition, state in offsets.items()}

    @property
    def are_known(self) -> bool:
        """Return True if all were read: no cell is awaited."""
        return not self._awaited

    def learn(self, topic: str, partitions: Iterable[PartitionServer], *, awaits_cell: bool = False) -> None:
        """A topic is served from now on, with the offsets that its partitions have; those of a cell that is awaited
        are not known yet."""
        if awaits_cell:
            self._awaited.add(topic)
        for server in partitions:
            for group_id in server.consumers.all():
                self._emptied.pop(group_id, None)
                self._partitions.setdefault(group_id, set()).add((topic, server.index))

    def forget(self, topic: str, partitions: Iterable[PartitionServer]) -> None:
        """A topic is served no more, or by other partitions."""
        self._awaited.discard(topic)
        for server in partitions:
            for group_id in server.consumers.all():
                self._discard(group_id, (topic, server.index))

    async def expire(self, now_ms: int, kept_ms: int, unread_since: UnreadSince) -> None:
        """Delete offsets that nobody has had a use for in `kept_ms`, or in the time that their commit gave."""
        for group_id in list(self._partitions):
            if group_id in self._pending:
                continue
            try:
                over = self._over(group_id, now_ms, now_ms - kept_ms, unread_since)
            except KafkaError as lost:
                _log.info("offsets expire later: %s", lost)
                return
            outcomes = await self.commit(group_id, dict.fromkeys(over))
            if refusal := next(filter(None, outcomes.values()), None):
                _log.warning("offsets of group %r expire later: %s", group_id, refusal)
            self._emptied.pop(group_id, None)  # a group goes with offsets that expire, as in Kafka

    def forget_emptied(self, now_ms: int, remembered_ms: int) -> None:
        """Forget groups that have been without offsets for `remembered_ms`, counted from the first of these calls."""
        for group_id, since_ms in list(self._emptied.items()):
            if not since_ms:
                self._emptied[group_id] = now_ms
            elif now_ms - since_ms >= remembered_ms:
                del self._emptied[group_id]

    def stop(self) -> None:
        """The cell is left: its offsets may be changed elsewhere, and nothing is answered here any more."""
        self._stopped = True

    def _over(
        self, group_id: str, now_ms: int, unread_before_ms: int, unread_since: UnreadSince
    ) -> list[TopicPartition]:
        """Partitions whose offset has expired. KafkaError NOT_COORDINATOR."""
        found = []
        for partition, state in self.of(group_id).items():
            unread_ms = unread_since(group_id, partition[0])
            if unread_ms is None:
                continue
            if state.expire_ms >= 0:
                is_over = state.expire_ms <= now_ms
            else:
                is_over = max(unread_ms, state.commit_ms) <= unread_before_ms
            if is_over:
                found.append(partition)
        return found

    def _settle(
        self, changes: "OffsetChanges", answer: "_Answer", committed: Outcome[None]
    ) -> None:
        """The commit of a cell is done: change its partitions and the index; answer when all cells are done."""
        group_id, outcomes = changes.group_id, changes.outcomes
        pending = self._pending[group_id]
        pending.discard(committed)
        if not pending:
            del self._pending[group_id]
        error = committed.exception()
        for partition, server, state, _ in changes.planned:
            server.consumers.settle(group_id, state, is_durable=error is None)
            outcomes[partition] = _translated(error)
            if error is not None:
                continue
            if self._stopped:
                continue
            if self._find(*partition) is not server:
                outcomes[partition] = _unknown()
            elif state is None:
                self._discard(group_id, partition)
            else:
                self._emptied.pop(group_id, None)
                self._partitions.setdefault(group_id, set()).add(partition)
        answer.cell_is_done(error)

    def _served(self, partition: TopicPartition) -> PartitionServer:
        """The partition, for a commit."""
        server = self._known(partition)
        if server.is_lost:
            raise _lost()
        return server

    def _known(self, partition: TopicPartition) -> PartitionServer:
        """The partition, for a look at its offsets: an unmounted tablet knows them, as it did before."""
        server = self._find(*partition)
        if self._stopped or (server is not None and not server.is_loaded and server.state.unreadable is None):
            raise _lost()
        if server is None:
            raise _unknown()
        server.check_readable()
        return server

    def _discard(self, group_id: str, partition: TopicPartition) -> None:
        partitions = self._partitions.get(group_id)
        if partitions is not None:
            partitions.discard(partition)
            if not partitions:
                del self._partitions[group_id]
                self._emptied[group_id] = 0
                if len(self._emptied) > EMPTIED_GROUPS_MAX:
                    del self._emptied[next(iter(self._emptied))]


class _Planned(NamedTuple):
    """One partition's offset on its way to its tablet."""

    partition: TopicPartition
    server: PartitionServer
    state: ConsumerOffset | None
    tablet: KeyValueTablet


class OffsetChanges:
    """Offsets of a group before their commit: planned at their partitions, and enqueued or given up."""

    __slots__ = ("_served", "group_id", "outcomes", "parts", "planned")

    def __init__(self, group_id: str, served: Callable[[TopicPartition], PartitionServer]) -> None:
        self._served = served
        self.group_id = group_id
        self.outcomes: dict[TopicPartition, KafkaError | None] = {}
        self.planned: list[_Planned] = []
        self.parts: dict[KeyValueTablet, list[Command]] = {}

    def add(self, partition: TopicPartition, state: ConsumerOffset | None) -> None:
        """Plan one partition's offset, or why it has none; each partition once."""
        try:
            server = self._served(partition)
            tablet, command = server.consumers.plan(self.group_id, state)
        except KafkaError as refusal:
            self.outcomes[partition] = refusal.with_traceback(None)  # its frames hold the outcomes
            return
        self.parts.setdefault(tablet, []).append(command)
        self.planned.append(_Planned(partition, server, state, tablet))

    def by_cell(self) -> "list[OffsetChanges]":
        """The changes of each cell, which is one commit; they share the outcomes."""
        if not self.parts:
            return []
        first = next(iter(self.parts)).storage
        if all(tablet.storage.shares_cell(first) for tablet in self.parts):
            return [self]
        found: list[OffsetChanges] = []
        for tablet, commands in self.parts.items():
            share = next((one for one in found if one._is_of(tablet)), None)
            if share is None:
                share = OffsetChanges(self.group_id, self._served)
                share.outcomes = self.outcomes
                found.append(share)
            share.parts[tablet] = commands
        for item in self.planned:
            next(one for one in found if item.tablet in one.parts).planned.append(item)
        return found

    def give_up(self) -> None:
        """Nothing of it is stored."""
        for _, server, state, _ in self.planned:
            server.consumers.settle(self.group_id, state, is_durable=False)


    def _is_of(self, tablet: KeyValueTablet) -> bool:
        return next(iter(self.parts)).storage.shares_cell(tablet.storage)


class _Answer:
    """Given when the commits of all cells are done."""

    __slots__ = ("_outcomes", "_waits_for", "given")

    def __init__(self, outcomes: Outcomes, cells: int) -> None:
        self._outcomes = outcomes
        self._waits_for = cells
        self.given: asyncio.Future[Outcomes] = asyncio.get_running_loop().create_future()
        if not cells:
            self.given.set_result(outcomes)

    def cell_is_done(self, error: BaseException | None) -> None:
        """The commit of one cell more is done; an error that the store does not raise is a defect, and raised."""
        self._waits_for -= 1
        if self.given.done():
            return
        if error is not None and not isinstance(error, CommitRefused | ShardLost):
            self.given.set_exception(error)
        elif not self._waits_for:
            self.given.set_result(self._outcomes)


def nobody_knows(_group_id: str, _topic: str) -> int:
    """An `UnreadSince` of a node without groups."""
    return 0


def _unknown() -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "this broker has no such topic or partition")


def _translated(error: BaseException | None) -> KafkaError | None:
    return None if error is None else store_refusal(error, GROUPS) or _lost()


def _lost() -> KafkaError:
    return KafkaError(GROUPS.lost, GROUPS.lost_text)
