"""DescribeTopicPartitions (key 75), versions 0 to 0.

Behaviour: topics in the order of their names, all of them when none is named, from the cursor on and up to a limit of
partitions (at least one, at most max.request.partition.size.limit), then with the cursor to go on from. What is gone
since at the cursor is passed over; a cursor at a topic that is not among those named is INVALID_REQUEST for each. Lists
are empty, never null: Java cannot read the latter. As in Kafka without access control every operation is authorized, on
a topic that is not there too.
What is named twice is answered once, as in Kafka.
Left out: eligible leader replicas (there is one replica).
"""

from pqbroker.broker.apis import Api
from pqbroker.broker.authorized_operations import ON_TOPIC
from pqbroker.broker.context import Context
from pqbroker.broker.entries import each
from pqbroker.broker.partitions import NO_TOPIC_ID, find_group
from pqbroker.broker.topic_names import check_topic_name
from pqbroker.pq.group import Group
from pqbroker.pq.partition_server import PartitionServer
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)


async def serve(context: Context, request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    names = sorted({topic.name for topic in request.topics} or context.node.groups.names())
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
        topic.topic_authorized_operations = ON_TOPIC
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


def _describe(context: Context, name: str, first: int, room: int) -> tuple[DescribeTopicPartitionsResponseTopic, int]:
    """At most `room` of a topic's partitions from `first` on, and how many the topic has."""
    try:
        check_topic_name(name)
        group = find_group(context.node.groups, name, NO_TOPIC_ID, by_id=False)
    except KafkaError as error:
        context.node.metrics.count_error(error.code)
        return _refused(name, error.code), 0
    answer = DescribeTopicPartitionsResponseTopic(
        name=name,
        topic_id=group.topic.topic_id,
        partitions=_partitions(group, first, room, context.node.settings.node_id),
    )
    return answer, len(group.partitions)


def _partitions(group: Group, first: int, room: int, node_id: int) -> list[DescribeTopicPartitionsResponsePartition]:
    def describe(partition: PartitionServer) -> DescribeTopicPartitionsResponsePartition:
        return DescribeTopicPartitionsResponsePartition(
            partition_index=partition.index,
            leader_id=node_id,
            leader_epoch=partition.leader_epoch,
            replica_nodes=[node_id],
            isr_nodes=[node_id],
            eligible_leader_replicas=[],
            last_known_elr=[],
        )

    return each(group.partitions[first : first + room], describe)


def _refused(name: str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=code, name=name)


API = Api(
    key=75, name="DescribeTopicPartitions", version_min=0, version_max=0,
    request=DescribeTopicPartitionsRequest, response=DescribeTopicPartitionsResponse, serve=serve, refuse=refuse,
    answers_at_length=True,
)  # fmt: skip
