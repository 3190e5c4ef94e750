"""Fetch that says the same as before on its connection, but for its session's epoch and where it reads: not decoded.

It is compared and cut (`fetch_form.py`). Requests of one topic have lanes, in a session (KIP-227) and without one. A
request is left to be dispatched, before anything is done, when

- its words differ, or it names partitions of another topic, more than a lane takes, or one of them twice;
- it forgets partitions, or has tagged fields;
- its session is gone, expects another epoch, or does not have one of its partitions.

The handler serves what has an error to answer from the start, clients under quotas, and sessions that have partitions
of other topics, or too many. All else is one object, `FetchInLane`: the exchange that its connection sees, what wakes
it, its deadline, and the reader of its answer, which is packed at once.

state          what happens
parked         its partitions are watched until the first of: enough to read, an error, the deadline, `hurry`, `leave`
reading        one partition after the other, in one call
handed over    the handler finishes what needs more: a partition to be read from disk, an error or aborted transactions
               to name, access rules that changed, memory for answers that is short
done           `output` is its answer
It looks once per turn of the loop, so that one commit's advances give one answer; of thousands that one commit or one
moment wakes, each turn has some (`Turns.call_soon`).
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from struct import Struct
from time import perf_counter
from typing import Any, Final, NamedTuple, Protocol

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.kafka.apis.exchange import Exchange, Output
from pqbroker.broker.kafka.apis.fetch_sessions import EPOCH_FINAL, Asked, FetchSession, SessionFetch, SessionPartition
from pqbroker.broker.kafka.apis.lane import LaneRoad
from pqbroker.broker.kafka.apis.parked_fetch import ENOUGH, count_readable
from pqbroker.broker.kafka.lanes.fetch_answers import ANSWERED_PARTITIONS_MAX, FETCH_KEY, FetchAnswers, PartitionRead
from pqbroker.broker.kafka.lanes.fetch_form import FetchForm, cut_empty, entry_layout
from pqbroker.broker.kafka.lanes.words import BODY_AT, TOPIC_IDS_FROM_VERSION, find_words, topic_words
from pqbroker.broker.services.topics.finding import find_topic
from pqbroker.broker.services.topics.partitions import check_leader_epoch, find_readable
from pqbroker.pq.log.batch_run import Batches
from pqbroker.pq.reading.query import READ_COMMITTED, Isolation, ReadQuery, visible_end
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.protocol.errors import KafkaError
from pqbroker.protocol.layout import count_bytes
from pqbroker.protocol.messages.fetch import FetchRequest
from pqbroker.protocol.schema import is_flexible

FETCH_LANES_FROM_VERSION: Final = 11
"""kcat, aiokafka and kafkajs send 11, kafka-python 12, librdkafka 16, Java 17 and 18."""
NOTHING: Final = Batches([], 0, -1)
"""Stands for what is read of a partition when there is no room for more."""

_EPOCH = Struct(">i").unpack_from
_CORRELATION_ID = Struct(">i").unpack_from


class ServeFetch(Protocol):
    """The handler's service of a Fetch of a session; of the request only its numbers count."""

    def __call__(
        self, context: Context, request: FetchRequest, session_fetch: SessionFetch, answers: FetchAnswers | None = None
    ) -> Any: ...


class FinishFetch(Protocol):
    """The handler's end of a Fetch in a lane, whose first partitions are read."""

    def __call__(
        self, context: Context, request: FetchRequest, session_fetch: SessionFetch, answers: FetchAnswers,
        reads: Sequence[PartitionRead],
    ) -> Any: ...  # fmt: skip


class FetchHandler(NamedTuple):
    """The handler of Fetch, as its lanes need it."""

    serve: ServeFetch
    finish: FinishFetch


def open_lane(
    handler: FetchHandler, context: Context, request: FetchRequest, frame: memoryview, road: LaneRoad
) -> "FetchLane | None":
    """Return a lane for requests that repeat one which is dispatched; None if they must be dispatched too."""
    session = context.node.sessions.session_of(request)
    if context.version < FETCH_LANES_FROM_VERSION or session is None or not session.wanted:
        return None
    topic, topic_id, _ = next(iter(session.wanted))
    flexible = is_flexible(FETCH_KEY, context.version)
    start, none = cut_empty(request, context.version)
    words = find_words(frame, start)
    if words is None or len(request.rack_id.encode()) > len(words.start):
        return None
    name = topic_words(context, topic, topic_id, flexible=flexible)
    form = FetchForm(words, count_bytes(1, flexible=flexible) + name, none, entry_layout(context.version))
    partitions = None if len(frame) > form.bytes_max else form.cut(bytes(frame[words.end :]))
    told = [(each.partition, each.fetch_offset) for asked in request.topics for each in asked.partitions]
    if partitions is None or [(index, offset) for index, _, offset, _ in partitions] != told:
        return None
    is_committed = Isolation.of(request.isolation_level) is READ_COMMITTED
    answers = FetchAnswers(context.version, (topic, topic_id), name, is_committed=is_committed)
    return FetchLane(context, request, form, answers, (handler, road))


class FetchLane:
    """A lane: what the requests on it have in common."""

    __slots__ = (
        "_form", "_whole", "_words", "answers", "context", "form", "handler", "isolation", "node", "peer", "request",
        "road", "topic", "topic_id",
    )  # fmt: skip

    def __init__(
        self,
        context: Context,
        request: FetchRequest,
        form: FetchForm,
        answers: FetchAnswers,
        roads: tuple[FetchHandler, LaneRoad],
    ) -> None:
        self.context = context
        self.peer = context.peer
        self.node = context.node
        self.request = request
        self._form = form
        self._words = form.words
        self.form = form.said
        self.answers = answers
        self.topic = answers.topic
        """The topic's name and id as requests say them."""
        self.topic_id = answers.topic[1] if context.version >= TOPIC_IDS_FROM_VERSION else None
        self.isolation = Isolation.of(request.isolation_level)
        self.handler, self.road = roads
        self._whole = SessionFetch(FetchSession(0, context.peer, by_id=False), 0, is_incremental=False)
        """Fetch of the requests without a session, kept from one to the next: they usually want the same partitions."""

    def begin(self, frame: memoryview) -> Exchange | None:
        """Serve a request; None, and nothing is done: it must be dispatched."""
        words = self._words
        if frame[:4] != words.api or frame[BODY_AT : words.end] != words.start:
            return None
        if len(frame) > self._form.bytes_max:
            return None
        rest = bytes(frame[words.end :])
        asked = self._form.cut(rest)
        if asked is None:
            return None
        session_fetch = self._session_fetch(rest, asked)
        if session_fetch is None:
            return None
        (correlation_id,) = _CORRELATION_ID(frame, 4)
        fetch = FetchInLane(self, session_fetch, correlation_id, len(frame))
        if self.peer.use is None and len(session_fetch.wanted) <= ANSWERED_PARTITIONS_MAX and fetch.begin():
            return fetch
        return self.serve(fetch, partial(self.handler.serve, session_fetch=session_fetch))

    def serve(self, fetch: "FetchInLane", serve: Callable[..., Any]) -> Exchange:
        """Have the dispatcher answer with what the handler returns."""
        call = partial(serve, request=self.request, answers=self.answers)
        return self.road.serve(self.context, fetch, call)

    def _session_fetch(self, rest: bytes, asked: Sequence[Asked]) -> SessionFetch | None:
        (epoch,) = _EPOCH(rest)
        session_id = self.request.session_id
        if session_id:
            return self.node.sessions.next_fetch(session_id, epoch, self.peer, (self.topic, asked))
        if epoch != EPOCH_FINAL or not asked:
            return None
        whole = self._whole
        if len(whole.wanted) != len(asked):
            return whole if self._want(asked) else None
        for position, (index, leader_epoch, offset, bytes_max) in enumerate(asked):
            wanted = whole.wanted[position]
            if wanted.index != index:
                return whole if self._want(asked) else None
            wanted.leader_epoch, wanted.offset, wanted.bytes_max = leader_epoch, offset, bytes_max
        return whole

    def _want(self, asked: Sequence[Asked]) -> bool:
        """Have requests without a session want other partitions than the one before. False: one is named twice."""
        made = {index: SessionPartition(*self.topic, index) for index, *_ in asked}
        for index, leader_epoch, offset, bytes_max in asked:
            wanted = made[index]
            wanted.leader_epoch, wanted.offset, wanted.bytes_max = leader_epoch, offset, bytes_max
        self._whole.wanted = list(made.values())
        return len(made) == len(asked)


class FetchInLane:
    """One such request, an `Exchange`."""

    __slots__ = (
        "_bytes_max", "_dispatched", "_fetch", "_is_looking", "_lane", "_min_bytes", "_partitions", "_revision",
        "_timer", "correlation_id", "frame_bytes", "hurried_at", "is_done", "is_parked", "listener", "must_close",
        "output", "started_at",
    )  # fmt: skip

    _timer: asyncio.TimerHandle
    is_produce = False
    is_begun = True
    pause_ms = 0

    def __init__(self, lane: FetchLane, fetch: SessionFetch, correlation_id: int, frame_bytes: int) -> None:
        self._lane = lane
        self._fetch = fetch
        self.correlation_id = correlation_id
        self.frame_bytes = frame_bytes
        self.started_at = perf_counter()
        self.hurried_at = 0.0
        self._is_looking = self.is_parked = self.is_done = self.must_close = False
        self.output: Output | None = None
        self.listener: Callable[[], None] | None = None
        self._dispatched: Exchange | None = None

    def begin(self) -> bool:
        """Find the partitions, and answer or park. False, and nothing is done: the handler has to serve the request."""
        if not self._find():
            return False
        lane, wanted = self._lane, self._fetch.wanted
        node, request = lane.node, lane.request
        self._revision = None if node.access is None else node.access.revision
        bytes_max = self._bytes_max = min(request.max_bytes, node.settings.fetch_max_bytes)
        min_bytes = self._min_bytes = min(request.min_bytes, bytes_max)
        wait_ms = request.max_wait_ms
        if wait_ms <= 0 or count_readable(wanted, lane.isolation, min_bytes) >= ENOUGH:
            self.answer()
            return True
        self.is_parked = True
        wake = self._wake
        for partition in self._partitions:
            partition.watchers.put(self, wake)
        self._timer = node.loop.call_later(wait_ms / 1000, node.turns.call_soon, self._finish)
        return True

    @property
    def is_charged(self) -> bool:
        return self._dispatched is not None and self._dispatched.is_charged

    def hurry(self) -> None:
        self.hurried_at = perf_counter()
        self._finish()

    def leave(self) -> None:
        """Let go of everything: nobody reads the answer."""
        if self._dispatched is not None:
            self._dispatched.leave()
        else:
            self._finish()

    def answer(self) -> None:
        """Read the partitions and pack what they give, or hand over."""
        lane = self._lane
        node = lane.node
        reads: list[PartitionRead] = []
        is_allowed = node.access is None or node.access.revision == self._revision
        if is_allowed and self._bytes_max <= node.answers.free and self._read(reads):
            self._end(lane.answers.made(self.correlation_id, self._fetch, reads))
        else:
            self._hand_over(partial(lane.handler.finish, session_fetch=self._fetch, reads=reads))

    def fail(self, defect: Exception) -> None:
        """Have the dispatcher answer with a defect of ours."""
        if self.is_done:
            raise defect

        def raise_again(_: Context, **__: object) -> None:
            raise defect

        self._hand_over(raise_again)

    def _find(self) -> bool:
        """Find the partitions, every time: a session outlives topics and cells. False unless all are of the lane's
        topic, and there is no error to answer."""
        lane = self._lane
        name, topic_id = lane.topic
        found: list[PartitionServer] = []
        try:
            topic = find_topic(lane.peer, AclOperation.READ, name, lane.topic_id)
            for wanted in self._fetch.wanted:
                if wanted.topic != name or wanted.topic_id != topic_id:
                    return False
                partition = find_readable(topic, wanted.index)
                check_leader_epoch(partition, wanted.leader_epoch)
                wanted.error, wanted.partition = None, partition
                found.append(partition)
        except KafkaError:
            return False
        self._partitions = found
        return True

    def _wake(self) -> None:
        """A partition has moved."""
        if self.is_parked and not self._is_looking:
            self._is_looking = True
            self._lane.node.turns.call_soon(self._look)

    def _look(self) -> None:
        self._is_looking = False
        if self.is_parked and count_readable(self._fetch.wanted, self._lane.isolation, self._min_bytes) >= ENOUGH:
            self._finish()

    def _finish(self) -> None:
        if not self.is_parked:
            return
        self.is_parked = False
        self._timer.cancel()
        for partition in self._partitions:
            partition.watchers.forget(self)
        if self._lane.peer.is_gone:
            self._end(None)
        else:
            self._lane.road.answer(self)

    def _read(self, reads: list[PartitionRead]) -> bool:
        """Read one partition after the other. False at the first that the handler has to read."""
        lane, left, is_first = self._lane, self._bytes_max, True
        isolation, takes_files = lane.isolation, lane.peer.takes_files
        for wanted in self._fetch.wanted:
            partition, bytes_max = wanted.partition, min(wanted.bytes_max, left)
            if partition is None or wanted.error is not None:  # another request of the session came meanwhile
                return False
            log = partition.state
            if isolation is READ_COMMITTED and log.transactions.aborted is not None:
                return False
            if bytes_max <= 0 and not is_first:
                reads.append((wanted, NOTHING))
                continue
            try:
                end_offset = visible_end(log, isolation)
                read = partition.read(ReadQuery(wanted.offset, end_offset, bytes_max, is_first, takes_files))
            except KafkaError:
                return False
            if type(read) is not Batches:
                return False
            reads.append((wanted, read))
            if read.size:
                left -= read.size
                is_first = False
        return True

    def _hand_over(self, serve: Callable[..., Any]) -> None:
        """Have the dispatcher answer with what a call returns, as if the handler did."""
        dispatched = self._dispatched = self._lane.serve(self, serve)
        if dispatched.is_done:
            self._take_over()
        else:
            dispatched.listener = self._take_over

    def _take_over(self) -> None:
        dispatched, self._dispatched = self._dispatched, None
        assert dispatched is not None
        self.output, self.must_close = dispatched.output, dispatched.must_close
        self.is_done = True
        if self.listener is not None:
            self.listener()

    def _end(self, output: Output | None) -> None:
        self.output = output
        self._lane.road.metrics.observe(perf_counter() - self.started_at)
        self.is_done = True
        if self.listener is not None:
            self.listener()
