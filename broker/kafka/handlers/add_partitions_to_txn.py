"""AddPartitionsToTxn (key 24), versions 0 to 5.

Behaviour: partitions are taken into a producer's transaction, all of a request or none: beside one that is unknown or
forbidden the others are OPERATION_NOT_ATTEMPTED. It is durable before the answer. Right behind an end the request waits
up to add.partitions.to.txn.retry.backoff.max.ms for it, then it is CONCURRENT_TRANSACTIONS. Version 4 and 5 are for
brokers, with several transactions in a request; with verify_only nothing changes, and a partition that does not belong
to the transaction is TRANSACTION_ABORTABLE.
Left out: nothing.
"""

from pqbroker.broker.ground.access import AclKind, AclOperation, AclResource, check_access
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.kafka.apis.transactional_requests import (
    FENCED_AS_EPOCH,
    FoundPartition,
    find_partitions,
    producers_of,
)
from pqbroker.broker.services.transactional_producers.rules import Addition, Claim, check_added
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from pqbroker.storage.tablets.coordinator_rows import PartitionId

SEVERAL_FROM_VERSION = 4
_FENCED_FROM_VERSION = 2


async def serve(context: Context, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
    if context.version < SEVERAL_FROM_VERSION:
        asked = _of_first_versions(request)
        check_access(context, AclOperation.WRITE, AclResource(AclKind.TRANSACTIONAL_ID, asked.transactional_id))
        return _single(await _add(context, asked))
    check_access(context, AclOperation.CLUSTER_ACTION)
    results = []
    for asked in request.transactions:
        await context.breathe()
        topics = await _add(context, asked)
        results.append(AddPartitionsToTxnResult(transactional_id=asked.transactional_id, topic_results=topics))
    return AddPartitionsToTxnResponse(results_by_transaction=results)


def refuse(
    context: Context, request: AddPartitionsToTxnRequest, code: ErrorCode, message: str
) -> AddPartitionsToTxnResponse:
    if context.version >= SEVERAL_FROM_VERSION:
        return AddPartitionsToTxnResponse(error_code=code)
    return _single(_all(request.v3_and_below_topics, code))


def _of_first_versions(request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )


async def _add(context: Context, asked: AddPartitionsToTxnTransaction) -> list[AddPartitionsToTxnTopicResult]:
    operation = AclOperation.WRITE if context.version < SEVERAL_FROM_VERSION else None  # brokers send later versions
    found: list[FoundPartition] = []
    for topic in asked.topics:
        for each in find_partitions(context, operation, topic.name, topic.partitions):
            await context.breathe()
            found.append(each)
    if any(each.refusal for each in found):
        codes = [each.refusal or ErrorCode.OPERATION_NOT_ATTEMPTED for each in found]
        return _by_topic(asked.topics, codes)
    partitions = frozenset(each.partition for each in found if each.partition is not None)
    try:
        await _begin(context, asked, partitions)
    except KafkaError as refusal:
        return _all(asked.topics, _code(context, refusal, is_check=asked.verify_only))
    return _all(asked.topics, ErrorCode.NONE)


async def _begin(
    context: Context, asked: AddPartitionsToTxnTransaction, partitions: frozenset[PartitionId]
) -> None:
    if not asked.transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a transactional id is not empty")
    operation = AclOperation.WRITE if context.version < SEVERAL_FROM_VERSION else None
    producers = producers_of(context, asked.transactional_id, operation)
    claim = Claim(asked.producer_id, asked.producer_epoch)
    if not asked.verify_only:
        await producers.add(asked.transactional_id, claim, Addition(partitions))
        return
    refusal = check_added(producers.find(asked.transactional_id), claim, partitions)
    if refusal is not None:
        raise refusal


def _code(context: Context, refusal: KafkaError, *, is_check: bool) -> ErrorCode:
    if is_check and refusal.code is ErrorCode.INVALID_TXN_STATE:
        return ErrorCode.TRANSACTION_ABORTABLE
    return FENCED_AS_EPOCH.get(refusal.code, refusal.code) if context.version < _FENCED_FROM_VERSION else refusal.code


def _all(topics: list[AddPartitionsToTxnTopic], code: ErrorCode) -> list[AddPartitionsToTxnTopicResult]:
    return _by_topic(topics, [code] * sum(len(topic.partitions) for topic in topics))


def _by_topic(
    topics: list[AddPartitionsToTxnTopic], codes: list[ErrorCode]
) -> list[AddPartitionsToTxnTopicResult]:
    """`codes`: of all partitions, in the order of the request."""
    following = iter(codes)
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=next(following))
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


def _single(topics: list[AddPartitionsToTxnTopicResult]) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)


API = Api(request=AddPartitionsToTxnRequest, response=AddPartitionsToTxnResponse, serve=serve, refuse=refuse)
