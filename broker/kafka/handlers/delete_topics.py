"""DeleteTopics (key 20), versions 1 to 6.

Behaviour: by name, or by id from version 6. The name is free, and the partitions are gone for clients, when the
scheme's one commit is durable; what they held is reclaimed afterwards. A topic created again under the name has another
id. All topics of a request are one commit, hundreds of them a few; one that a transaction needs is waited for behind
them. One asked for twice is not deleted: INVALID_REQUEST, once, or twice where it is asked for by name and by id. With
delete.topic.enable=false everything is refused with TOPIC_DELETION_DISABLED, or with INVALID_REQUEST before version 3,
which brought that code.
Left out: timeout_ms; the answer comes when the deletion is durable.
"""

from collections import Counter
from collections.abc import Sequence

from pqbroker.broker.ground.access import AclKind, AclOperation, AclResource, check_access, is_allowed
from pqbroker.broker.ground.refusals import REFUSED, translate
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.kafka.apis.entries import each
from pqbroker.broker.kafka.apis.metering import count_mutations, mutation_pause_ms
from pqbroker.broker.services.topics.finding import find_topic
from pqbroker.broker.services.topics.partitions import NO_TOPIC_ID
from pqbroker.broker.services.topics.topics import delete_topics
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

DISABLED_FROM_VERSION = 3
STATES_FROM_VERSION = 6
DELETION_THROTTLED_FROM_VERSION = 5


async def serve(context: Context, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    if not context.node.settings.delete_topic_enable:
        is_known = context.version >= DISABLED_FROM_VERSION
        code = ErrorCode.TOPIC_DELETION_DISABLED if is_known else ErrorCode.INVALID_REQUEST
        raise KafkaError(code, "delete.topic.enable is false: no topic is deleted")
    if context.version >= STATES_FROM_VERSION:
        times = Counter([(asked.name, asked.topic_id) for asked in request.topics])
    else:
        times = Counter([(name, NO_TOPIC_ID) for name in request.topic_names])
    results: list[DeletableTopicResult] = []
    for (name, topic_id), count in times.items():
        await context.breathe()
        results.append(_checked(context, DeleteTopicState(name=name, topic_id=topic_id), count))
    await _delete(context, [result for result in results if result.error_code is ErrorCode.NONE])
    return DeleteTopicsResponse(throttle_time_ms=mutation_pause_ms(context), responses=results)


def refuse(context: Context, request: DeleteTopicsRequest, code: ErrorCode, message: str) -> DeleteTopicsResponse:
    if context.version >= STATES_FROM_VERSION:
        refused = each(request.topics, lambda topic: _refused(topic, code, message))
    else:
        refused = each(request.topic_names, lambda name: _refused(DeleteTopicState(name=name), code, message))
    return DeleteTopicsResponse(responses=refused)


def _checked(context: Context, asked: DeleteTopicState, count: int) -> DeletableTopicResult:
    """Return the topic that is asked for `count` times, to be deleted; or why it is not."""
    by_id = asked.topic_id != NO_TOPIC_ID
    try:
        if by_id is (asked.name is not None):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "give a topic's name or its id, one of the two")
        if count > 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"the topic is asked for {count} times; name it once")
        may_all = is_allowed(context, AclOperation.DELETE)
        seen = None if may_all else AclOperation.DESCRIBE
        topic = find_topic(context, seen, asked.name, asked.topic_id if by_id else None).record
        asked = DeleteTopicState(name=topic.name, topic_id=asked.topic_id)
        if not may_all:
            check_access(context, AclOperation.DELETE, AclResource(AclKind.TOPIC, topic.name))
        is_strict = context.version >= DELETION_THROTTLED_FROM_VERSION
        count_mutations(context, topic.partitions, is_strict=is_strict)
    except REFUSED as error:
        code, message = translate(error)
        return _refused(asked, code, message)
    return DeletableTopicResult(name=topic.name, topic_id=topic.topic_id)


async def _delete(context: Context, results: Sequence[DeletableTopicResult]) -> None:
    """Delete these topics, all of them together, and write into each result why its topic was not."""
    by_name: dict[str, list[DeletableTopicResult]] = {}
    for result in results:
        by_name.setdefault(result.name or "", []).append(result)
    deleted = [name for name, same in by_name.items() if len(same) == 1]
    refused: dict[str, Exception] = {**await delete_topics(context.node, deleted)}
    twice = KafkaError(ErrorCode.INVALID_REQUEST, "the topic is asked for by its name and by its id; name it once")
    refused |= {name: twice for name, same in by_name.items() if len(same) > 1}
    for name, error in refused.items():
        for result in by_name[name]:
            result.error_code, result.error_message = translate(error)


def _refused(asked: DeleteTopicState, code: ErrorCode, message: str) -> DeletableTopicResult:
    return DeletableTopicResult(name=asked.name, topic_id=asked.topic_id, error_code=code, error_message=message)


API = Api(request=DeleteTopicsRequest, response=DeleteTopicsResponse, serve=serve, refuse=refuse)
