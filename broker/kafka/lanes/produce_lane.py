"""Produce that says the same of one topic as before on its connection, but for partitions and records.

It is compared, not decoded. Its batches are checked and enqueued as the handler does it, and its answer is one packing.
A request is left to be dispatched, before anything is done, when

- its words differ, or it is anything but partitions of that topic, each with one batch;
- the topic is gone, has another config, or may not be written to by the caller;
- the topic's batches need a preparation other than a look at their keys, which those of a compacted topic need;
- batches for one of the partitions wait for their preparation, and the topic is not compacted;
- a partition does not exist, or a batch fails a check but that of its keys;
- a batch is transactional, and its partition does not belong to its producer's open transaction yet, or something else
  is asked about the transactional id.

A thread looks at the keys of batches that take long, as on the general road. What becomes of its batches later, errors
and pauses too, is answered as the handler would.
"""

import logging
from collections.abc import Callable
from functools import cache, partial
from struct import Struct
from time import perf_counter
from typing import Final, NamedTuple

from pqbroker.broker.ground.access import AclKind, AclOperation, AclResource, check_access
from pqbroker.broker.ground.metrics import RouteMetrics
from pqbroker.broker.ground.seldom_log import SeldomLog
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.kafka.apis.exchange import Output
from pqbroker.broker.kafka.apis.lane import LaneRoad
from pqbroker.broker.kafka.apis.metering import produce_pause_ms
from pqbroker.broker.kafka.lanes.produce_answers import API_KEY, Decided, ProduceAnswers, Respond
from pqbroker.broker.kafka.lanes.produced_partitions import cut_fixed, cut_flexible
from pqbroker.broker.kafka.lanes.words import BODY_AT, TOPIC_IDS_FROM_VERSION, Words, find_words, topic_words
from pqbroker.broker.services.topics.finding import find_topic
from pqbroker.broker.services.topics.partitions import find_partition
from pqbroker.broker.services.topics.record_checks import KEYS_ONLY, Preparation, RecordChecks, preparation_of
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.topic import Topic
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.layout import codes, count_bytes, encoded
from pqbroker.protocol.messages.produce import ProduceRequest
from pqbroker.protocol.produced_batches import check_produced
from pqbroker.protocol.records import TRANSACTIONAL, BatchHeader
from pqbroker.protocol.schema import is_flexible
from pqbroker.storage.tablets.coordinator_rows import TransactionalImage

PRODUCE_LANES_FROM_VERSION: Final = 7
"""Before, an answer has no log start offset (5), and zstd is not allowed (7)."""

Checked = list[tuple[int, PartitionServer, memoryview, BatchHeader]]

seldom = SeldomLog(logging.getLogger(__name__))
_CORRELATION_ID = Struct(">i").unpack_from


def open_lane(
    respond: Respond, context: Context, request: ProduceRequest, frame: memoryview, road: LaneRoad
) -> "ProduceLane | None":
    """Return a lane for requests that repeat one which was dispatched; None if they must be dispatched too."""
    if context.version < PRODUCE_LANES_FROM_VERSION or len(request.topic_data) != 1:
        return None
    if request.acks not in (-1, 0, 1):
        return None
    (asked,) = request.topic_data
    flexible = is_flexible(API_KEY, context.version)
    name = topic_words(context, asked.name, asked.topic_id, flexible=flexible)
    start, numbers = _request_layout(context.version, request.transactional_id)
    one = count_bytes(1, flexible=flexible)
    words = find_words(frame, start + numbers.pack(request.acks, request.timeout_ms) + one + name)
    if words is None:
        return None
    by_id = context.version >= TOPIC_IDS_FROM_VERSION
    try:
        topic = find_topic(context, AclOperation.WRITE, asked.name, asked.topic_id if by_id else None)
    except KafkaError:
        return None
    preparation = preparation_of(topic)
    if preparation is not None and preparation is not KEYS_ONLY:
        return None
    answers = ProduceAnswers(context, request, name, respond)
    prepared = PreparedTopic(topic, preparation, request.transactional_id)
    return ProduceLane(context, words, prepared, answers, road.metrics)


def _request_layout(version: int, transactional_id: str | None) -> tuple[bytes, Struct]:
    """Return how a request begins, and the numbers that follow up to its topics."""
    return _layout(version) if transactional_id is None else _layout_of(version, transactional_id)


@cache
def _layout(version: int) -> tuple[bytes, Struct]:
    return _layout_of(version, None)


def _layout_of(version: int, transactional_id: str | None) -> tuple[bytes, Struct]:
    numbers = Struct(">" + codes(ProduceRequest, version, after="transactional_id"))
    flexible = is_flexible(API_KEY, version)
    tail = count_bytes(0, flexible=flexible) + (b"\0" if flexible else b"")
    request = ProduceRequest(transactional_id=transactional_id)
    return encoded(request, version)[: -numbers.size - len(tail)], numbers


class PreparedTopic(NamedTuple):
    """A topic, the preparation of its batches as long as its config is the same, the producer's transactional id."""

    topic: Topic
    preparation: Preparation | None
    transactional_id: str | None


class ProduceLane:
    """A lane: what the requests on it have in common."""

    __slots__ = (
        "_bytes_max", "_config", "_cut", "_name", "_peer", "_topic_id", "_transactional_id", "_use", "_words",
        "answers", "form", "metrics", "preparation",
    )  # fmt: skip

    def __init__(
        self, context: Context, words: Words, prepared: PreparedTopic, answers: ProduceAnswers, metrics: RouteMetrics
    ) -> None:
        topic, self.preparation, self._transactional_id = prepared
        self._peer = context.peer
        self._use = context.peer.use
        self.form = self._words = words
        self._cut = cut_flexible if words.is_flexible else cut_fixed
        self._name = topic.record.name
        self._topic_id = topic.record.topic_id if context.version >= TOPIC_IDS_FROM_VERSION else None
        self._config = topic.config
        self._bytes_max = topic.config.max_message_bytes
        self.answers = answers
        self.metrics = metrics

    def begin(self, frame: memoryview) -> "ProduceInLane | None":
        """Enqueue the batches of a request, in its order; None, and nothing is done: it must be dispatched."""
        started_at = perf_counter()
        words = self._words
        if frame[:4] != words.api or frame[BODY_AT : words.end] != words.start:
            return None
        checked = self._check(frame)
        if checked is None:
            return None
        exchange = ProduceInLane(self, frame, [each[0] for each in checked], started_at)
        if self._use is not None:
            exchange.pause_ms = produce_pause_ms(self._peer, len(frame))
        if self.preparation is None:
            exchange.enqueue(checked)
        else:
            exchange.prepare(checked, self.preparation, self._peer.node.record_checks)
        return exchange

    def _check(self, frame: memoryview) -> Checked | None:
        """The batches of a request, where all of them may be enqueued."""
        partitions = self._cut(frame, self._words.end)
        peer, bytes_max = self._peer, self._bytes_max
        if partitions is None:
            return None
        waiting = peer.node.record_checks.waiting if self.preparation is None else None
        checked: Checked = []
        try:
            topic = find_topic(peer, AclOperation.WRITE, self._name, self._topic_id)
            if topic.config is not self._config:
                return None
            opened = None if self._transactional_id is None else self._find_open(self._transactional_id)
            for index, records in partitions:
                header = check_produced(records, bytes_max)
                if header.attributes & TRANSACTIONAL and not _is_part(opened, topic, index, header):
                    return None
                partition = find_partition(topic, index)
                if waiting and partition in waiting:
                    return None
                checked.append((index, partition, records, header))
        except KafkaError:
            return None
        return checked

    def _find_open(self, transactional_id: str) -> TransactionalImage | None:
        """Return the producer's open transaction. KafkaError where the request is to be refused as a whole."""
        peer = self._peer
        check_access(peer, AclOperation.WRITE, AclResource(AclKind.TRANSACTIONAL_ID, transactional_id))
        current = peer.node.cell.current
        if current.cell.reading_only:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, current.cell.reading_only)
        return current.transactional_producers.find_open(transactional_id)


def _is_part(opened: TransactionalImage | None, topic: Topic, index: int, header: BatchHeader) -> bool:
    """Return True if a batch is one of an open transaction, by its producer and its partition."""
    return (
        opened is not None
        and header.producer_id == opened.producer_id
        and header.producer_epoch == opened.epoch
        and (topic.record.topic_id, index) in opened.partitions
    )


class ProduceInLane:
    """One such request, an `Exchange`: counts down the batches that are not durable yet."""

    __slots__ = (
        "_correlation_id", "_decided", "_indexes", "_lane", "_started_at", "_waiting", "frame_bytes", "is_done",
        "listener", "must_close", "output", "pause_ms",
    )  # fmt: skip

    is_produce = is_begun = True
    is_parked = is_charged = False
    hurried_at = 0.0

    def __init__(self, lane: ProduceLane, frame: memoryview, indexes: list[int], started_at: float) -> None:
        self._lane = lane
        self._indexes = indexes
        self._decided: list[Decided | None] = [None] * len(indexes)
        self._waiting = len(indexes) + 1
        self._started_at = started_at
        (self._correlation_id,) = _CORRELATION_ID(frame, 4)
        self.frame_bytes = len(frame)
        self.pause_ms = 0
        self.is_done = self.must_close = False
        self.output: Output | None = None
        self.listener: Callable[[], None] | None = None

    def enqueue(self, checked: Checked) -> None:
        """Put every batch into its partition's queue; it may be decided in the same call."""
        for position, (_, partition, records, header) in enumerate(checked):
            partition.writer.append(records, header, partial(self._decide, position))
            pause_ms = partition.throttle_ms(len(records), header.record_count)
            if pause_ms > self.pause_ms:
                self.pause_ms = pause_ms
        self._waiting -= 1
        if not self._waiting:
            self._finish()

    def prepare(self, checked: Checked, preparation: Preparation, checks: RecordChecks) -> None:
        """Do the same with batches that are prepared; the others are stored where one is refused."""
        for position, (_, partition, records, header) in enumerate(checked):
            answered = partial(self._decide, position)
            try:
                checks.write(partition, records, header, answered, preparation=preparation)
            except KafkaError as refusal:
                answered(refusal.with_traceback(None))  # its frames would hold it: garbage for the collector
                continue
            pause_ms = partition.throttle_ms(len(records), header.record_count)
            if pause_ms > self.pause_ms:
                self.pause_ms = pause_ms
        self._waiting -= 1
        if not self._waiting:
            self._finish()

    def hurry(self) -> None:
        """Do nothing: it is never parked."""

    def leave(self) -> None:
        """Do nothing: what is enqueued is stored all the same."""

    def _decide(self, position: int, decided: Decided) -> None:
        self._decided[position] = decided
        self._waiting -= 1
        if not self._waiting:
            self._finish()

    def _finish(self) -> None:
        lane = self._lane
        try:
            self.output = lane.answers.made(self._correlation_id, self._indexes, self._decided, self.pause_ms)
        except KafkaError as failure:
            seldom.info("Produce: the connection is closed: %s", failure)
            self.must_close = True
        lane.metrics.observe(perf_counter() - self._started_at)
        self.is_done = True
        if self.listener is not None:
            self.listener()
