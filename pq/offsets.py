"""How far every consumer group has read, over all partitions. The offsets themselves are the partitions' (consumers.py)

event                    what happens
commit                   enqueued at the tablets of all its partitions in the same call, as one shard commit
its commit is durable    the partitions and the index change; it is answered
its commit is refused    nothing changes; every partition of it is answered with a retriable error
topic deleted            its offsets are gone; a commit still on its way is answered UNKNOWN_TOPIC_OR_PARTITION

Commits of one group and partition are applied in the order of the calls: the KV tablets see to it. `settled` waits for
all commits of a group that were there before, so that nobody reads offsets which an earlier commit then changes.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial

from pqbroker.pq.consumers import ConsumerOffset
from pqbroker.pq.partition_server import PartitionServer
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.engine import CommitRefused, ShardLost
from pqbroker.storage.kv import KeyValueTablet
from pqbroker.storage.kv_commands import Command
from pqbroker.storage.outcome import Outcome
from pqbroker.storage.together import execute_together

_log = logging.getLogger(__name__)

Place = tuple[str, int]
"""Topic and partition."""

Outcomes = Mapping[Place, KafkaError | None]
"""What became of each partition's offset; None: it is durable."""

UnreadSince = Callable[[str, str], int | None]
"""Group id and topic: since when (ms) no member of the group reads the topic. None: one does. 0: nobody knows."""

_Change = tuple[Place, PartitionServer, ConsumerOffset | None]


class GroupOffsets:
    """Commits over several partitions, and the index from groups to partitions. `find` gives the server of a place."""

    def __init__(self, find: Callable[[str, int], PartitionServer | None]) -> None:
        self._find = find
        self._places: dict[str, set[Place]] = {}
        self._pending: dict[str, set[Outcome[None]]] = {}
        """Commits on their way, by group id."""
        self._stopped = False
        self.unread_since: UnreadSince = _nobody_knows

    def commit(self, group_id: str, offsets: Mapping[Place, ConsumerOffset | None]) -> Awaitable[Outcomes]:
        """Store the offsets, or delete them (None), in one commit; enqueued in this call.

        A partition's own error (UNKNOWN_TOPIC_OR_PARTITION, OFFSET_METADATA_TOO_LARGE, …) leaves the others alone. When
        the store fails all others have COORDINATOR_NOT_AVAILABLE (refused) or NOT_COORDINATOR (lost).
        """
        answered: asyncio.Future[Outcomes] = asyncio.get_running_loop().create_future()
        outcomes: dict[Place, KafkaError | None] = {}
        changes: list[_Change] = []
        parts: dict[KeyValueTablet, list[Command]] = {}
        for place, state in offsets.items():
            try:
                server = self._served(place)
                tablet, command = server.plan_consumer(group_id, state)
            except KafkaError as refusal:
                outcomes[place] = refusal
                continue
            parts.setdefault(tablet, []).append(command)
            changes.append((place, server, state))
        if not parts:
            answered.set_result(outcomes)
            return answered
        committed = execute_together(list(parts.items()))
        self._pending.setdefault(group_id, set()).add(committed)
        committed.add_done_callback(partial(self._settle, group_id, changes, outcomes, answered))
        return answered

    async def settled(self, group_id: str) -> None:
        """Return when the commits of the group that were asked for before this call are done."""
        for committed in tuple(self._pending.get(group_id, ())):
            await committed.wait()

    def is_committing(self, group_id: str) -> bool:
        """Whether a commit of the group is on its way."""
        return group_id in self._pending

    def of(self, group_id: str) -> dict[Place, ConsumerOffset]:
        """The group's durable offsets, in the order of topics and partitions.

        KafkaError NOT_COORDINATOR when the cell is lost: an answer without offsets would send consumers to the start.
        """
        found = {}
        for place in sorted(self._places.get(group_id, ())):
            state = self._served(place).consumer(group_id)
            assert state is not None, (group_id, place)
            found[place] = state
        return found

    def at(self, group_id: str, place: Place) -> ConsumerOffset | None:
        """The group's durable offset in one partition. KafkaError NOT_COORDINATOR, as in `of`."""
        if place not in self._places.get(group_id, ()):
            return None
        return self._served(place).consumer(group_id)

    def groups(self) -> list[str]:
        return list(self._places)

    def has(self, group_id: str) -> bool:
        """Whether the group has an offset anywhere."""
        return group_id in self._places

    def lag(self, group_id: str) -> dict[Place, int]:
        """Records that the group has not read in each of its partitions. KafkaError NOT_COORDINATOR."""
        return {place: state.lag(self._served(place).end_offset) for place, state in self.of(group_id).items()}

    def learn(self, topic: str, partitions: Iterable[PartitionServer]) -> None:
        """A topic is served from now on, with the offsets that its partitions have."""
        for server in partitions:
            for group_id in server.consumers():
                self._places.setdefault(group_id, set()).add((topic, server.index))

    def forget(self, topic: str, partitions: Iterable[PartitionServer]) -> None:
        """A topic is served no more."""
        for server in partitions:
            for group_id in server.consumers():
                self._discard(group_id, (topic, server.index))

    async def expire(self, now_ms: int, kept_ms: int) -> None:
        """Delete offsets that nobody has had a use for in `kept_ms`, or in the time that their commit gave."""
        for group_id in self.groups():
            if group_id in self._pending:
                continue
            try:
                over = self._over(group_id, now_ms, now_ms - kept_ms)
            except KafkaError as lost:
                _log.info("offsets expire later: %s", lost)
                return
            outcomes = await self.commit(group_id, dict.fromkeys(over))
            if refusal := next(filter(None, outcomes.values()), None):
                _log.warning("offsets of group %r expire later: %s", group_id, refusal)

    def stop(self) -> None:
        """The cell is left: its offsets may be changed elsewhere, and nothing is answered here any more."""
        self._stopped = True

    def _over(self, group_id: str, now_ms: int, unread_before_ms: int) -> list[Place]:
        """Partitions whose offset has expired. KafkaError NOT_COORDINATOR."""
        found = []
        for place, state in self.of(group_id).items():
            unread_ms = self.unread_since(group_id, place[0])
            if unread_ms is None:
                continue
            if state.expire_ms >= 0:
                is_over = state.expire_ms <= now_ms
            else:
                is_over = max(unread_ms, state.commit_ms) <= unread_before_ms
            if is_over:
                found.append(place)
        return found

    def _settle(
        self,
        group_id: str,
        changes: Sequence[_Change],
        outcomes: dict[Place, KafkaError | None],
        answered: "asyncio.Future[Outcomes]",
        committed: Outcome[None],
    ) -> None:
        """The commit is done: change the partitions and the index, and answer."""
        pending = self._pending[group_id]
        pending.discard(committed)
        if not pending:
            del self._pending[group_id]
        error = committed.exception()
        for place, server, state in changes:
            server.settle_consumer(group_id, state, is_durable=error is None)
            outcomes[place] = _translated(error)
            if error is not None:
                continue
            if self._stopped:
                continue
            if self._find(*place) is not server:
                outcomes[place] = _unknown()
            elif state is None:
                self._discard(group_id, place)
            else:
                self._places.setdefault(group_id, set()).add(place)
        if answered.done():
            return
        if error is None or isinstance(error, CommitRefused | ShardLost):
            answered.set_result(outcomes)
        else:
            answered.set_exception(error)

    def _served(self, place: Place) -> PartitionServer:
        server = self._find(*place)
        if self._stopped or (server is not None and server.is_lost and server.unreadable is None):
            raise _lost()
        if server is None:
            raise _unknown()
        server.check_readable()
        return server

    def _discard(self, group_id: str, place: Place) -> None:
        places = self._places.get(group_id)
        if places is not None:
            places.discard(place)
            if not places:
                del self._places[group_id]


def _nobody_knows(_group_id: str, _topic: str) -> int:
    return 0


def _unknown() -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "this broker has no such topic or partition")


def _translated(error: BaseException | None) -> KafkaError | None:
    """What clients of a coordinator take for a reason to try again."""
    if isinstance(error, CommitRefused):
        return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the store refused the commit: {error}")
    return None if error is None else _lost()


def _lost() -> KafkaError:
    return KafkaError(ErrorCode.NOT_COORDINATOR, "the cell was lost and is being opened again; retry")
