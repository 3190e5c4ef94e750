"""AlterPartitionReassignments (key 45), versions 0 to 1.

Behaviour: a partition may be assigned to this broker, where it is already: done at once. Any other assignment is
INVALID_REPLICA_ASSIGNMENT with a text; to cancel one (null) is NO_REASSIGNMENT_IN_PROGRESS, as none ever is.
What is named twice is answered twice, as in Kafka.
Left out: replicas and moves between nodes.
"""

from pqbroker.broker.ground.access import AclOperation, check_access
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.kafka.apis.entries import each
from pqbroker.broker.services.topics.finding import find_topic
from pqbroker.broker.services.topics.partitions import find_partition
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


def serve(context: Context, request: AlterPartitionReassignmentsRequest) -> AlterPartitionReassignmentsResponse:
    check_access(context, AclOperation.ALTER)
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=each(
            request.topics,
            lambda topic: ReassignableTopicResponse(
                name=topic.name,
                partitions=each(topic.partitions, lambda asked: _answer(context, topic.name, asked)),
            ),
        ),
    )


def _answer(context: Context, topic: str, asked: ReassignablePartition) -> ReassignablePartitionResponse:
    answer = ReassignablePartitionResponse(partition_index=asked.partition_index, error_message=None)
    try:
        _check(context, topic, asked)
    except KafkaError as error:
        answer.error_code, answer.error_message = error.code, error.message
    return answer


def _check(context: Context, topic: str, asked: ReassignablePartition) -> None:
    find_partition(find_topic(context, None, topic), asked.partition_index)
    leaders = context.node.leaders
    if asked.replicas is None:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "no replica of this broker is ever moved")
    if not leaders.can_have(asked.replicas):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"broker {leaders.own} is the only one; assign the partition to it alone, not to {asked.replicas}",
        )


API = Api(request=AlterPartitionReassignmentsRequest, response=AlterPartitionReassignmentsResponse, serve=serve)
