"""CreatePartitions (key 37), versions 0 to 3.

Behaviour: topics only grow; existing partitions keep their offsets, new ones start at 0. A count that is not above
the present one is INVALID_PARTITIONS. One answer per topic, always (librdkafka relies on it); a name given twice is
INVALID_REQUEST; validate_only checks the same and changes nothing.
Left out: replicas. An assignment may name this broker only.
"""

from collections import Counter

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.ground.refusals import REFUSED, translate
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.kafka.apis.entries import each
from pqbroker.broker.kafka.apis.metering import count_mutations, mutation_pause_ms
from pqbroker.broker.services.topics.finding import find_topic
from pqbroker.broker.services.topics.topics import check_partition_count
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

GROWTH_THROTTLED_FROM_VERSION = 3


async def serve(context: Context, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    counts = Counter(topic.name for topic in request.topics)
    response = CreatePartitionsResponse()
    topics = {topic.name: topic for topic in request.topics}
    for name, count in counts.items():
        await context.breathe()
        topic = topics[name]
        result = CreatePartitionsTopicResult(name=name)
        response.results.append(result)
        try:
            if count > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"topic {name} is named {count} times")
            _check(context, topic)
            added = 0 if request.validate_only else topic.count - len(find_topic(context, None, name).partitions)
            count_mutations(context, added, is_strict=context.version >= GROWTH_THROTTLED_FROM_VERSION)
            if not request.validate_only:
                await context.node.cell.current.topics.grow(name, topic.count)
        except REFUSED as error:
            result.error_code, result.error_message = translate(error)
    response.throttle_time_ms = mutation_pause_ms(context)
    return response


def refuse(
    context: Context, request: CreatePartitionsRequest, code: ErrorCode, message: str
) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        results=each(
            request.topics,
            lambda topic: CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=message),
        )
    )


def _check(context: Context, topic: CreatePartitionsTopic) -> None:
    present = len(find_topic(context, AclOperation.ALTER, topic.name).partitions)
    if topic.count <= present:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS, f"topic {topic.name} has {present} partitions and can only grow"
        )
    check_partition_count(context.node, topic.count, present=present)
    if topic.assignments is None:
        return
    leaders = context.node.leaders
    is_whole = len(topic.assignments) == topic.count - present
    if not is_whole or not all(leaders.can_have(item.broker_ids) for item in topic.assignments):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"assign each new partition one replica, on broker {leaders.own}"
        )


API = Api(request=CreatePartitionsRequest, response=CreatePartitionsResponse, serve=serve, refuse=refuse)
