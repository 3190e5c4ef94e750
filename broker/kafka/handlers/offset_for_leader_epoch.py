"""OffsetForLeaderEpoch (key 23), versions 2 to 4.

Behaviour: the end offset of the greatest epoch that is not above the asked one; (-1, -1) when none is known. The
current leader epoch of the request is checked first (KIP-320).
What is named twice is answered twice, as in Kafka.
Left out: replicas as askers; they get the same answer.
"""

from pqbroker.broker.ground.access import AclOperation, is_allowed
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.kafka.apis.entries import each
from pqbroker.broker.services.topics.finding import find_topic
from pqbroker.broker.services.topics.partitions import check_leader_epoch, find_loaded
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def serve(context: Context, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    operation = None if is_allowed(context, AclOperation.CLUSTER_ACTION) else AclOperation.DESCRIBE
    return OffsetForLeaderEpochResponse(
        topics=each(
            request.topics,
            lambda topic: OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=each(topic.partitions, lambda asked: _answer(context, operation, topic.topic, asked)),
            ),
        )
    )


def refuse(
    context: Context, request: OffsetForLeaderEpochRequest, code: ErrorCode, message: str
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=each(
            request.topics,
            lambda topic: OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=each(
                    topic.partitions, lambda asked: EpochEndOffset(partition=asked.partition, error_code=code)
                ),
            ),
        )
    )


def _answer(
    context: Context, operation: AclOperation | None, named: str, asked: OffsetForLeaderPartition
) -> EpochEndOffset:
    answer = EpochEndOffset(partition=asked.partition)
    try:
        topic = find_topic(context, operation, named)
        partition = find_loaded(topic, asked.partition)
        check_leader_epoch(partition, asked.current_leader_epoch)
    except KafkaError as error:
        answer.error_code = error.code
    else:
        answer.leader_epoch, answer.end_offset = partition.state.epochs.end_of(asked.leader_epoch, partition.end_offset)
    return answer


API = Api(request=OffsetForLeaderEpochRequest, response=OffsetForLeaderEpochResponse, serve=serve, refuse=refuse)
