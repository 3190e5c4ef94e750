"""Incremental fetch sessions (KIP-227): the broker remembers what a client fetches, so that it need not say so again.

States of a session:
    none      epoch -1: a full Fetch without a session; epoch 0: a full Fetch that asks for one
    open      the next request must carry the expected epoch, 1, 2, ... (after 2^31 - 1 comes 1)
    closed    by epoch -1 or 0 with its id, by being left empty, or by making room for another
Sessions are limited in number, and in the partitions of all of them; addresses share both by conf/shares.py. Those of
closed connections make room, and those unused for two minutes; when that is not enough the client gets session 0 and
fetches in full. A session that outgrows the room is closed with FETCH_SESSION_ID_NOT_FOUND, after which clients fetch
in full too.
"""

import random
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING

from pqbroker.broker.services.topics.topic_names import NAME_CHARACTERS_MAX
from pqbroker.conf.shares import Shares
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.fetch import FetchRequest

if TYPE_CHECKING:
    from pqbroker.broker.kafka.apis.context import Peer
    from pqbroker.pq.serving.partition_server import PartitionServer

EPOCH_FINAL = -1
EPOCH_INITIAL = 0
EPOCH_MAX = (1 << 31) - 1
EVICTION_IDLE_MS = 120_000
TOPIC_IDS_FROM_VERSION = 13

PartitionKey = tuple[str, bytes, int]
Asked = tuple[int, int, int, int]
"""Index, leader epoch, offset and most bytes of a partition in a request."""


class SessionPartition:
    """One partition of a Fetch, kept over the requests of a session."""

    __slots__ = (
        "bytes_max", "error", "index", "leader_epoch", "offset", "partition", "sent_high_watermark",
        "sent_start_offset", "topic", "topic_id",
    )  # fmt: skip

    def __init__(self, topic: str, topic_id: bytes, index: int) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.offset = 0
        self.bytes_max = 0
        self.leader_epoch = -1
        self.partition: PartitionServer | None = None
        self.error: ErrorCode | None = None
        self.sent_high_watermark = -1
        self.sent_start_offset = -1

    def is_known(self, high_watermark: int, start_offset: int) -> bool:
        """Return True if the session's last answer said so of the partition."""
        return high_watermark == self.sent_high_watermark and start_offset == self.sent_start_offset


def make_wanted(request: FetchRequest) -> Generator[None, None, dict[PartitionKey, SessionPartition]]:
    """Returns all that a request names; other work may be done between its steps."""
    made: dict[PartitionKey, SessionPartition] = {}
    for topic in request.topics:
        for asked in topic.partitions:
            key = (topic.topic, topic.topic_id, asked.partition)
            wanted = made[key] = SessionPartition(*key)
            wanted.offset = asked.fetch_offset
            wanted.bytes_max = asked.partition_max_bytes
            wanted.leader_epoch = asked.current_leader_epoch
            yield
    return made


class FetchSession:
    """Partitions that one client fetches, in the order they are served; what was sent last moves to the end."""

    __slots__ = ("by_id", "counted", "epoch", "holder", "peer", "session_id", "used_at_ms", "wanted")

    def __init__(self, session_id: int, peer: "Peer | None", *, by_id: bool) -> None:
        self.session_id = session_id
        self.peer = peer
        """Connection that used the session last; None: unknown."""
        self.holder = "" if peer is None else peer.holder
        """Key under which it counts in the node's limits, that of its opener."""
        self.counted = 0
        """Partitions that the node counts for it."""
        self.by_id = by_id
        self.epoch = EPOCH_INITIAL + 1
        self.used_at_ms = 0
        self.wanted: dict[PartitionKey, SessionPartition] = {}

    def advance(self, now_ms: int, peer: "Peer | None") -> None:
        """Note a request of the session."""
        self.epoch = self.epoch + 1 if self.epoch < EPOCH_MAX else 1
        self.used_at_ms = now_ms
        self.peer = peer

    def update(self, request: FetchRequest, made: dict[PartitionKey, SessionPartition] | None = None) -> None:
        """Forget, then add and change what the request names; `made`: of it, by `make_wanted`."""
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                self.wanted.pop((forgotten.topic, forgotten.topic_id, index), None)
        for topic in request.topics:
            for asked in topic.partitions:
                key = (topic.topic, topic.topic_id, asked.partition)
                wanted = self.wanted.get(key)
                if wanted is None:
                    wanted = self.wanted[key] = SessionPartition(*key) if made is None else made[key]
                wanted.offset = asked.fetch_offset
                wanted.bytes_max = asked.partition_max_bytes
                wanted.leader_epoch = asked.current_leader_epoch

    def want(self, topic: tuple[str, bytes], asked: Sequence[Asked]) -> bool:
        """Update partitions of one topic that the session has; False, and nothing is changed, when it lacks one."""
        found = [self.wanted.get((*topic, index)) for index, *_ in asked]
        if None in found:
            return False
        for wanted, (_, leader_epoch, offset, bytes_max) in zip(found, asked, strict=True):
            assert wanted is not None
            wanted.leader_epoch, wanted.offset, wanted.bytes_max = leader_epoch, offset, bytes_max
        return True

    def move_to_end(self, wanted: SessionPartition) -> None:
        key = (wanted.topic, wanted.topic_id, wanted.index)
        if self.wanted.pop(key, None) is wanted:
            self.wanted[key] = wanted


class SessionFetch:
    """One request of a session, or a Fetch without one (`session_id` 0)."""

    __slots__ = ("is_incremental", "session", "session_id", "wanted")

    def __init__(self, session: FetchSession, session_id: int, *, is_incremental: bool) -> None:
        self.session = session
        self.session_id = session_id
        self.is_incremental = is_incremental
        self.wanted = list(session.wanted.values())


class FetchSessions:
    """The node's sessions, the least recently used first."""

    def __init__(self, slots: int, partitions_max: int, clock: Callable[[], int]) -> None:
        self._slots = slots
        self._partitions_max = partitions_max
        self._clock = clock
        self._sessions: dict[int, FetchSession] = {}
        self._opened = Shares[str]()
        self._named = Shares[str]()
        """Partitions of sessions."""

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions(self) -> int:
        """Partitions of all sessions."""
        return self._named.total

    def __iter__(self) -> Iterator[FetchSession]:
        return iter(self._sessions.values())

    def begin(
        self,
        request: FetchRequest,
        version: int,
        peer: "Peer | None" = None,
        made: dict[PartitionKey, SessionPartition] | None = None,
    ) -> SessionFetch:
        """Return what a request fetches; `made`: see `FetchSession.update`.

        Raise KafkaError FETCH_SESSION_ID_NOT_FOUND or INVALID_FETCH_SESSION_EPOCH.
        """
        by_id = version >= TOPIC_IDS_FROM_VERSION
        if request.session_epoch in (EPOCH_FINAL, EPOCH_INITIAL):
            if request.session_id:
                self._drop(request.session_id)
            fresh = FetchSession(0, peer, by_id=by_id)
            if made is None:
                fresh.update(request)
            else:
                fresh.wanted = made
            return self._full_fetch(request, fresh)
        session = self._sessions.pop(request.session_id, None)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"no fetch session {request.session_id}")
        self._sessions[session.session_id] = session
        if request.session_epoch != session.epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH, f"the session's epoch is {session.epoch}")
        if session.by_id is not by_id:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, "a session keeps to topic ids or to names")
        if request.topics or request.forgotten_topics_data:
            session.update(request, made)
            self._count(session, request)
        session.advance(self._clock(), peer)
        if not session.wanted:
            self._drop(session.session_id)
            return SessionFetch(session, 0, is_incremental=False)
        return SessionFetch(session, session.session_id, is_incremental=True)

    def session_of(self, request: FetchRequest) -> FetchSession | None:
        """The session of an incremental request, or one of what a request without a session names; None: neither."""
        if request.session_id:
            return None if request.forgotten_topics_data else self._sessions.get(request.session_id)
        if request.session_epoch != EPOCH_FINAL or len(request.topics) != 1 or request.forgotten_topics_data:
            return None
        session = FetchSession(0, None, by_id=False)
        session.update(request)
        return session

    def next_fetch(
        self, session_id: int, epoch: int, peer: "Peer", asked: tuple[tuple[str, bytes], Sequence[Asked]]
    ) -> SessionFetch | None:
        """Return the Fetch of an incremental request that names partitions of one topic that its session has, or none.

        None, and nothing is changed, where it is anything else.
        """
        session = self._sessions.get(session_id)
        if session is None or epoch != session.epoch or not session.wanted or not session.want(*asked):
            return None
        del self._sessions[session_id]
        self._sessions[session_id] = session
        session.advance(self._clock(), peer)
        return SessionFetch(session, session_id, is_incremental=True)

    def leave(self, peer: "Peer") -> None:
        """A connection has closed: clients do not resume its session on another one."""
        session = self._sessions.get(peer.fetch_session_id)
        if session is not None and session.peer is peer:
            self._drop(session.session_id)

    def _full_fetch(self, request: FetchRequest, session: FetchSession) -> SessionFetch:
        session.used_at_ms = self._clock()
        if request.session_epoch == EPOCH_INITIAL and request.topics and self._has_room_for(session, request):
            session.session_id = self._free_id()
            self._sessions[session.session_id] = session
            self._opened.take(session.holder)
            self._count(session, request)
            if session.peer is not None:
                session.peer.fetch_session_id = session.session_id
        return SessionFetch(session, session.session_id, is_incremental=False)

    def _count(self, session: FetchSession, request: FetchRequest) -> None:
        """Count a session after a change of its partitions.

        Raise FETCH_SESSION_ID_NOT_FOUND, and close it, when there is no room.
        """
        if request.topics and not self._has_room_for(session, request):
            self._drop(session.session_id)
            raise KafkaError(
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
                f"fetch sessions may name {self._partitions_max} partitions (pqbroker.fetch.session.partitions.max), "
                f"each of a topic whose name has at most {NAME_CHARACTERS_MAX} characters",
            )
        self._named.take(session.holder, len(session.wanted) - session.counted)
        session.counted = len(session.wanted)

    def _has_room_for(self, session: FetchSession, request: FetchRequest) -> bool:
        """Make room by dropping others, the least recently used first; False when that is not enough."""
        if any(len(topic.topic) > NAME_CHARACTERS_MAX for topic in request.topics):
            return False
        if self._fits(session):
            return True
        idle_since_ms = self._clock() - EVICTION_IDLE_MS
        for other in list(self._sessions.values()):
            is_left = other.peer is not None and other.peer.is_gone
            if other is not session and (is_left or other.used_at_ms <= idle_since_ms):
                self._drop(other.session_id)
                if self._fits(session):
                    return True
        return False

    def _fits(self, session: FetchSession) -> bool:
        holder, more = session.holder, len(session.wanted) - session.counted
        has_slot = session.session_id in self._sessions or self._opened.may_take(self._slots, holder)
        return has_slot and (more <= 0 or self._named.may_take(self._partitions_max, holder, more))

    def _drop(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._opened.give_back(session.holder)
            self._named.give_back(session.holder, session.counted)
            session.counted = 0

    def _free_id(self) -> int:
        while True:
            session_id = random.randint(1, EPOCH_MAX)
            if session_id not in self._sessions:
                return session_id
