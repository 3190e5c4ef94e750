"""Progress of every consumer group over all partitions. The offsets themselves are the partitions' (consumers.py)

event                    what happens
commit                   enqueued at the tablets of all its partitions in the same call, as one shard commit a cell
commit of many offsets   slices of it are commits, one behind the other; later ones of the group stand behind them all
its commit is durable    the partitions and the index change; it is answered
its commit is refused    nothing changes; every partition of it is answered with a retriable error
topic deleted            its offsets are gone; a commit still on its way is answered UNKNOWN_TOPIC_OR_PARTITION

Commits of one group and partition are applied in the order of the calls: the KV tablets see to it. `settled` waits for
all commits of a group that were there before, so that nobody reads offsets which an earlier commit then changes.

Of a partition that another node runs this one may have a copy of the offsets (`take_copy`), and changes them over
there; without a copy they are not known, as while a cell is not open.

A group outlives its last offset for offsets.retention.check.interval.ms, as in Kafka: it is empty, and DeleteGroups
deletes it. A restart forgets it.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from typing import NamedTuple

from pqbroker.pq.log.consumers import ConsumerOffset
from pqbroker.pq.serving.elsewhere import KnownElsewhere, WayElsewhere, Ways
from pqbroker.pq.serving.held_commits import HeldCommits
from pqbroker.pq.serving.held_commits import Outcomes as Outcomes
from pqbroker.pq.serving.held_commits import TopicPartition as TopicPartition
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.store_refusals import GROUPS, store_refusal
from pqbroker.pq.transactions.stored_forms import CommitDecision
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.engine import CommitRefused, ShardLost
from pqbroker.storage.kv.commands import Command
from pqbroker.storage.kv.joint_request import BatchBeside, TabletCommands, execute_together
from pqbroker.storage.kv.tablet import KeyValueTablet
from pqbroker.storage.outcome import Outcome
from pqbroker.storage.tablets.tablet import TabletStorage

_log = logging.getLogger(__name__)

EMPTIED_GROUPS_MAX = 10_000
"""Groups that are remembered after their last offset went; the one that was emptied first is forgotten first."""

COMMITTED_AT_ONCE_MAX = 500
"""Offsets of one commit: those of more are several commits, one behind the other, since each takes one turn."""
LOOKED_AT_ONCE_MAX = 100
"""Offsets looked at between two turns of the loop."""

UnreadSince = Callable[[str, str], int | None]
"""Group id and topic: since when (ms) no member of the group reads the topic. None: one does. 0: nobody knows."""

class GroupOffsets:
    """Commits over several partitions, and the index from groups to partitions. `find` gives a partition's server."""

    def __init__(
        self, find: Callable[[str, int], PartitionServer | None], *, takes_copies: bool = False
    ) -> None:
        """`takes_copies`: offsets that other nodes have will be known here, so what needs them now waits for it."""
        self._find = find
        self._partitions: dict[str, set[TopicPartition]] = {}
        self._emptied: dict[str, int] = {}
        """Groups whose last offset went, in that order, and the time of the next look at them; 0: not looked at yet."""
        self._pending: dict[str, dict[_Answer, bool]] = {}
        """Answers on their way, by group id; True: one of slices, or one that stands behind such a one."""
        self._stopped = False
        self._awaited: set[str] = set()
        """Topics of which some offsets are not known yet: their cell is not open."""
        self.ways: Ways = {}
        """Partitions of other nodes with copies of their offsets; changed by `take_copy` and `drop_copy` alone."""
        self._ends: dict[PartitionServer, int] = {}
        """Ends of these partitions, as their nodes have reported them."""
        self.held = HeldCommits(self._is_on_its_way, is_used=takes_copies)
        self._looks = count(1)
        """Offsets looked at in turns, of all groups: those of many small groups are as many as those of a large one."""

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, ConsumerOffset | None]) -> Awaitable[Outcomes]:
        """Store the offsets, or delete them (None), in one commit, several where they are many; enqueued in this call.

        A partition's own error (UNKNOWN_TOPIC_OR_PARTITION, OFFSET_METADATA_TOO_LARGE, …) leaves the others alone. When
        the store fails all others have COORDINATOR_NOT_AVAILABLE (refused) or NOT_COORDINATOR (lost).
        """
        changes = self.begin(group_id)
        for partition, state in offsets.items():
            changes.add(partition, state)
        return self.enqueue(changes)

    def begin(self, group_id: str) -> "OffsetChanges":
        """Begin a commit whose partitions are planned in slices, since they are many; `enqueue` or `give_up` must
        follow."""
        return OffsetChanges(group_id, self._served, self.ways)

    async def plan_deletion(self, group_id: str) -> "OffsetChanges":
        """Plan to delete all offsets of a group that exist when this returns, with turns for others between them.
        `enqueue` or `give_up` must follow. KafkaError as `of`."""
        changes = self.begin(group_id)
        try:
            await self._plan_deletion(changes)
        except BaseException:
            changes.give_up()
            raise
        return changes

    def enqueue(self, changes: "OffsetChanges") -> Awaitable[Outcomes]:
        """Store what was planned, as `commit` does."""
        shares = changes.by_cell()
        is_long = len(changes.planned) > COMMITTED_AT_ONCE_MAX
        commits = [each for share in shares for each in share.in_slices()] if is_long else shares
        answer = _Answer(changes.outcomes, len(commits))
        if commits:
            self._begin(changes.group_id, commits, answer, is_long=is_long)
        return answer.given

    def begin_beside(self, changes: "OffsetChanges") -> Callable[[BaseException | None], None]:
        """Note that a commit of several tablets stores what was planned, with the commands of its own request: other
        commits of the group stand behind it. Return what is called with its outcome."""
        answer = _Answer(changes.outcomes, 1)
        self._pending.setdefault(changes.group_id, {})[answer] = True

        def settle(error: BaseException | None) -> None:
            committed: Outcome[None] = Outcome()
            committed.settle(error)
            self._settle(changes, answer, committed)

        return settle

    async def settled(self, group_id: str) -> None:
        """Return when the commits of the group that were asked for before this call are done."""
        for answer in tuple(self._pending.get(group_id, ())):
            await answer.is_over.wait()

    async def all_settled(self) -> None:
        """Return when the commits of all groups that were asked for before this call are done."""
        for group_id in tuple(self._pending):
            await self.settled(group_id)

    def is_committing(self, group_id: str) -> bool:
        """Return True if a commit of the group is on its way."""
        return group_id in self._pending

    def of(self, group_id: str) -> dict[TopicPartition, ConsumerOffset]:
        """The group's durable offsets, in the order of topics and partitions.

        KafkaError NOT_COORDINATOR when a cell is lost, or not open yet: an answer without offsets would send consumers
        to the start. COORDINATOR_LOAD_IN_PROGRESS where they are another node's and will be known.
        """
        return dict(self.each_of(group_id))

    def each_of(self, group_id: str) -> Iterator[tuple[TopicPartition, ConsumerOffset]]:
        """Yield what `of` returns, each as it is looked at: others may have their turns between them. KafkaError."""
        if self._awaited:
            raise self._unknown_yet(next(iter(self._awaited)))
        for partition in sorted(self._partitions.get(group_id, ())):
            state = self.at(group_id, partition)
            if state is not None:
                yield partition, state

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

    def each_lag(self, group_id: str) -> Iterator[tuple[TopicPartition, int]]:
        """Yield the records that the group has not read in each of its partitions. KafkaError as `each_of`."""
        for partition, state in self.each_of(group_id):
            yield partition, state.lag(self.end_of(self._known(partition)))

    def end_of(self, server: PartitionServer) -> int:
        """Return the end of a partition: of one that another node runs the end that this has reported last."""
        return self._ends.get(server, server.end_offset)

    def take_end(self, server: PartitionServer, end: int) -> None:
        """Take the end of a partition that another node runs, where its offsets are known here."""
        if server in self.ways:
            self._ends[server] = end

    def places(self) -> list[TopicPartition]:
        """Return the partitions in which groups have offsets."""
        return list(set[TopicPartition]().union(*self._partitions.values()))

    @property
    def are_known(self) -> bool:
        """Return True if all were read: no cell is awaited."""
        return not self._awaited

    def learn(self, topic: str, partitions: Iterable[PartitionServer]) -> None:
        """A topic is served from now on, with the offsets that its partitions have; those of a partition whose cell is
        not open here are not known."""
        for server in partitions:
            if not self._is_known(server):
                self._awaited.add(topic)
            for group_id in server.consumers.all():
                self._emptied.pop(group_id, None)
                self._partitions.setdefault(group_id, set()).add((topic, server.index))

    @property
    def awaited(self) -> Sequence[str]:
        """Return the topics of which some offsets are not known."""
        return tuple(sorted(self._awaited))

    def take_copy(
        self, topic: str, partitions: Sequence[PartitionServer],
        copies: Mapping[PartitionServer, tuple[KnownElsewhere, dict[str, ConsumerOffset]]],
    ) -> None:
        """Have the offsets of some of a topic's partitions, which another node runs, be known from now on.
        `partitions`: all of the topic."""
        for server, (known, states) in copies.items():
            self._forget_server(topic, server)
            server.consumers.take(states)
            self.ways[server] = known
            self._ends[server] = known.end
            for group_id in states:
                self._emptied.pop(group_id, None)
                self._partitions.setdefault(group_id, set()).add((topic, server.index))
        if all(map(self._is_known, partitions)):
            self._awaited.discard(topic)

    def drop_copy(self, topic: str, partitions: Iterable[PartitionServer]) -> None:
        """Have the offsets of partitions that another node runs not be known any more: they may have changed there."""
        for server in partitions:
            if server in self.ways:
                self._forget_server(topic, server)
                server.consumers.take({})
                self._awaited.add(topic)

    def expect(self, topic: str) -> None:
        """Have offsets of a topic be awaited: some of its partitions have moved to another node."""
        self._awaited.add(topic)

    def forget(self, topic: str, partitions: Iterable[PartitionServer]) -> None:
        """Forget the offsets of a topic that is not served any more, or by other partitions."""
        self._awaited.discard(topic)
        for server in partitions:
            self._forget_server(topic, server)

    def _forget_server(self, topic: str, server: PartitionServer) -> None:
        self.ways.pop(server, None)
        self._ends.pop(server, None)
        for group_id in server.consumers.all():
            self._discard(group_id, (topic, server.index))

    async def expire(self, now_ms: int, kept_ms: int, unread_since: UnreadSince) -> None:
        """Delete offsets that no group has used for `kept_ms`, or for the time that their commit gave."""

        def is_over(group_id: str, partition: TopicPartition, state: ConsumerOffset) -> bool:
            unread_ms = unread_since(group_id, partition[0])
            if unread_ms is None:
                return False
            if state.expire_ms >= 0:
                return state.expire_ms <= now_ms
            return max(unread_ms, state.commit_ms) <= now_ms - kept_ms

        for group_id in list(self._partitions):
            try:
                await self._expire(group_id, partial(is_over, group_id))
            except KafkaError as lost:
                _log.info("offsets expire later: %s", lost)
                return

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
        self.held.close()

    async def _expire(self, group_id: str, is_over: Callable[[TopicPartition, ConsumerOffset], bool]) -> None:
        """Delete the offsets of a group that are over, and still are when their slice is committed. KafkaError."""
        over = [each async for each, state in self._in_turns(group_id) if is_over(each, state)]
        for start in range(0, len(over), COMMITTED_AT_ONCE_MAX):
            if group_id in self._pending:
                return
            found = ((each, self.at(group_id, each)) for each in over[start : start + COMMITTED_AT_ONCE_MAX])
            still = [each for each, state in found if state is not None and is_over(each, state)]
            refusals = filter(None, (await self.commit(group_id, dict.fromkeys(still))).values())
            if refusal := next(refusals, None):
                _log.warning("offsets of group %r expire later: %s", group_id, refusal)
        if over:
            self._emptied.pop(group_id, None)  # a group goes with offsets that expire, as in Kafka

    async def _plan_deletion(self, changes: "OffsetChanges") -> None:
        planned = set[TopicPartition]()
        while rest := self._partitions.get(changes.group_id, set()) - planned:
            async for partition, _ in self._in_turns(changes.group_id):
                if partition in rest:
                    changes.add(partition, None)
            planned |= rest

    async def _in_turns(self, group_id: str) -> AsyncIterator[tuple[TopicPartition, ConsumerOffset]]:
        """Yield what `each_of` yields, with turns for others between them. KafkaError."""
        for item in self.each_of(group_id):
            if next(self._looks) % LOOKED_AT_ONCE_MAX == 0:
                await asyncio.sleep(0)
            yield item

    def _begin(self, group_id: str, commits: list["OffsetChanges"], answer: "_Answer", *, is_long: bool) -> None:
        """Enqueue the commits: at once, or one behind the other where they are slices of a long one. What the group
        commits meanwhile stands behind those."""
        before = next(reversed(self._pending.get(group_id, {})), None)
        self._pending.setdefault(group_id, {})[answer] = is_long
        if before is not None and self._pending[group_id][before]:
            self._pending[group_id][answer] = True
            before.is_over.add_done_callback(lambda _: self._enqueue_next(commits, answer, is_long=is_long))
        else:
            self._enqueue_next(commits, answer, is_long=is_long)

    def _enqueue_next(self, commits: list["OffsetChanges"], answer: "_Answer", *, is_long: bool) -> None:
        enqueued, later = (commits[:1], commits[1:]) if is_long else (commits, [])

        def settle(changes: OffsetChanges, committed: Outcome[None]) -> None:
            self._settle(changes, answer, committed)
            if later:
                asyncio.get_running_loop().call_soon(lambda: self._enqueue_next(later, answer, is_long=True))

        for changes in enqueued:
            changes.execute().add_done_callback(partial(settle, changes))

    def _settle(self, changes: "OffsetChanges", answer: "_Answer", committed: Outcome[None]) -> None:
        """Settle a commit that is done: change its partitions and the index; answer when all are done."""
        group_id, outcomes = changes.group_id, changes.outcomes
        error = committed.exception()
        for partition, server, state, *_ in changes.planned:
            # One that has moved since has its offsets from the store, with this one, and perhaps later ones.
            is_news = error is None and changes.way is self._way(server)
            server.consumers.settle(group_id, state, is_durable=is_news)
            outcomes[partition] = _translated(error)
            if error is not None or self._stopped:
                continue
            if self._find(*partition) is not server:
                outcomes[partition] = _unknown()
            elif is_news and state is None:
                self._discard(group_id, partition)
            elif is_news:
                self._emptied.pop(group_id, None)
                self._partitions.setdefault(group_id, set()).add(partition)
        if answer.commit_is_done(error):
            pending = self._pending[group_id]
            del pending[answer]
            if not pending:
                del self._pending[group_id]
            answer.give()

    def _way(self, server: PartitionServer) -> WayElsewhere | None:
        """Return the way to the node that runs a partition now; None: this one does."""
        known = self.ways.get(server)
        return None if known is None else known.way

    def _served(self, partition: TopicPartition) -> PartitionServer:
        """The partition, for a commit."""
        server = self._known(partition)
        if server.is_lost and (server.is_unmounted or server not in self.ways):
            raise self._unknown_yet(partition[0])
        return server

    def _known(self, partition: TopicPartition) -> PartitionServer:
        """The partition, for a look at its offsets: an unmounted tablet knows them, as it did before."""
        server = self._find(*partition)
        if self._stopped:
            raise _lost()
        if server is not None and not self._is_known(server):
            raise self._unknown_yet(partition[0])
        if server is None:
            raise _unknown()
        server.check_readable()
        return server

    def _unknown_yet(self, topic: str) -> KafkaError:
        """Return the refusal of what needs offsets of a topic that are not known. They are awaited from now on: the
        cell may have moved to another node."""
        if not self.held.is_used:
            return _lost()
        self._awaited.add(topic)
        text = "offsets are being read from another node of the broker; retry"
        return KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, text)

    def _is_on_its_way(self, partition: TopicPartition) -> bool:
        """Return True if the offsets of a partition are not known, and will be when another node has told them."""
        try:
            self._served(partition)
        except KafkaError as refusal:
            return refusal.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return False

    def _is_known(self, server: PartitionServer) -> bool:
        return server.is_loaded or server.state.unreadable is not None or server in self.ways

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
    command: Command
    shard: object


class OffsetChanges:
    """Offsets of a group before their commit: planned at their partitions, and enqueued or given up."""

    __slots__ = ("_served", "_ways", "group_id", "outcomes", "planned", "way")

    def __init__(self, group_id: str, served: Callable[[TopicPartition], PartitionServer], ways: Ways) -> None:
        self._served = served
        self._ways = ways
        self.group_id = group_id
        self.outcomes: dict[TopicPartition, KafkaError | None] = {}
        self.planned: list[_Planned] = []
        self.way: WayElsewhere | None = None
        """The way that it took to another node; None: it is stored here."""

    def add(self, partition: TopicPartition, state: ConsumerOffset | None) -> None:
        """Plan one partition's offset, or why it has none; each partition once."""
        try:
            server = self._served(partition)
            tablet, command = server.consumers.plan(self.group_id, state)
        except KafkaError as refusal:
            self.outcomes[partition] = refusal.with_traceback(None)  # its frames hold the outcomes
            return
        self.planned.append(_Planned(partition, server, state, tablet, command, tablet.storage.shard))

    def by_cell(self) -> "list[OffsetChanges]":
        """The changes of each cell; they share the outcomes. Thousands are sorted in one turn of the loop."""
        shares: dict[object, list[_Planned]] = {}
        for item in self.planned:
            place = (item.shard, self._way_of(item)) if self._ways else item.shard
            shares.setdefault(place, []).append(item)
        return [self._part(share) for share in shares.values()]

    def in_slices(self) -> "list[OffsetChanges]":
        """The changes as commits that take a few milliseconds each; they share the outcomes."""
        starts = range(0, len(self.planned), COMMITTED_AT_ONCE_MAX)
        return [self._part(self.planned[start : start + COMMITTED_AT_ONCE_MAX]) for start in starts]

    def commands(self) -> list[TabletCommands]:
        """Return what stores the changes, by tablet."""
        parts: dict[KeyValueTablet, list[Command]] = {}
        for item in self.planned:
            parts.setdefault(item.tablet, []).append(item.command)
        return list(parts.items())

    def execute(self) -> Outcome[None]:
        """Enqueue the changes, of one cell, at their tablets, or at the node that runs these."""
        known = self._ways.get(self.planned[0].server) if self._ways else None
        if known is None:
            return execute_together(self.commands())
        try:
            away = [(self._ways[item.server].partition, item.state) for item in self.planned]
        except KeyError:
            return Outcome.failed(CommitRefused("offsets of the partitions are not known any more; try again"))
        self.way = known.way
        return known.way.commit_offsets(self.group_id, away)

    def give_up(self) -> None:
        """Nothing of it is stored."""
        for item in self.planned:
            item.server.consumers.settle(self.group_id, item.state, is_durable=False)

    def _way_of(self, item: _Planned) -> WayElsewhere | None:
        known = self._ways.get(item.server)
        return None if known is None else known.way

    def _part(self, planned: list[_Planned]) -> "OffsetChanges":
        part = OffsetChanges(self.group_id, self._served, self._ways)
        part.planned, part.outcomes = planned, self.outcomes
        return part


class _Answer:
    """Given when all commits of it are done."""

    __slots__ = ("_error", "_outcomes", "_waits_for", "given", "is_over")

    def __init__(self, outcomes: Outcomes, commits: int) -> None:
        self._outcomes = outcomes
        self._waits_for = commits
        self._error: BaseException | None = None
        self.given: asyncio.Future[Outcomes] = asyncio.get_running_loop().create_future()
        self.is_over: Outcome[None] = Outcome()
        if not commits:
            self.given.set_result(outcomes)

    def commit_is_done(self, error: BaseException | None) -> bool:
        """Count one commit more as done; return True if it was the last."""
        self._waits_for -= 1
        if error is not None and not isinstance(error, CommitRefused | ShardLost):
            self._error = error
        return not self._waits_for

    def give(self) -> None:
        """Give the outcomes; an error that the store does not raise is a defect, and raised."""
        if not self.given.done():
            if self._error is not None:
                self.given.set_exception(self._error)
            else:
                self.given.set_result(self._outcomes)
        self.is_over.set_result(None)


class OffsetsPart:
    """Offsets of a group as a `BesidePart` of a commit in the cell of `storage`; `plan` says which, once no other
    commit of the group is on its way."""

    def __init__(
        self, offsets: GroupOffsets, group_id: str, storage: TabletStorage,
        plan: Callable[[], Mapping[TopicPartition, ConsumerOffset]],
    ) -> None:
        self._offsets = offsets
        self._group_id = group_id
        self.storage = storage
        self._plan = plan
        self._changes: OffsetChanges | None = None
        self._settle: Callable[[BaseException | None], None] | None = None

    async def hold(self) -> None:
        """Plan the offsets. KafkaError of the first that is refused, but for topics that were deleted meanwhile;
        CommitRefused for one of another cell."""
        while self._offsets.is_committing(self._group_id):
            await self._offsets.settled(self._group_id)
        changes = self._offsets.begin(self._group_id)
        for partition, state in self._plan().items():
            changes.add(partition, state)
        refusals = [refusal for refusal in changes.outcomes.values() if refusal is not None]
        refusal = next((one for one in refusals if one.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), None)
        is_elsewhere = not all(item.tablet.storage.shares_cell(self.storage) for item in changes.planned)
        if refusal is not None or is_elsewhere:
            changes.give_up()
            raise refusal or CommitRefused("offsets came to live in another cell while their commit waited")
        self._changes = changes
        self._settle = self._offsets.begin_beside(changes)

    def refusal(self) -> BaseException | None:
        """Return nothing: the request fails itself where a partition is lost."""
        return None

    def commands(self) -> Sequence[TabletCommands]:
        assert self._changes is not None, "the part holds"
        return self._changes.commands()

    def batches(self, decision: CommitDecision | None) -> Sequence[BatchBeside]:
        assert decision is None, "offsets are the home of no decision"
        return ()

    def told(self, error: BaseException | None) -> None:
        assert self._settle is not None, "the part holds"
        self._settle(error)


def nobody_knows(_group_id: str, _topic: str) -> int:
    """An `UnreadSince` of a node without groups."""
    return 0


def _unknown() -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "this broker has no such topic or partition")


def _translated(error: BaseException | None) -> KafkaError | None:
    return None if error is None else store_refusal(error, GROUPS) or _lost()


def _lost() -> KafkaError:
    return KafkaError(GROUPS.lost, GROUPS.lost_text)
