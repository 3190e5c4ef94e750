"""Produce (key 0), versions 3 to 13; advertised from 0, since librdkafka turns compression off otherwise.

Behaviour: every batch is checked and enqueued at its partition before this returns, so the order on a connection is
the order in the log; the answer comes when all are durable. acks 0 gets no answer; an error then closes the
connection. Errors are per partition, with a text from version 8. Topics are never created here (Metadata does that).
Of a partition named twice both batches are stored and answered; Kafka drops the first without a word.
A batch for a compacted topic is refused whole when a record has no key, and one for a topic with value.invalid=refuse
when a record is no row of its schema; from version 8 the answer names those records. With pq.batch.check=full every
record is read; with a compression.type other than producer, batches under another codec are recompressed. A thread
does what takes long, while what follows for the partition waits.
Writers over a partition's quota, or with too much in flight there, are answered at once with a throttle time, for which
their connection is not read either (KIP-219).
A transactional batch is taken where its partition belongs to its producer's transaction, else INVALID_TXN_STATE, in
version 11 TRANSACTION_ABORTABLE; from version 12 (KIP-890) the partition is added first, which is durable before the
batch is, and later batches of the producer wait behind it. A batch of another epoch than the producer's is
INVALID_PRODUCER_EPOCH. Where another node coordinates the transaction, it is asked for each batch; without its answer
the batch is NOT_ENOUGH_REPLICAS.
Left out: versions 0 to 2 (the connection closes).
"""

from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from itertools import count

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.ground.refusals import translate
from pqbroker.broker.kafka.apis.answer import Answer
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.kafka.apis.entries import each
from pqbroker.broker.kafka.apis.metering import produce_pause_ms
from pqbroker.broker.kafka.apis.transactional_requests import FENCED_AS_EPOCH, producers_of
from pqbroker.broker.kafka.lanes.produce_answers import Decided
from pqbroker.broker.kafka.lanes.produce_lane import open_lane
from pqbroker.broker.services.topics.finding import find_topic
from pqbroker.broker.services.topics.partitions import check_batch, find_partition
from pqbroker.broker.services.topics.record_checks import preparation_of
from pqbroker.broker.services.transactional_producers.admission import BatchOfTransaction
from pqbroker.broker.services.transactional_producers.rules import Claim
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.topic import Topic
from pqbroker.pq.serving.write_queue import Answered
from pqbroker.protocol.errors import ErrorCode, KafkaError, RecordsRefused
from pqbroker.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from pqbroker.protocol.records import BatchHeader
from pqbroker.storage.tablets.coordinator_rows import PartitionId

TOPIC_IDS_FROM_VERSION = 13
ZSTD = 4
ZSTD_FROM_VERSION = 7
ADDS_PARTITIONS_FROM_VERSION = 12
_CODES = {
    **FENCED_AS_EPOCH,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_ENOUGH_REPLICAS,
}
"""Codes that producers expect here, for those of the coordinator: as in Kafka the one that has them retry."""
_CODES_BEFORE_ADDING = {**_CODES, ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.NOT_ENOUGH_REPLICAS}
_CODES_WITH_ABORTABLE = {**_CODES_BEFORE_ADDING, ErrorCode.INVALID_TXN_STATE: ErrorCode.TRANSACTION_ABORTABLE}
ABORTABLE_FROM_PRODUCE_VERSION = 11
BATCHES_A_TURN = 100
"""Batches of a long request that are enqueued in one turn of the loop."""


def serve(
    context: Context, request: ProduceRequest
) -> Answer[ProduceResponse] | Awaitable[Answer[ProduceResponse]]:
    if request.acks not in (-1, 0, 1):
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {request.acks}; use 0, 1 or -1 (all)")
    if request.transactional_id is not None:
        producers_of(context, request.transactional_id, AclOperation.WRITE)
    append = _Append(context, request)
    if context.peer.use is not None:
        append.pause(produce_pause_ms(context.peer, context.frame_bytes))
    if context.is_long:
        return append.enqueue_in_slices()
    append.enqueue()
    return append.answer


def refuse(context: Context, request: ProduceRequest, code: ErrorCode, message: str) -> ProduceResponse | None:
    """Return a response that refuses the whole request.

    None with acks 0: the client waits for no answer, the closed connection tells it.
    """
    if request.acks == 0:
        return None
    return ProduceResponse(
        responses=each(
            request.topic_data,
            lambda topic: TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=each(topic.partition_data, lambda data: _refused(data.index, code, message)),
            ),
        )
    )


def respond(
    asked: Sequence[TopicProduceData], decided: Sequence[Sequence[Decided | None]], throttle_ms: int
) -> tuple[ProduceResponse, BaseException | None]:
    """The answer once every batch is stored or refused, and why the first one was refused."""
    answers = list(map(_topic_response, asked, decided))
    refused = next((told for of_topic in decided for told in of_topic if isinstance(told, BaseException)), None)
    return ProduceResponse(responses=answers, throttle_time_ms=throttle_ms), refused


class _Append:
    """One Produce in work: counts down the partitions that are not durable yet."""

    __slots__ = ("_context", "_decided", "_request", "_throttle_ms", "_waiting", "answer")

    def __init__(self, context: Context, request: ProduceRequest) -> None:
        self._context = context
        self._request = request
        self._decided: list[list[Decided | None]] = []
        """Outcomes of the batches, a list for each topic."""
        self._throttle_ms = 0
        self._waiting = 1
        self.answer: Answer[ProduceResponse] = Answer()

    def pause(self, pause_ms: int) -> None:
        """Have the client pause that long at least."""
        if pause_ms > self._throttle_ms:
            self._throttle_ms = self.answer.pause_ms = pause_ms

    def enqueue(self) -> None:
        """Put every batch into its partition's queue, in the order of the request."""
        for asked in self._request.topic_data:
            topic, decided = self._begin(asked)
            for position, data in enumerate(asked.partition_data):
                self._append(topic, data, partial(self._decide, decided, position))
        self._count_down()

    async def enqueue_in_slices(self) -> Answer[ProduceResponse]:
        """The same for a long request, with turns for others between topics and batches. What is enqueued is planned at
        the end of its turn, which takes longer than to enqueue it."""
        enqueued = count(1)
        for asked in self._request.topic_data:
            await self._context.breathe()
            topic, decided = self._begin(asked)
            for position, data in enumerate(asked.partition_data):
                await self._context.breathe()
                self._append(topic, data, partial(self._decide, decided, position))
                if next(enqueued) % BATCHES_A_TURN == 0:
                    await self._context.node.turns.turn()
        self._count_down()
        return self.answer

    def _begin(self, asked: TopicProduceData) -> tuple[Topic | KafkaError, list[Decided | None]]:
        """The topic, or why there is none, and where it is kept what becomes of its batches."""
        decided: list[Decided | None] = [None] * len(asked.partition_data)
        self._decided.append(decided)
        by_id = self._context.version >= TOPIC_IDS_FROM_VERSION
        try:
            topic = find_topic(self._context, AclOperation.WRITE, asked.name, asked.topic_id if by_id else None)
        except KafkaError as error:
            return error, decided
        return topic, decided

    def _append(self, topic: Topic | KafkaError, data: PartitionProduceData, answered: Answered) -> None:
        self._waiting += 1
        try:
            self._write(topic, data, answered)
        except KafkaError as error:
            answered(error.with_traceback(None))  # its frames would hold it: garbage for the collector

    def _write(self, topic: Topic | KafkaError, data: PartitionProduceData, answered: Answered) -> None:
        if isinstance(topic, KafkaError):
            raise topic
        partition = find_partition(topic, data.index)
        records = data.records
        if records is None:
            raise KafkaError(ErrorCode.INVALID_RECORD, "a Produce request holds exactly one record batch a partition")
        header = check_batch(topic, records)
        if self._context.version < ZSTD_FROM_VERSION and header.codec == ZSTD:
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or later")
        if header.is_transactional:
            self._write_transactional(topic, data, header, answered)
        else:
            self._enqueue(topic, partition, data, header, answered)

    def _write_transactional(
        self, topic: Topic, data: PartitionProduceData, header: BatchHeader, answered: Answered
    ) -> None:
        """Enqueue a batch once its partition belongs to its producer's transaction."""
        transactional_id = self._request.transactional_id
        if transactional_id is None:
            text = "a transactional batch in a request without a transactional id"
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, text)
        current = self._context.node.cell.current
        claim = Claim(header.producer_id, header.producer_epoch)
        partition = PartitionId(topic.record.topic_id, data.index)
        adds = self._context.version >= ADDS_PARTITIONS_FROM_VERSION

        def admitted(refusal: KafkaError | None) -> None:
            try:
                if refusal is not None:
                    raise _for_producer(refusal, _codes(self._context.version))
                self._enqueue(topic, find_partition(topic, data.index), data, header, answered)
            except KafkaError as error:
                answered(error.with_traceback(None))

        if current.admission is not None:
            current.admission.admit(BatchOfTransaction(transactional_id, claim, partition, adds), admitted)
            return
        producers = current.transactional_producers
        try:
            if adds:
                producers.admit(transactional_id, claim, partition, admitted)
            else:
                producers.check_added(transactional_id, claim, partition)
        except KafkaError as refusal:
            raise _for_producer(refusal, _codes(self._context.version)) from None
        if not adds:
            admitted(None)

    def _enqueue(
        self, topic: Topic, partition: PartitionServer, data: PartitionProduceData, header: BatchHeader,
        answered: Answered,
    ) -> None:
        records = data.records
        assert records is not None, "its header was read"
        preparation, checks = preparation_of(topic), self._context.node.record_checks
        if preparation is not None or checks.waiting:
            checks.write(partition, records, header, answered, preparation=preparation)
        else:
            partition.writer.append(records, header, answered)
        self.pause(partition.throttle_ms(len(records), header.record_count))

    def _decide(self, decided: list[Decided | None], position: int, told: Decided) -> None:
        decided[position] = told
        self._count_down()

    def _count_down(self) -> None:
        self._waiting -= 1
        if self._waiting:
            return
        response, refused = respond(self._request.topic_data, self._decided, self._throttle_ms)
        if self._request.acks != 0:
            self.answer.complete(response)
        elif refused is not None:
            self.answer.fail(KafkaError(*translate(refused)))  # only a closed connection can report it
        else:
            self.answer.complete(None)


def _codes(version: int) -> Mapping[ErrorCode, ErrorCode]:
    if version >= ADDS_PARTITIONS_FROM_VERSION:
        return _CODES
    return _CODES_WITH_ABORTABLE if version >= ABORTABLE_FROM_PRODUCE_VERSION else _CODES_BEFORE_ADDING


def _for_producer(refusal: KafkaError, codes: Mapping[ErrorCode, ErrorCode]) -> KafkaError:
    return KafkaError(codes.get(refusal.code, refusal.code), refusal.message)


def _topic_response(asked: TopicProduceData, decided: Sequence[Decided | None]) -> TopicProduceResponse:
    data = asked.partition_data
    return TopicProduceResponse(
        name=asked.name,
        topic_id=asked.topic_id,
        partition_responses=each(range(len(data)), lambda at: _partition_response(data[at], decided[at])),
    )


def _partition_response(data: PartitionProduceData, decided: Decided | None) -> PartitionProduceResponse:
    assert decided is not None
    if not isinstance(decided, BaseException):
        return PartitionProduceResponse(
            index=data.index,
            base_offset=decided.base_offset,
            log_append_time_ms=decided.log_append_time_ms,
            log_start_offset=decided.log_start_offset,
        )
    code, message = translate(decided)
    response = _refused(data.index, code, message)
    if isinstance(decided, RecordsRefused):
        response.record_errors = [
            BatchIndexAndErrorMessage(batch_index=number, batch_index_error_message=text)
            for number, text in decided.records.items()
        ]
    return response


def _refused(index: int, code: ErrorCode, message: str) -> PartitionProduceResponse:
    return PartitionProduceResponse(index=index, error_code=code, base_offset=-1, error_message=message or None)


API = Api(
    request=ProduceRequest, response=ProduceResponse, serve=serve, refuse=refuse, advertised_from=0,
    open_lane=partial(open_lane, respond),
)  # fmt: skip
