"""Produce (key 0), versions 3 to 13; advertised from 0, since librdkafka turns compression off otherwise.

Behaviour: every batch is checked and enqueued at its partition before this returns, so the order on a connection is
the order in the log; the answer comes when all are durable. acks 0 gets no answer; an error then closes the
connection. Errors are per partition, with a text from version 8. Topics are never created here (Metadata does that).
Of a partition named twice both batches are stored and answered; Kafka drops the first without a word.
A batch for a compacted topic is refused whole when a record has no key; from version 8 the answer names those records.
A thread looks into long ones, while what follows for their partition waits.
Writers over a partition's quota, or with too much in flight there, are answered at once with a throttle time, for which
their connection is not read either (KIP-219).
Left out: versions 0 to 2 (the connection closes) and transactions: a transactional id or batch is refused with
UNSUPPORTED_VERSION, which Java and librdkafka take as final; nothing waits or retries.
"""

from collections.abc import Awaitable
from functools import partial

from pqbroker.broker.answer import Answer
from pqbroker.broker.apis import Api
from pqbroker.broker.context import Context
from pqbroker.broker.entries import each
from pqbroker.broker.partitions import check_batch, find_group, find_partition, needs_keys
from pqbroker.broker.refusals import translate
from pqbroker.pq.cycle import Written
from pqbroker.pq.group import Group
from pqbroker.protocol.errors import ErrorCode, KafkaError, ProtocolError, RecordsRefused
from pqbroker.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from pqbroker.storage.outcome import Outcome

TOPIC_IDS_FROM_VERSION = 13
ZSTD = 4
ZSTD_FROM_VERSION = 7
_NO_TRANSACTIONS = "this broker serves no transactions yet; produce without transactional.id"


def serve(
    context: Context, request: ProduceRequest
) -> Answer[ProduceResponse] | Awaitable[Answer[ProduceResponse]]:
    if request.acks not in (-1, 0, 1):
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {request.acks}; use 0, 1 or -1 (all)")
    if request.transactional_id is not None:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, _NO_TRANSACTIONS)
    append = _Append(context, request)
    if context.is_long:
        return append.enqueue_in_slices()
    append.enqueue()
    return append.answer


def refuse(context: Context, request: ProduceRequest, code: ErrorCode, message: str) -> ProduceResponse | None:
    """None with acks 0: the client waits for no answer, the closed connection tells it."""
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


class _Append:
    """One Produce in work: counts down the partitions that are not durable yet."""

    __slots__ = ("_context", "_has_failed", "_request", "_response", "_waiting", "answer")

    def __init__(self, context: Context, request: ProduceRequest) -> None:
        self._context = context
        self._request = request
        self._response = ProduceResponse()
        self._waiting = 1
        self._has_failed = False
        self.answer: Answer[ProduceResponse] = Answer()

    def enqueue(self) -> None:
        """Put every batch into its partition's queue, in the order of the request."""
        for topic in self._request.topic_data:
            group, answers = self._begin(topic)
            for data in topic.partition_data:
                answers.append(self._append(group, data))
        self._count_down()

    async def enqueue_in_slices(self) -> Answer[ProduceResponse]:
        """The same for a long request, with turns for others between the batches."""
        for topic in self._request.topic_data:
            group, answers = self._begin(topic)
            for data in topic.partition_data:
                await self._context.breathe()
                answers.append(self._append(group, data))
        self._count_down()
        return self.answer

    def _begin(self, topic: TopicProduceData) -> tuple[Group | KafkaError, list[PartitionProduceResponse]]:
        """The topic, or why there is none, and where the answers of its partitions go."""
        answers: list[PartitionProduceResponse] = []
        self._response.responses.append(
            TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)
        )
        by_id = self._context.version >= TOPIC_IDS_FROM_VERSION
        try:
            return find_group(self._context.node.groups, topic.name, topic.topic_id, by_id=by_id), answers
        except KafkaError as error:
            return error, answers

    def _append(self, group: Group | KafkaError, data: PartitionProduceData) -> PartitionProduceResponse:
        response = PartitionProduceResponse(index=data.index)
        if isinstance(group, KafkaError):
            return self._refuse(response, group)
        try:
            outcome = self._write(group, data)
        except KafkaError as error:
            return self._refuse(response, error)
        self._waiting += 1
        outcome.add_done_callback(partial(self._written, response))
        return response

    def _write(self, group: Group, data: PartitionProduceData) -> Outcome[Written]:
        partition = find_partition(group, data.index)
        records = data.records
        if records is None:
            raise KafkaError(ErrorCode.INVALID_RECORD, "a Produce request holds exactly one record batch a partition")
        header = check_batch(group, records)
        if header.is_transactional:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, _NO_TRANSACTIONS)
        if header.codec == ZSTD and self._context.version < ZSTD_FROM_VERSION:
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or later")
        keyed, checks = needs_keys(group), self._context.node.key_checks
        if keyed or checks.are_waiting:
            written = checks.write(partition, records, header, needs_keys=keyed)
        else:
            written = partition.write(records, header)
        pause_ms = partition.throttle_ms(len(records), header.record_count)
        if pause_ms > self._response.throttle_time_ms:
            self._response.throttle_time_ms = self._context.peer.pause_ms = pause_ms
        return written

    def _written(self, response: PartitionProduceResponse, outcome: Outcome[Written]) -> None:
        error = outcome.exception()
        if error is not None:
            self._refuse(response, error)
        else:
            written = outcome.result()
            response.base_offset = written.base_offset
            response.log_append_time_ms = written.log_append_time_ms
            response.log_start_offset = written.log_start_offset
        self._count_down()

    def _refuse(self, response: PartitionProduceResponse, error: BaseException) -> PartitionProduceResponse:
        code, message = translate(error)
        self._context.node.metrics.count_error(code)
        self._has_failed = True
        response.error_code = code
        response.error_message = message or None
        response.base_offset = response.log_append_time_ms = response.log_start_offset = -1
        if isinstance(error, RecordsRefused):
            response.record_errors = [
                BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=text)
                for index, text in error.records.items()
            ]
        return response

    def _count_down(self) -> None:
        self._waiting -= 1
        if self._waiting:
            return
        if self._request.acks != 0:
            self.answer.complete(self._response)
        elif self._has_failed:
            self.answer.fail(ProtocolError("a Produce with acks 0 failed, which only a closed connection can tell"))
        else:
            self.answer.complete(None)


def _refused(index: int, code: ErrorCode, message: str) -> PartitionProduceResponse:
    return PartitionProduceResponse(index=index, error_code=code, base_offset=-1, error_message=message or None)


API = Api(
    key=0, name="Produce", version_min=3, version_max=13, advertised_min=0,
    request=ProduceRequest, response=ProduceResponse, serve=serve, refuse=refuse,
)  # fmt: skip
