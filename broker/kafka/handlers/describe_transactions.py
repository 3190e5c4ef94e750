"""DescribeTransactions (key 65), versions 0 to 0.

Behaviour: state, producer, timeout and partitions of each transactional id; when its transaction began, -1 without one.
An unknown id is TRANSACTIONAL_ID_NOT_FOUND, the empty one INVALID_REQUEST. Topics that the caller may not describe, and
topics that were deleted, are left out.
Left out: the partitions of consumer offsets, which are no topic here.
"""

from pqbroker.broker.ground.access import AclKind, AclOperation, AclResource, is_allowed
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.kafka.apis.entries import each
from pqbroker.broker.kafka.apis.transactional_requests import producers_of
from pqbroker.broker.services.transactional_producers.listing import partitions_by_topic
from pqbroker.broker.services.transactional_producers.producers import not_found
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)


def serve(context: Context, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
    states = each(request.transactional_ids, lambda transactional_id: _answer(context, transactional_id))
    return DescribeTransactionsResponse(transaction_states=states)


def refuse(
    context: Context, request: DescribeTransactionsRequest, code: ErrorCode, message: str
) -> DescribeTransactionsResponse:
    states = each(request.transactional_ids, lambda transactional_id: _failed(transactional_id, code))
    return DescribeTransactionsResponse(transaction_states=states)


def _answer(context: Context, transactional_id: str) -> TransactionState:
    try:
        return _describe(context, transactional_id)
    except KafkaError as refusal:
        return _failed(transactional_id, refusal.code)


def _describe(context: Context, transactional_id: str) -> TransactionState:
    producers = producers_of(context, transactional_id, AclOperation.DESCRIBE)
    if not transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a transactional id is not empty")
    image = producers.find(transactional_id)
    if image is None:
        raise not_found(transactional_id)
    topics = [
        TopicData(topic=name, partitions=indexes)
        for name, indexes in partitions_by_topic(context.node.cell.current.topics, image).items()
        if is_allowed(context, AclOperation.DESCRIBE, AclResource(AclKind.TOPIC, name))
    ]
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=image.state.value,
        transaction_timeout_ms=image.timeout_ms,
        transaction_start_time_ms=image.started_ms,
        producer_id=image.producer_id,
        producer_epoch=image.epoch,
        topics=topics,
    )


def _failed(transactional_id: str, code: ErrorCode) -> TransactionState:
    return TransactionState(error_code=code, transactional_id=transactional_id)


API = Api(
    request=DescribeTransactionsRequest, response=DescribeTransactionsResponse, serve=serve, refuse=refuse,
    answers_at_length=True,
)  # fmt: skip
