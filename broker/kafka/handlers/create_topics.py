"""CreateTopics (key 19), versions 2 to 7.

Behaviour: each topic stands for itself; its answer comes when the scheme's commit is durable and its tablets serve. All
topics of a request are one commit, hundreds of them a few.
Counts and replication factors of -1 are the broker's defaults; validate_only checks the same and creates nothing.
From version 5 the answer lists every config with its source, if the caller may see them, from version 7 the topic's
id. A name given twice is INVALID_REQUEST. As in Kafka the name is judged before everything else that is asked, so that
a topic that exists is always TOPIC_ALREADY_EXISTS, which clients that only want it to be there wait for.
Left out: replicas. The factor is 1 or -1; an assignment may name this broker only.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
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
from pqbroker.broker.services.topics.topics import (
    USE_DEFAULT,
    check_new_name,
    check_new_topic,
    collision,
    create_topics,
)
from pqbroker.pq.serving.topic import unified
from pqbroker.pq.serving.topics import NewTopic
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
    wanted: dict[str, NewTopic] = {}
    results: dict[str, Callable[[], CreatableTopicResult]] = {}
    unified_names: dict[str, str] = {}
    for name, count in counts.items():
        await context.breathe()
        try:
            if count > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"topic {name} is named {count} times")
            topic = _checked(context, topics[name], is_validated=request.validate_only)
            if (other := unified_names.setdefault(unified(name), name)) != name:
                raise collision(name, other)
            wanted[name] = topic
        except REFUSED as error:
            results[name] = partial(_refused, name, *translate(error))
    made = await _made(context, list(wanted.values()), is_validated=request.validate_only)
    for topic, found in zip(wanted.values(), made, strict=True):
        if isinstance(found, Exception):
            results[topic.name] = partial(_refused, topic.name, *translate(found))
        else:
            results[topic.name] = partial(_result, context, topic, found)
    answers = [results[name] for name in counts]
    pause_ms = mutation_pause_ms(context)
    return CreateTopicsResponse(throttle_time_ms=pause_ms, topics=each(answers, lambda result: result()))


def refuse(context: Context, request: CreateTopicsRequest, code: ErrorCode, message: str) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=each(request.topics, lambda topic: _refused(topic.name, code, message)))


def _checked(context: Context, topic: CreatableTopic, *, is_validated: bool) -> NewTopic:
    """Return the topic that is to be created. An exception of `REFUSED`."""
    check_creation(context, topic.name)
    check_new_name(context.node, topic.name)
    config = _config(topic)
    partitions = check_new_topic(context.node, topic.name, _partitions(context, topic), config)
    is_strict = context.version >= CREATION_THROTTLED_FROM_VERSION
    count_mutations(context, 0 if is_validated else partitions, is_strict=is_strict)
    return NewTopic(topic.name, partitions, config)


async def _made(
    context: Context, wanted: Sequence[NewTopic], *, is_validated: bool
) -> Sequence[bytes | Exception]:
    """Create topics; return their ids, or what refuses them."""
    if is_validated:
        return [NO_TOPIC_ID] * len(wanted)
    made = await create_topics(context.node, wanted)
    return [found if isinstance(found, Exception) else found.record.topic_id for found in made]


def _result(context: Context, topic: NewTopic, topic_id: bytes) -> CreatableTopicResult:
    """Return the answer for a topic, with all its configs; it is made when it is sent."""
    if not is_allowed(context, AclOperation.DESCRIBE_CONFIGS, AclResource(AclKind.TOPIC, topic.name)):
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return CreatableTopicResult(
            name=topic.name, topic_id=topic_id, error_message=None, topic_config_error_code=code, configs=[]
        )
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=topic.partitions,
        replication_factor=REPLICATION_FACTOR,
        configs=_describe(context, topic.config),
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
