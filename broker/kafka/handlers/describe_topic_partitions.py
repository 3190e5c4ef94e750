"""DescribeTopicPartitions (key 75), versions 0 to 0.

Behaviour: topics in the order of their names, all of them when none is named, from the cursor on and up to a limit of
partitions (at least one, at most max.request.partition.size.limit), then with the cursor to continue from. What is gone
since at the cursor is passed over; a cursor at a topic that is not among those named is INVALID_REQUEST for each. Lists
are empty, never null: Java cannot read the latter. Authorized operations are in each answer, with an error too.
What is named twice is answered once, as in Kafka.
Left out: eligible leader replicas (there is one replica).
"""

from pqbroker.broker.ground.access import AclKind, AclOperation, AclResource
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.authorized_operations import authorized_operations
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.kafka.apis.entries import each
from pqbroker.broker.services.leaders import Leaders
from pqbroker.broker.services.topics.finding import find_topic, visible_topics
from pqbroker.broker.services.topics.topic_names import check_topic_name
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.topic import Topic
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)


async def serve(context: Context, request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    names = sorted({topic.name for topic in request.topics} or await _every_name(context))
    start = request.cursor or Cursor()
    if start.partition_index < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"the cursor's partition is {start.partition_index}")
    if request.cursor and request.topics and start.topic_name not in names:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"the cursor's topic {start.topic_name} is not among those named")
    room = max(min(request.response_partition_limit, context.node.settings.describe_partitions_max), 1)
    response = DescribeTopicPartitionsResponse()
    for name in names:
        await context.breathe()
        if name < start.topic_name:
            continue
        if room == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        first = start.partition_index if name == start.topic_name else 0
        topic, count = _describe(context, name, first, room)
        if topic.error_code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            topic.topic_authorized_operations = authorized_operations(context, AclResource(AclKind.TOPIC, name))
        response.topics.append(topic)
        room -= len(topic.partitions)
        if first + len(topic.partitions) < count:
            response.next_cursor = Cursor(topic_name=name, partition_index=first + len(topic.partitions))
            break
    return response


def refuse(
    context: Context, request: DescribeTopicPartitionsRequest, code: ErrorCode, message: str
) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(topics=each(request.topics, lambda topic: _refused(topic.name, code)))


async def _every_name(context: Context) -> set[str]:
    return {topic.record.name for topic in await visible_topics(context, AclOperation.DESCRIBE)}


def _describe(context: Context, name: str, first: int, room: int) -> tuple[DescribeTopicPartitionsResponseTopic, int]:
    """Return at most `room` of a topic's partitions from `first` on, and how many the topic has."""
    try:
        check_topic_name(name)
        topic = find_topic(context, AclOperation.DESCRIBE, name)
    except KafkaError as error:
        return _refused(name, error.code), 0
    answer = DescribeTopicPartitionsResponseTopic(
        name=name,
        topic_id=topic.record.topic_id,
        partitions=_partitions(topic, first, room, context.node.leaders),
    )
    return answer, len(topic.partitions)


def _partitions(
    topic: Topic, first: int, room: int, leaders: Leaders
) -> list[DescribeTopicPartitionsResponsePartition]:
    def describe(partition: PartitionServer) -> DescribeTopicPartitionsResponsePartition:
        leader, epoch = leaders.of_partition(topic, partition)
        return DescribeTopicPartitionsResponsePartition(
            partition_index=partition.index,
            leader_id=leader,
            leader_epoch=epoch,
            replica_nodes=leaders.replicas(topic, partition),
            isr_nodes=leaders.replicas(topic, partition),
            eligible_leader_replicas=[],
            last_known_elr=[],
        )

    return each(topic.partitions[first : first + room], describe)


def _refused(name: str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=code, name=name)


API = Api(
    request=DescribeTopicPartitionsRequest, response=DescribeTopicPartitionsResponse, serve=serve, refuse=refuse,
    answers_at_length=True,
)  # fmt: skip
