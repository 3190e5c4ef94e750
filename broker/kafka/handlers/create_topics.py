"""CreateTopics (key 19), versions 2 to 7.

Behaviour: each topic stands for itself; its answer comes when the scheme's commit is durable and its tablets serve.
Counts and replication factors of -1 are the broker's defaults; validate_only checks the same and creates nothing.
From version 5 the answer lists every config with its source, if the caller may see them, from version 7 the topic's
id. A name given twice is INVALID_REQUEST. As in Kafka the name is judged before everything else that is asked, so that
a topic that exists is always TOPIC_ALREADY_EXISTS, which clients that only want it to be there wait for.
Left out: replicas. The factor is 1 or -1; an assignment may name this broker only.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial

from pqbroker.broker.ground.access import AclKind, AclOperation, AclResource, is_allowed
from pqbroker.broker.ground.refusals import REFUSED, translate
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.kafka.apis.entries import each
from pqbroker.broker.kafka.apis.metering import count_mutations, mutation_pause_ms
from pqbroker.broker.services.configs.operations import check_count
from pqbroker.broker.services.configs.texts import topic_texts
from pqbroker.broker.services.topics.finding import check_creation
from pqbroker.broker.services.topics.partitions import NO_TOPIC_ID
from pqbroker.broker.services.topics.topics import USE_DEFAULT, check_new_name, check_new_topic, create_topic
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

REPLICATION_FACTOR = 1
CREATION_THROTTLED_FROM_VERSION = 6


async def serve(context: Context, request: CreateTopicsRequest) -> CreateTopicsResponse:
    counts = Counter(topic.name for topic in request.topics)
    topics = {topic.name: topic for topic in request.topics}
    results: list[Callable[[], CreatableTopicResult]] = []
    for name, count in counts.items():
        await context.breathe()
        try:
            if count > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"topic {name} is named {count} times")
            results.append(await _create(context, topics[name], validate_only=request.validate_only))
        except REFUSED as error:
            code, message = translate(error)
            results.append(partial(_refused, name, code, message))
    pause_ms = mutation_pause_ms(context)
    return CreateTopicsResponse(throttle_time_ms=pause_ms, topics=each(results, lambda result: result()))


def refuse(context: Context, request: CreateTopicsRequest, code: ErrorCode, message: str) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=each(request.topics, lambda topic: _refused(topic.name, code, message)))


async def _create(
    context: Context, topic: CreatableTopic, *, validate_only: bool
) -> Callable[[], CreatableTopicResult]:
    """Create a topic; what is returned makes its answer, with all its configs, when that is sent."""
    check_creation(context, topic.name)
    check_new_name(context.node, topic.name)
    config = _config(topic)
    partitions = _partitions(context, topic)
    partitions = check_new_topic(context.node, topic.name, partitions, config)
    topic_id = NO_TOPIC_ID
    is_strict = context.version >= CREATION_THROTTLED_FROM_VERSION
    count_mutations(context, 0 if validate_only else partitions, is_strict=is_strict)
    if not validate_only:
        topic_id = (await create_topic(context.node, topic.name, partitions, config)).record.topic_id
    return partial(_result, context, topic.name, topic_id, partitions, config)


def _result(
    context: Context, name: str, topic_id: bytes, partitions: int, config: Mapping[str, str]
) -> CreatableTopicResult:
    if not is_allowed(context, AclOperation.DESCRIBE_CONFIGS, AclResource(AclKind.TOPIC, name)):
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return CreatableTopicResult(
            name=name, topic_id=topic_id, error_message=None, topic_config_error_code=code, configs=[]
        )
    return CreatableTopicResult(
        name=name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=partitions,
        replication_factor=REPLICATION_FACTOR,
        configs=_describe(context, config),
    )


def _config(topic: CreatableTopic) -> dict[str, str]:
    config: dict[str, str] = {}
    check_count(len(topic.configs))
    for entry in topic.configs:
        if entry.value is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{entry.name} has no value; leave it out for its default")
        config[entry.name] = entry.value
    return config


def _partitions(context: Context, topic: CreatableTopic) -> int:
    """The partition count asked for, by number or by assignment; USE_DEFAULT when neither says."""
    if not topic.assignments:
        if topic.replication_factor not in (USE_DEFAULT, REPLICATION_FACTOR):
            raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "there is one broker: the replication factor is 1")
        return topic.num_partitions
    if topic.num_partitions != USE_DEFAULT or topic.replication_factor != USE_DEFAULT:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "give an assignment, or a count and a replication factor, not both")
    indexes = sorted(assignment.partition_index for assignment in topic.assignments)
    leaders = context.node.leaders
    if indexes != list(range(len(indexes))) or not all(leaders.can_have(item.broker_ids) for item in topic.assignments):
        text = f"assign partitions 0, 1, ... one replica each, on broker {leaders.own}"
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
    return len(indexes)


def _describe(context: Context, config: Mapping[str, str]) -> list[CreatableTopicConfigs]:
    """Never null: Java's admin client fails on that (spec clients 1.4.5)."""
    return [
        CreatableTopicConfigs(name=text.declaration.name, value=text.value, config_source=text.source)
        for text in topic_texts(config, context.node.cell.current.settings.layers)
    ]


def _refused(name: str, code: ErrorCode, message: str) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=code, error_message=message, configs=[])


API = Api(
    request=CreateTopicsRequest, response=CreateTopicsResponse, serve=serve, refuse=refuse, answers_at_length=True
)
