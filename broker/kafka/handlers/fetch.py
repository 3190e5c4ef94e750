"""Fetch (key 1), versions 4 to 18.

Behaviour: waits until min_bytes (or all that an answer may hold) can be read, max_wait_ms passed, there is an error to
report, or a further request arrives on the connection. The first partition that has data gives at least one whole
batch, later ones what the limits leave (KIP-74); sessions (KIP-227) and topic ids (version 13) are served; cold
partitions are read side by side. An offset inside a batch gets the whole batch; outside [log start, high watermark] it
is OFFSET_OUT_OF_RANGE. Of a partition named twice the last counts, and it is answered once, as in Kafka.
With read_committed an answer ends at the last stable offset and names the aborted transactions that have batches in it,
by first offset; the client leaves these batches out. An answer ends behind some 5 000 of them. With read_uncommitted
that list is null.
Left out: replicas as readers (version 18 has a high watermark that they send), diverging epochs, preferred replicas.
"""

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from functools import partial
from typing import TypeAlias

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.ground.refusals import translate
from pqbroker.broker.kafka.apis.answer import Answer
from pqbroker.broker.kafka.apis.answer_budget import SMALL_ANSWER_BYTES
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.kafka.apis.exchange import Output
from pqbroker.broker.kafka.apis.fetch_sessions import (
    TOPIC_IDS_FROM_VERSION,
    SessionFetch,
    SessionPartition,
    make_wanted,
)
from pqbroker.broker.kafka.apis.long_fetch_wait import LongFetchWait
from pqbroker.broker.kafka.apis.metering import count_fetched, fetch_pause_ms
from pqbroker.broker.kafka.apis.parked_fetch import ENOUGH, FetchWait, ParkedFetch, count_readable
from pqbroker.broker.kafka.lanes.fetch_answers import ANSWERED_PARTITIONS_MAX, FetchAnswers, PartitionRead
from pqbroker.broker.kafka.lanes.fetch_lane import NOTHING, FetchHandler, open_lane
from pqbroker.broker.services.topics.finding import find_topic
from pqbroker.broker.services.topics.partitions import check_leader_epoch, find_readable
from pqbroker.pq.log.batch_run import Batches
from pqbroker.pq.log.producer_transactions import AbortedSpans, aborted_between
from pqbroker.pq.reading.query import READ_COMMITTED, READ_UNCOMMITTED, Isolation, ReadQuery, visible_end
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

ABORTED_NAMED_MAX = 5_000
"""Aborted transactions that end in what one answer holds, about: naming more would take the loop's turn too long. The
next Fetch continues behind them."""
SHORT_PARTITIONS_MAX = 500
"""A Fetch of more partitions, in its session or in itself, takes milliseconds to serve: it does so in slices."""
PARTITION_BYTES = 300
"""About what an answer takes in memory for each partition while it is made: thousands of them count in its budget."""
Read: TypeAlias = Batches | ErrorCode | BaseException
"""A refusal is its code: the answer has no room for a text, and a session keeps neither that nor frames."""
Served: TypeAlias = FetchResponse | Output


def serve(
    context: Context, request: FetchRequest
) -> Served | Answer[FetchResponse] | Awaitable[Served | Answer[FetchResponse]]:
    if context.peer.use is not None and request.session_epoch <= 0 and (pause_ms := fetch_pause_ms(context.peer)):
        return _paused(pause_ms, 0)  # before a session is made that the client would not take
    if context.is_long:
        return _make_and_serve(context, request)
    return serve_fetch(context, request, context.node.sessions.begin(request, context.version, context.peer))


async def _make_and_serve(context: Context, request: FetchRequest) -> Served | Answer[FetchResponse]:
    """A request that names many partitions: what it wants is made in slices."""
    made = await context.node.turns.finish(make_wanted(request))
    await context.node.turns.turn()
    session_fetch = context.node.sessions.begin(request, context.version, context.peer, made)
    request.topics = []  # thousands of objects that nobody needs any more, while the request is parked
    served = serve_fetch(context, request, session_fetch)
    return await served if isinstance(served, Awaitable) else served


def serve_fetch(
    context: Context, request: FetchRequest, session_fetch: SessionFetch, answers: FetchAnswers | None = None
) -> Served | Answer[FetchResponse] | Awaitable[Served | Answer[FetchResponse]]:
    """Serve a Fetch of a session. The request counts only for what it says of the whole answer.

    `answers`: to pack an answer with at once.
    """
    if context.peer.use is not None and (pause_ms := fetch_pause_ms(context.peer)):
        return _paused(pause_ms, session_fetch.session_id)
    fetch = _Fetch(context, request, session_fetch, answers)
    if len(session_fetch.wanted) > SHORT_PARTITIONS_MAX:
        return _serve_long(context, fetch)
    fetch.look(session_fetch.wanted)
    parked = fetch.parked
    if parked.wait_ms <= 0 or count_readable(parked.wanted, parked.isolation, parked.min_bytes) >= ENOUGH:
        return fetch.read()
    return FetchWait(context.node.loop, context.node.turns.call_soon, parked, fetch.look_and_read).answer


def finish_fetch(
    context: Context, request: FetchRequest, session_fetch: SessionFetch, answers: FetchAnswers,
    reads: Sequence[PartitionRead],
) -> Served | Awaitable[Served]:  # fmt: skip
    """Finish a Fetch of a lane whose first partitions are read. It may have been parked: what was lost may be gone with
    its topic, or served by a new opening of the cell; what was allowed may be forbidden."""
    fetch = _Fetch(context, request, session_fetch, answers)
    fetch.look(session_fetch.wanted[len(reads) :])
    return fetch.read(reads)


def _paused(pause_ms: int, session_id: int) -> Answer[FetchResponse]:
    """Return an answer without records for a client that has read more than its quota."""
    answer: Answer[FetchResponse] = Answer()
    answer.pause_ms = pause_ms
    answer.complete(FetchResponse(throttle_time_ms=pause_ms, session_id=session_id))
    return answer


async def _serve_long(context: Context, fetch: "_Fetch") -> FetchResponse | Answer[FetchResponse]:
    """A Fetch of many partitions, in slices."""
    parked = fetch.parked
    await fetch.look_in_slices()
    if parked.wait_ms <= 0 or not context.has_room:
        return await fetch.read_in_slices()

    async def look_and_read() -> FetchResponse:
        if context.peer.is_gone:
            return FetchResponse()
        await fetch.look_in_slices()
        return await fetch.read_in_slices()

    wait = LongFetchWait(context.node, parked, look_and_read)
    return wait.answer if await wait.park() else await fetch.read_in_slices()


class _Fetch:
    """One Fetch in work: what it wants, and the response made of it."""

    __slots__ = (
        "_answers", "_bytes_max", "_cold", "_context", "_is_first", "_isolation", "_left", "_named_left", "_reads",
        "_revision", "_session_fetch", "_spans", "_takes_files", "_topics", "parked",
    )  # fmt: skip

    def __init__(
        self, context: Context, request: FetchRequest, session_fetch: SessionFetch, answers: FetchAnswers | None
    ) -> None:
        self._context = context
        self._answers = answers
        self._session_fetch = session_fetch
        self._bytes_max = min(request.max_bytes, context.node.settings.fetch_max_bytes)
        self._isolation = Isolation.of(request.isolation_level)
        min_bytes = min(request.min_bytes, self._bytes_max)
        self.parked = ParkedFetch(session_fetch.wanted, self._isolation, min_bytes, request.max_wait_ms)
        self._takes_files = context.peer.takes_files
        access = context.node.access
        self._revision = None if access is None else access.revision

    def look(self, asked: Iterable[SessionPartition]) -> None:
        """Find these partitions, every time: a session outlives topics and cells."""
        by_id = self._context.version >= TOPIC_IDS_FROM_VERSION
        for wanted in asked:
            wanted.error = wanted.partition = None
            try:
                topic = find_topic(self._context, AclOperation.READ, wanted.topic, wanted.topic_id if by_id else None)
                wanted.partition = find_readable(topic, wanted.index)
                check_leader_epoch(wanted.partition, wanted.leader_epoch)
            except KafkaError as error:
                wanted.error = error.code

    async def look_in_slices(self) -> None:
        for wanted in self._session_fetch.wanted:
            await self._context.breathe()
            self.look((wanted,))

    def look_and_read(self) -> Served | Awaitable[Served]:
        """Read after a wait: what was lost may be gone with its topic, or served by a new opening of the cell; what was
        allowed may be forbidden."""
        if self._context.peer.is_gone:
            return FetchResponse()
        access = self._context.node.access
        is_open = access is None or access.revision == self._revision
        for wanted in self._session_fetch.wanted:
            if wanted.partition is None or wanted.partition.is_lost or not is_open:
                self.look((wanted,))
        return self.read()

    def read(self, reads: Sequence[PartitionRead] = ()) -> Served | Awaitable[Served]:
        """The response; awaitable when something has to be read from disk, or other answers must leave first. `reads`:
        of the first partitions."""
        if self._bytes_max > self._context.node.answers.free:
            return self._read_short()
        self._begin()
        for _, read in reads:
            self._note(read, read.size)
        for wanted in self._session_fetch.wanted[len(reads) :]:
            self._read(wanted)
        if self._cold:
            return self._read_cold()
        return self._respond()

    def _read_short(self) -> Served | Awaitable[Served]:
        """The response where memory for answers is short: as much as there is room for."""
        self._shrink()
        self._begin()
        for wanted in self._session_fetch.wanted:
            self._read(wanted)
        if (self._cold or self._left < 0) and not self._context.has_room:  # not small, or not known to be
            return self.read_in_slices()
        return self._read_cold() if self._cold else self._respond()

    def _shrink(self) -> None:
        """Read no more than the client's share has room for, or a small answer."""
        room = max(self._context.node.answers.left_to(self._context.peer.holder), SMALL_ANSWER_BYTES)
        self._bytes_max = min(self._bytes_max, room)

    async def read_in_slices(self) -> FetchResponse:
        """The response, once it has room in the budget of answers, with turns for others between the partitions."""
        await self._context.room()
        self._context.charge(len(self._session_fetch.wanted) * PARTITION_BYTES)
        self._shrink()
        self._begin()
        for wanted in self._session_fetch.wanted:
            await self._context.breathe()
            self._read(wanted)
        if self._cold:
            await self._read_cold_ones()
        self._count_read()
        for wanted, read in zip(self._session_fetch.wanted, self._reads, strict=True):
            await self._context.breathe()
            self._tell(wanted, read)
        return FetchResponse(session_id=self._session_fetch.session_id, responses=list(self._topics.values()))

    def _begin(self) -> None:
        self._reads: list[Read] = []
        self._cold: dict[int, Awaitable[Batches]] = {}
        self._spans: dict[SessionPartition, AbortedSpans] = {}
        """Aborted transactions of partitions that have any, as they were when the partition was read."""
        self._topics: dict[tuple[str, bytes], FetchableTopicResponse] = {}
        self._left = self._bytes_max
        self._is_first = True
        self._named_left = ABORTED_NAMED_MAX

    def _read(self, wanted: SessionPartition) -> None:
        self._note(*self._read_one(wanted, self._left, is_first=self._is_first))

    def _note(self, read: Batches | ErrorCode | Awaitable[Batches], size: int) -> None:
        """Note what the next partition gives."""
        if isinstance(read, (Batches, ErrorCode)):
            self._reads.append(read)
        else:
            self._cold[len(self._reads)] = read
            self._reads.append(NOTHING)
        if size:
            self._left -= size
            self._is_first = False

    def _read_one(
        self, wanted: SessionPartition, left: int, *, is_first: bool
    ) -> tuple[Batches | ErrorCode | Awaitable[Batches], int]:
        """Return what a partition gives, and how many bytes of the answer that takes (an estimate when it is cold)."""
        partition = wanted.partition
        if wanted.error is not None or partition is None:
            return wanted.error or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0
        bytes_max = min(wanted.bytes_max, left)
        if bytes_max <= 0 and not is_first:
            return NOTHING, 0
        try:
            end_offset = visible_end(partition.state, self._isolation)
            aborted = partition.state.transactions.aborted
            if aborted is not None and self._isolation is READ_COMMITTED:
                self._spans[wanted] = aborted
                end_offset = self._end_of_named(aborted, wanted.offset, end_offset)
            read = partition.read(ReadQuery(wanted.offset, end_offset, bytes_max, is_first, self._takes_files))
        except KafkaError as error:
            return error.code, 0
        if isinstance(read, Batches):
            return read, read.size
        return read, partition.reader.readable_bytes(wanted.offset, end_offset, bytes_max)

    def _end_of_named(self, aborted: AbortedSpans, offset: int, end_offset: int) -> int:
        """Return where what is read of a partition ends, so that a turn can name the aborted transactions in it."""
        end = aborted.end_of(offset, end_offset, max(self._named_left, 1))
        self._named_left -= aborted.count_before(end) - aborted.count_before(offset)
        return end

    async def _read_cold(self) -> Served:
        await self._read_cold_ones()
        return self._respond()

    async def _read_cold_ones(self) -> None:
        """Read the cold partitions side by side and put what they give into its place."""
        self._context.charge(max(self._bytes_max - self._left, 0))
        done = await asyncio.gather(*self._cold.values(), return_exceptions=True)
        for index, read in zip(self._cold, done, strict=True):
            self._reads[index] = read

    def _count_read(self) -> None:
        """Count what was read against the client's quota."""
        if self._context.peer.use is not None:
            count_fetched(self._context.peer, sum(read.size for read in self._reads if isinstance(read, Batches)))

    def _respond(self) -> Served:
        self._count_read()
        reads = None if self._answers is None else self._packed_reads(*self._answers.topic)
        if self._answers is not None and reads is not None:
            return self._answers.made(self._context.correlation_id, self._session_fetch, reads)
        for wanted, read in zip(self._session_fetch.wanted, self._reads, strict=True):
            self._tell(wanted, read)
        return FetchResponse(session_id=self._session_fetch.session_id, responses=list(self._topics.values()))

    def _tell(self, wanted: SessionPartition, read: Read) -> None:
        fetch, topics = self._session_fetch, self._topics
        data = self._partition_data(wanted, read)
        if fetch.is_incremental and not _is_news(wanted, data):
            return
        wanted.sent_high_watermark = data.high_watermark if not data.error_code else -1
        wanted.sent_start_offset = data.log_start_offset
        if data.records and fetch.session_id:
            fetch.session.move_to_end(wanted)
        topic = topics.get((wanted.topic, wanted.topic_id))
        if topic is None:
            topic = FetchableTopicResponse(topic=wanted.topic, topic_id=wanted.topic_id, partitions=[])
            topics[wanted.topic, wanted.topic_id] = topic
        topic.partitions.append(data)

    def _packed_reads(self, topic: str, topic_id: bytes) -> list[PartitionRead] | None:
        """Return what was read, if the answer can be packed at once; None when it is not all about one topic, a
        partition could not be read, or one has aborted transactions to name."""
        fetch = self._session_fetch
        packed: list[PartitionRead] = []
        if len(fetch.wanted) > ANSWERED_PARTITIONS_MAX:
            return None
        for wanted, read in zip(fetch.wanted, self._reads, strict=True):
            if not isinstance(read, Batches) or wanted.topic != topic or wanted.topic_id != topic_id:
                return None
            aborted = self._spans.get(wanted)
            if aborted is not None and aborted.has_between(wanted.offset, read.next_offset):
                return None
            packed.append((wanted, read))
        return packed

    def _partition_data(self, wanted: SessionPartition, read: Read) -> PartitionData:
        partition = wanted.partition
        data = PartitionData(
            partition_index=wanted.index,
            high_watermark=-1,
            last_stable_offset=-1,
            log_start_offset=-1,
            aborted_transactions=None if partition is not None else [],  # as Kafka: none to name, or nobody to ask
            records=(),
        )
        if partition is not None:
            log = partition.state
            data.high_watermark = visible_end(log, READ_UNCOMMITTED)
            data.last_stable_offset = visible_end(log, READ_COMMITTED)
            data.log_start_offset = log.start_offset
        if isinstance(read, Batches):
            data.records = read.buffers
            if self._isolation is READ_COMMITTED:
                spans = self._spans.get(wanted) if read.size else None
                data.aborted_transactions = _aborted(spans, wanted.offset, read.next_offset)
        elif isinstance(read, ErrorCode):
            data.error_code = read
        else:
            data.error_code, _ = translate(read)
        return data


def _aborted(spans: AbortedSpans | None, offset: int, end_offset: int) -> list[AbortedTransaction]:
    """Return the aborted transactions with records in [offset, end_offset), by first offset."""
    found = aborted_between(spans, offset, end_offset)
    return [AbortedTransaction(producer_id=span.producer_id, first_offset=span.first_offset) for span in found]


def _is_news(wanted: SessionPartition, data: PartitionData) -> bool:
    """Return True if an incremental answer must list the partition (KIP-227)."""
    is_known = wanted.is_known(data.high_watermark, data.log_start_offset)
    return bool(data.records or data.error_code or not is_known)


API = Api(
    request=FetchRequest, response=FetchResponse, serve=serve,
    open_lane=partial(open_lane, FetchHandler(serve_fetch, finish_fetch)),
)  # fmt: skip
