"""OffsetForLeaderEpoch (key 23), versions 2 to 4.

Behaviour: the end offset of the greatest epoch that is not above the asked one; (-1, -1) when none is known. The
current leader epoch of the request is checked first (KIP-320).
What is named twice is answered twice, as in Kafka.
Left out: replicas as askers; they get the same answer.
"""

from pqbroker.broker.apis import Api
from pqbroker.broker.context import Context
from pqbroker.broker.entries import each
from pqbroker.broker.partitions import NO_TOPIC_ID, check_leader_epoch, find_group, find_readable
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def serve(context: Context, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=each(
            request.topics,
            lambda topic: OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=each(topic.partitions, lambda asked: _answer(context, topic.topic, asked)),
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


def _answer(context: Context, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    answer = EpochEndOffset(partition=asked.partition)
    try:
        group = find_group(context.node.groups, topic, NO_TOPIC_ID, by_id=False)
        partition = find_readable(group, asked.partition)
        check_leader_epoch(partition, asked.current_leader_epoch)
    except KafkaError as error:
        context.node.metrics.count_error(error.code)
        answer.error_code = error.code
    else:
        answer.leader_epoch, answer.end_offset = partition.end_of_epoch(asked.leader_epoch)
    return answer


API = Api(
    key=23, name="OffsetForLeaderEpoch", version_min=2, version_max=4,
    request=OffsetForLeaderEpochRequest, response=OffsetForLeaderEpochResponse, serve=serve, refuse=refuse,
)  # fmt: skip
