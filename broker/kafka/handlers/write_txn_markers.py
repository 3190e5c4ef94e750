"""WriteTxnMarkers (key 27), versions 1 to 2.

Behaviour: ends the transaction of a producer in partitions, for operators (`kafka-transactions abort`): a marker is
written to each partition. Where a transactional id has the producer's transaction open, an abort ends the whole of it,
in all its partitions, and fences the producer; a commit of a part of it is INVALID_TXN_STATE.
Left out: the transaction version of a marker (version 2): epochs are compared alike in all of them.
"""

from pqbroker.broker.ground.access import AclOperation, check_access, is_allowed
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.kafka.apis.entries import each
from pqbroker.broker.services.topics.finding import find_topic
from pqbroker.broker.services.topics.partitions import find_partition
from pqbroker.broker.services.transactional_producers.ending import end_in
from pqbroker.broker.services.transactional_producers.rules import ends_at_ms, is_prepared
from pqbroker.protocol.control_records import EndMarker
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from pqbroker.storage.engine import CommitRefused, ShardLost
from pqbroker.storage.tablets.coordinator_rows import PartitionId, TransactionalImage


async def serve(context: Context, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    if not is_allowed(context, AclOperation.ALTER):
        check_access(context, AclOperation.CLUSTER_ACTION)
    results = []
    for marker in request.markers:
        await context.breathe()
        topics = []
        for topic in marker.topics:
            codes = [await _end(context, marker, topic.name, index) for index in topic.partition_indexes]
            answers = [
                WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
                for index, code in zip(topic.partition_indexes, codes, strict=True)
            ]
            topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=answers))
        results.append(WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics))
    return WriteTxnMarkersResponse(markers=results)


def refuse(
    context: Context, request: WriteTxnMarkersRequest, code: ErrorCode, message: str
) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=each(
            request.markers,
            lambda marker: WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=each(
                    marker.topics,
                    lambda topic: WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=each(
                            topic.partition_indexes,
                            lambda index: WritableTxnMarkerPartitionResult(partition_index=index, error_code=code),
                        ),
                    ),
                ),
            ),
        )
    )


async def _end(context: Context, marker: WritableTxnMarker, name: str, index: int) -> ErrorCode:
    """End the producer's transaction in a partition; return what became of it."""
    await context.breathe()
    try:
        topic = find_topic(context, None, name)
        server = find_partition(topic, index)
        producers = context.node.cell.current.transactional_producers
        held = producers.find_producer(marker.producer_id)
        if held is not None and _holds(held, PartitionId(topic.record.topic_id, index)):
            _check_held(held, marker)
            await producers.abort_whole(held.transactional_id)
            return ErrorCode.NONE
        ends = EndMarker(
            marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, marker.transaction_result
        )
        await end_in(context.node.cell.current.topics, server, ends)
    except KafkaError as refusal:
        return refusal.code
    except (CommitRefused, ShardLost):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.NONE


def _holds(held: TransactionalImage, partition: PartitionId) -> bool:
    """Return True if the coordinator ends this partition's transaction itself."""
    return partition in held.partitions and (is_prepared(held) or ends_at_ms(held) is not None)


def _check_held(held: TransactionalImage, marker: WritableTxnMarker) -> None:
    if marker.producer_epoch < held.epoch and not is_prepared(held):
        raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, f"the producer's epoch is {held.epoch}")
    if marker.transaction_result and not is_prepared(held):
        text = f"transactional id {held.transactional_id!r} has the transaction open: its producer ends it"
        raise KafkaError(ErrorCode.INVALID_TXN_STATE, text)


API = Api(request=WriteTxnMarkersRequest, response=WriteTxnMarkersResponse, serve=serve, refuse=refuse)
