"""Fetch that says the same as before on its connection, but for its session's epoch and where it reads: not decoded.

It is compared and cut, then served as the handler serves what the dispatcher decodes. Requests of one topic have lanes,
in a session (KIP-227) and without one. A request is left to be dispatched, before anything is done, when

- its words differ, or it names partitions of another topic, more than `LANE_PARTITIONS_MAX`, or one of them twice;
- it forgets partitions, or has tagged fields;
- its session is gone, expects another epoch, or does not have one of its partitions.

With read_committed, an answer with batches of aborted transactions is made by the handler, which names these.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from struct import Struct, calcsize
from typing import Any, Final, Protocol

from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.kafka.apis.exchange import Exchange
from pqbroker.broker.kafka.apis.fetch_sessions import EPOCH_FINAL, Asked, FetchSession, SessionFetch
from pqbroker.broker.kafka.apis.lane import LaneRoad, Serve
from pqbroker.broker.kafka.lanes.fetch_answers import FETCH_KEY, FetchAnswers
from pqbroker.broker.kafka.lanes.words import BODY_AT, Words, find_words, topic_words
from pqbroker.pq.reading.query import READ_COMMITTED, Isolation
from pqbroker.protocol.layout import codes, count_bytes, encoded
from pqbroker.protocol.messages.fetch import FetchPartition, FetchRequest
from pqbroker.protocol.schema import is_flexible

FETCH_LANES_FROM_VERSION: Final = 11
"""kcat, aiokafka and kafkajs send 11, kafka-python 12, librdkafka 16, Java 17 and 18."""
LANE_PARTITIONS_MAX: Final = 100

class ServeFetch(Protocol):
    """The handler's service of a Fetch of a session; of the request only its numbers count."""

    def __call__(
        self, context: Context, request: FetchRequest, session_fetch: SessionFetch, answers: FetchAnswers | None = None
    ) -> Any: ...


_EPOCH_BYTES = 4
_EPOCH = Struct(">i").unpack_from
_COUNT = Struct(">i").unpack_from
_ASKED = ("partition", "current_leader_epoch", "fetch_offset", "partition_max_bytes")
"""Fields that say what is asked of a partition; see `Asked`."""


def open_lane(
    serve_fetch: ServeFetch, context: Context, request: FetchRequest, frame: memoryview, road: LaneRoad
) -> "FetchLane | None":
    """Return a lane for requests that repeat one which is dispatched; None if they must be dispatched too."""
    session = context.node.sessions.session_of(request)
    if context.version < FETCH_LANES_FROM_VERSION or session is None or not session.wanted:
        return None
    topic, topic_id, _ = next(iter(session.wanted))
    flexible = is_flexible(FETCH_KEY, context.version)
    start, none = _cut_empty(request, context.version)
    words = find_words(frame, start)
    if words is None or len(request.rack_id.encode()) > len(words.start):
        return None
    name = topic_words(context, topic, topic_id, flexible=flexible)
    form = _FetchForm(words, count_bytes(1, flexible=flexible) + name, none, _entry(context.version))
    partitions = form.cut(frame)
    told = [(each.partition, each.fetch_offset) for asked in request.topics for each in asked.partitions]
    if partitions is None or [(index, offset) for index, _, offset, _ in partitions] != told:
        return None
    is_committed = Isolation.of(request.isolation_level) is READ_COMMITTED
    answers = FetchAnswers(context.version, (topic, topic_id), name, is_committed=is_committed)
    call = partial(serve_fetch, request=request, answers=answers)
    return FetchLane(context, request, form, (topic, topic_id), (call, road.serve))


class _FetchForm:
    """The layout of a lane's requests."""

    __slots__ = ("_entry", "_name", "_none", "_tail", "said", "words")

    def __init__(self, words: Words, name: bytes, none: bytes, entry: Struct) -> None:
        """`name`: one topic and its name; `none`: no topics, and what follows them; `entry`: one partition."""
        self.words = words
        self.said = (words, name, none)
        self._name = name
        self._none = none
        tail = none[len(count_bytes(0, flexible=words.is_flexible)) :]
        self._tail = b"\0" + tail if words.is_flexible else tail
        self._entry = entry

    def cut(self, frame: memoryview) -> list[Asked] | None:
        """Return the partitions of a request with these words, none for an empty one; None if it is any other
        request."""
        position = self.words.end + _EPOCH_BYTES
        if frame[position:] == self._none:
            return []
        end = position + len(self._name)
        if frame[position:end] != self._name:
            return None
        flexible = self.words.is_flexible
        entry = self._entry
        start = end + (1 if flexible else 4)
        if start >= len(frame):
            return None
        count = frame[end] - 1 if flexible else _COUNT(frame, end)[0]
        stop = start + count * entry.size
        if not 0 < count <= LANE_PARTITIONS_MAX or frame[stop:] != self._tail:
            return None
        found = list(entry.iter_unpack(frame[start:stop]))
        if not flexible:
            return found
        if any(each[4] for each in found):  # tagged fields
            return None
        return [each[:4] for each in found]


def _cut_empty(request: FetchRequest, version: int) -> tuple[bytes, bytes]:
    """Return the bytes of a request of these numbers that names no topics: up to its session's epoch, and behind it."""
    said = FetchRequest(
        max_wait_ms=request.max_wait_ms, min_bytes=request.min_bytes, max_bytes=request.max_bytes,
        isolation_level=request.isolation_level, session_id=request.session_id, rack_id=request.rack_id,
    )  # fmt: skip
    whole = encoded(said, version)
    epoch_at = calcsize(">" + codes(FetchRequest, version, until="session_epoch"))
    return whole[:epoch_at], whole[epoch_at + _EPOCH_BYTES :]


@cache
def _entry(version: int) -> Struct:
    """Return the layout of a partition of a request, with a count of tagged fields in flexible versions."""
    tags = "B" if is_flexible(FETCH_KEY, version) else ""
    return Struct(f">{codes(FetchPartition, version, only=_ASKED)}{tags}")


class FetchLane:
    """A lane: what the requests on it have in common."""

    __slots__ = ("_context", "_form", "_request", "_serve", "_serve_fetch", "_topic", "_whole", "_words", "form")

    def __init__(
        self,
        context: Context,
        request: FetchRequest,
        form: _FetchForm,
        topic: tuple[str, bytes],
        serves: tuple[Callable[..., Any], Serve],
    ) -> None:
        self._context = context
        self._request = request
        self._form = form
        self._words = form.words
        self._topic = topic
        self.form = form.said
        self._serve_fetch, self._serve = serves
        self._whole = FetchSession(0, context.peer, by_id=False)
        """Partitions of requests without a session."""

    def begin(self, frame: memoryview) -> Exchange | None:
        """Serve a request; None, and nothing is done: it must be dispatched."""
        words = self._words
        if frame[:4] != words.api or frame[BODY_AT : words.end] != words.start:
            return None
        asked = self._form.cut(frame)
        if asked is None:
            return None
        session_fetch = self._session_fetch(frame, asked)
        if session_fetch is None:
            return None
        return self._serve(self._context, frame, partial(self._serve_fetch, session_fetch=session_fetch))

    def _session_fetch(self, frame: memoryview, asked: Sequence[Asked]) -> SessionFetch | None:
        (epoch,) = _EPOCH(frame, self._words.end)
        session_id = self._request.session_id
        if session_id:
            return self._context.node.sessions.next_fetch(session_id, epoch, self._context.peer, (self._topic, asked))
        if epoch != EPOCH_FINAL or not asked:
            return None
        self._whole.want_only(self._topic, asked)
        return None if len(self._whole.wanted) != len(asked) else SessionFetch(self._whole, 0, is_incremental=False)
