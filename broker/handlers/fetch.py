"""Fetch (key 1), versions 4 to 18.

Behaviour: waits until min_bytes (or all that an answer may hold) are there, max_wait_ms passed, an error is to be told,
or a further request arrives on the connection. The first partition that has data gives at least one whole batch, later
ones what the limits leave (KIP-74); sessions (KIP-227) and topic ids (version 13) are served; cold partitions are read
side by side. An offset inside a batch gets the whole batch; outside [log start, high watermark] it is
OFFSET_OUT_OF_RANGE.
Of a partition named twice the last counts, and it is answered once, as in Kafka.
Left out: replicas as readers (version 18 has a high watermark that they send), diverging epochs, preferred replicas;
without transactions there is nothing aborted, and the last stable offset is the high watermark.
"""

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, TypeAlias

from pqbroker.broker.answer import Answer
from pqbroker.broker.answer_budget import SMALL_ANSWER_BYTES
from pqbroker.broker.apis import Api
from pqbroker.broker.context import Context
from pqbroker.broker.partitions import check_leader_epoch, find_group, find_readable
from pqbroker.broker.refusals import translate
from pqbroker.broker.sessions import TOPIC_IDS_FROM_VERSION, FetchTurn, Wanted
from pqbroker.broker.waiting import ParkedFetch
from pqbroker.pq.run import Pieces
from pqbroker.pq.stretch import Regions
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData

if TYPE_CHECKING:
    from pqbroker.pq.partition_server import PartitionServer

READ_COMMITTED = 1
SHORT_PARTITIONS_MAX = 500
"""A Fetch of more partitions, in its session or in itself, takes milliseconds to serve: it does so in slices."""
Read: TypeAlias = Pieces | Regions | BaseException


def serve(
    context: Context, request: FetchRequest
) -> FetchResponse | Answer[FetchResponse] | Awaitable[FetchResponse | Answer[FetchResponse]]:
    turn = context.node.sessions.turn(request, context.version, context.peer)
    fetch = _Fetch(context, request, turn)
    if len(turn.wanted) > SHORT_PARTITIONS_MAX:
        return _serve_long(context, request, fetch)
    fetch.look()
    if request.max_wait_ms <= 0 or fetch.is_enough():
        return fetch.read()
    return ParkedFetch(
        context.node.loop, request.max_wait_ms, fetch.partitions(), fetch.is_enough, fetch.look_and_read
    ).answer


def refuse(context: Context, request: FetchRequest, code: ErrorCode, message: str) -> FetchResponse:
    return FetchResponse(error_code=code)


async def _serve_long(
    context: Context, request: FetchRequest, fetch: "_Fetch"
) -> FetchResponse | Answer[FetchResponse]:
    """A Fetch of many partitions, in slices."""
    await fetch.look_in_slices()
    if request.max_wait_ms <= 0 or context.node.answers.is_exceeded or fetch.is_enough():
        return await fetch.read_in_slices()

    async def look_and_read() -> FetchResponse:
        await fetch.look_in_slices()
        return await fetch.read_in_slices()

    return ParkedFetch(
        context.node.loop, request.max_wait_ms, fetch.partitions(), fetch.is_enough, look_and_read
    ).answer


class _Fetch:
    """One Fetch in work: what it wants, whether that is there, and the response made of it."""

    __slots__ = (
        "_bytes_max", "_cold", "_context", "_is_committed", "_is_first", "_left", "_min_bytes", "_reads", "_topics",
        "_turn",
    )  # fmt: skip

    def __init__(self, context: Context, request: FetchRequest, turn: FetchTurn) -> None:
        self._context = context
        self._turn = turn
        self._bytes_max = min(request.max_bytes, context.node.settings.fetch_max_bytes)
        self._min_bytes = min(request.min_bytes, self._bytes_max)
        self._is_committed = request.isolation_level == READ_COMMITTED

    def look(self) -> None:
        """Find every partition anew: a session outlives topics and cells."""
        by_id = self._context.version >= TOPIC_IDS_FROM_VERSION
        for wanted in self._turn.wanted:
            self._look_for(wanted, by_id=by_id)

    async def look_in_slices(self) -> None:
        by_id = self._context.version >= TOPIC_IDS_FROM_VERSION
        for wanted in self._turn.wanted:
            await self._context.breathe()
            self._look_for(wanted, by_id=by_id)

    def _look_for(self, wanted: Wanted, *, by_id: bool) -> None:
        wanted.error = wanted.partition = None
        try:
            group = find_group(self._context.node.groups, wanted.topic, wanted.topic_id, by_id=by_id)
            wanted.partition = find_readable(group, wanted.index)
            check_leader_epoch(wanted.partition, wanted.leader_epoch)
        except KafkaError as error:
            wanted.error = error.with_traceback(None)  # a session keeps it, and must not keep frames

    def partitions(self) -> "list[PartitionServer]":
        return [wanted.partition for wanted in self._turn.wanted if wanted.partition is not None]

    def is_enough(self) -> bool:
        """An error, nothing wanted, or min_bytes to read: answer now."""
        if not self._turn.wanted:
            return True
        readable = 0
        for wanted in self._turn.wanted:
            partition = wanted.partition
            if wanted.error is not None or partition is None or partition.is_lost:
                return True
            if wanted.offset != partition.end_offset:
                if not partition.start_offset <= wanted.offset <= partition.end_offset:
                    return True
                readable += partition.readable_bytes(wanted.offset, wanted.bytes_max)
            if readable >= self._min_bytes:
                return True
        return False

    def look_and_read(self) -> FetchResponse | Awaitable[FetchResponse]:
        """After a wait: the topic may be gone, or served by a new opening of the cell."""
        self.look()
        return self.read()

    def read(self) -> FetchResponse | Awaitable[FetchResponse]:
        """The response; awaitable when something has to be read from disk, or other answers must leave first."""
        is_short = self._context.node.answers.is_exceeded
        if is_short:
            self._bytes_max = min(self._bytes_max, SMALL_ANSWER_BYTES)
        self._begin()
        for wanted in self._turn.wanted:
            self._read(wanted)
        if self._cold:
            return self._read_cold()
        if is_short and self._left < 0:  # one batch is larger
            return self.read_in_slices()
        return self._respond()

    async def read_in_slices(self) -> FetchResponse:
        """The response, with turns for others between the partitions."""
        await self._context.node.answers.room(self._context)
        self._begin()
        for wanted in self._turn.wanted:
            await self._context.breathe()
            self._read(wanted)
        if self._cold:
            await self._warm()
        for wanted, read in zip(self._turn.wanted, self._reads, strict=True):
            await self._context.breathe()
            self._tell(wanted, read)
        return self._response()

    def _begin(self) -> None:
        self._reads: list[Read] = []
        self._cold: dict[int, Awaitable[Pieces | Regions]] = {}
        self._topics: dict[tuple[str, bytes], FetchableTopicResponse] = {}
        self._left = self._bytes_max
        self._is_first = True

    def _read(self, wanted: Wanted) -> None:
        read, size = self._read_one(wanted, self._left, is_first=self._is_first)
        if isinstance(read, (Pieces, Regions, BaseException)):
            self._reads.append(read)
        else:
            self._cold[len(self._reads)] = read
            self._reads.append(_NOTHING)
        if size:
            self._left -= size
            self._is_first = False

    def _read_one(self, wanted: Wanted, left: int, *, is_first: bool) -> tuple[Read | Awaitable[Pieces | Regions], int]:
        """What a partition gives, and how many bytes of the answer that takes (an estimate when it is cold)."""
        partition = wanted.partition
        if wanted.error is not None or partition is None:
            return wanted.error or KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), 0
        bytes_max = min(wanted.bytes_max, left)
        if bytes_max <= 0 and not is_first:
            return _NOTHING, 0
        try:
            if self._context.peer.takes_files:
                read = partition.read_to_send(wanted.offset, bytes_max, one_at_least=is_first)
            else:
                read = partition.read(wanted.offset, bytes_max, one_at_least=is_first)
        except KafkaError as error:
            return error, 0
        if isinstance(read, (Pieces, Regions)):
            return read, read.size
        return read, partition.readable_bytes(wanted.offset, bytes_max)

    async def _read_cold(self) -> FetchResponse:
        await self._warm()
        return self._respond()

    async def _warm(self) -> None:
        """Read the cold partitions side by side and put what they give into its place."""
        self._context.charge(max(self._bytes_max - self._left, 0))
        done = await asyncio.gather(*self._cold.values(), return_exceptions=True)
        for index, read in zip(self._cold, done, strict=True):
            self._reads[index] = read

    def _respond(self) -> FetchResponse:
        for wanted, read in zip(self._turn.wanted, self._reads, strict=True):
            self._tell(wanted, read)
        return self._response()

    def _tell(self, wanted: Wanted, read: Read) -> None:
        turn, topics = self._turn, self._topics
        data = self._partition_data(wanted, read)
        if turn.is_incremental and not _is_news(wanted, data):
            return
        wanted.sent_high_watermark = data.high_watermark if not data.error_code else -1
        wanted.sent_start_offset = data.log_start_offset
        if data.records and turn.session_id:
            turn.session.move_to_end(wanted)
        topic = topics.get((wanted.topic, wanted.topic_id))
        if topic is None:
            topic = FetchableTopicResponse(topic=wanted.topic, topic_id=wanted.topic_id, partitions=[])
            topics[wanted.topic, wanted.topic_id] = topic
        topic.partitions.append(data)

    def _response(self) -> FetchResponse:
        return FetchResponse(session_id=self._turn.session_id, responses=list(self._topics.values()))

    def _partition_data(self, wanted: Wanted, read: Read) -> PartitionData:
        partition = wanted.partition
        data = PartitionData(
            partition_index=wanted.index,
            high_watermark=-1,
            last_stable_offset=-1,
            log_start_offset=-1,
            aborted_transactions=[] if self._is_committed else None,
            records=(),
        )
        if partition is not None:
            data.high_watermark = partition.end_offset
            data.last_stable_offset = partition.last_stable_offset
            data.log_start_offset = partition.start_offset
        if isinstance(read, (Pieces, Regions)):
            data.records = read.buffers
            if isinstance(read, Regions):
                self._context.holds_files = True
        else:
            data.error_code, _ = translate(read)
            self._context.node.metrics.count_error(ErrorCode(data.error_code))
        return data


def _is_news(wanted: Wanted, data: PartitionData) -> bool:
    """Whether an incremental answer must list the partition (KIP-227)."""
    return bool(
        data.records
        or data.error_code
        or data.high_watermark != wanted.sent_high_watermark
        or data.log_start_offset != wanted.sent_start_offset
    )


_NOTHING = Pieces([], 0)

API = Api(
    key=1, name="Fetch", version_min=4, version_max=18,
    request=FetchRequest, response=FetchResponse, serve=serve, refuse=refuse,
)  # fmt: skip
