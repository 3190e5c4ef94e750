"""Incremental fetch sessions (KIP-227): the broker remembers what a client fetches, so that it need not say so again.

States of a session:
    none      epoch -1: a full Fetch without a session; epoch 0: a full Fetch that asks for one
    open      the next request must carry the expected epoch, 1, 2, ... (after 2^31 - 1 comes 1)
    closed    by epoch -1 or 0 with its id, by being left empty, or by making room for another
Only sessions unused for two minutes make room; when there is none the client is told session 0 and fetches in full.
"""

import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.fetch import FetchRequest

if TYPE_CHECKING:
    from pqbroker.pq.partition_server import PartitionServer

EPOCH_FINAL = -1
EPOCH_INITIAL = 0
EPOCH_MAX = (1 << 31) - 1
EVICTION_IDLE_MS = 120_000
TOPIC_IDS_FROM_VERSION = 13

PartitionKey = tuple[str, bytes, int]


class Wanted:
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
        self.error: KafkaError | None = None
        self.sent_high_watermark = -1
        self.sent_start_offset = -1


class FetchSession:
    """What one client fetches, in the order it is served; what was sent last moves to the end."""

    __slots__ = ("by_id", "epoch", "session_id", "used_at_ms", "wanted")

    def __init__(self, session_id: int, *, by_id: bool) -> None:
        self.session_id = session_id
        self.by_id = by_id
        self.epoch = EPOCH_INITIAL + 1
        self.used_at_ms = 0
        self.wanted: dict[PartitionKey, Wanted] = {}

    def update(self, request: FetchRequest) -> None:
        """Forget, then add and change what the request names."""
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                self.wanted.pop((forgotten.topic, forgotten.topic_id, index), None)
        for topic in request.topics:
            for asked in topic.partitions:
                key = (topic.topic, topic.topic_id, asked.partition)
                wanted = self.wanted.get(key)
                if wanted is None:
                    wanted = self.wanted[key] = Wanted(*key)
                wanted.offset = asked.fetch_offset
                wanted.bytes_max = asked.partition_max_bytes
                wanted.leader_epoch = asked.current_leader_epoch

    def move_to_end(self, wanted: Wanted) -> None:
        key = (wanted.topic, wanted.topic_id, wanted.index)
        if self.wanted.pop(key, None) is wanted:
            self.wanted[key] = wanted


class FetchTurn:
    """One request of a session, or a Fetch without one (`session_id` 0)."""

    __slots__ = ("is_incremental", "session", "session_id", "wanted")

    def __init__(self, session: FetchSession, session_id: int, *, is_incremental: bool) -> None:
        self.session = session
        self.session_id = session_id
        self.is_incremental = is_incremental
        self.wanted = list(session.wanted.values())


class FetchSessions:
    """The node's sessions, the least recently used first."""

    def __init__(self, slots: int, clock: Callable[[], int]) -> None:
        self._slots = slots
        self._clock = clock
        self._sessions: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[FetchSession]:
        return iter(self._sessions.values())

    def turn(self, request: FetchRequest, version: int) -> FetchTurn:
        """What a request fetches. KafkaError FETCH_SESSION_ID_NOT_FOUND or INVALID_FETCH_SESSION_EPOCH."""
        by_id = version >= TOPIC_IDS_FROM_VERSION
        if request.session_epoch in (EPOCH_FINAL, EPOCH_INITIAL):
            self._sessions.pop(request.session_id, None)
            return self._full_turn(request, by_id=by_id)
        session = self._sessions.pop(request.session_id, None)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"no fetch session {request.session_id}")
        self._sessions[session.session_id] = session
        if request.session_epoch != session.epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH, f"the session's epoch is {session.epoch}")
        if session.by_id is not by_id:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, "a session keeps to topic ids or to names")
        session.update(request)
        session.epoch = session.epoch + 1 if session.epoch < EPOCH_MAX else 1
        session.used_at_ms = self._clock()
        if not session.wanted:
            del self._sessions[session.session_id]
            return FetchTurn(session, 0, is_incremental=False)
        return FetchTurn(session, session.session_id, is_incremental=True)

    def _full_turn(self, request: FetchRequest, *, by_id: bool) -> FetchTurn:
        is_kept = request.session_epoch == EPOCH_INITIAL and bool(request.topics) and self._make_room()
        session = FetchSession(self._free_id() if is_kept else 0, by_id=by_id)
        session.update(request)
        session.used_at_ms = self._clock()
        if is_kept:
            self._sessions[session.session_id] = session
        return FetchTurn(session, session.session_id, is_incremental=False)

    def _make_room(self) -> bool:
        if len(self._sessions) < self._slots:
            return True
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if self._clock() - oldest.used_at_ms < EVICTION_IDLE_MS:
            return False
        del self._sessions[oldest.session_id]
        return True

    def _free_id(self) -> int:
        while True:
            session_id = random.randint(1, EPOCH_MAX)
            if session_id not in self._sessions:
                return session_id
