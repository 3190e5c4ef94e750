"""Topics that a caller names, looked up where access to them is checked."""

from collections.abc import Iterable
from functools import lru_cache

from pqbroker.broker.ground.access import AclKind, AclOperation, AclResource, audit_change, check_access, is_allowed
from pqbroker.broker.services.topics.callers import Caller
from pqbroker.broker.services.topics.partitions import unknown_topic, unknown_topic_id
from pqbroker.pq.serving.topic import Topic


@lru_cache(maxsize=4096)
def topic_resource(name: str) -> AclResource:
    """Return a topic as access rules name it; kept, since each request of a lane is checked."""
    return AclResource(AclKind.TOPIC, name)


def check_creation(caller: Caller, topic: str) -> None:
    """Topics are created by whom the cluster, or a rule for the topic's name, allows it: TOPIC_AUTHORIZATION_FAILED."""
    resource = AclResource(AclKind.TOPIC, topic)
    if is_allowed(caller, AclOperation.CREATE):
        audit_change(caller, AclOperation.CREATE.name, str(resource), "")
    else:
        check_access(caller, AclOperation.CREATE, resource)


def find_topic(
    caller: Caller,
    operation: AclOperation | None,
    name: str | None,
    topic_id: bytes | None = None,
    *,
    or_static: bool = False,
) -> Topic:
    """The topic of an id, where one is given, or of a name. `operation` None: the cluster was asked already.
    `or_static`: a static table has the name too.

    KafkaError UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED; the last of a name that no
    topic has too, so that the answer does not give away which names there are.
    """
    node, topics = caller.node, caller.node.cell.current.topics
    topic = topics.get(name or "", or_static=or_static) if topic_id is None else topics.by_id(topic_id)
    if node.access is not None and operation is not None and (topic is not None or topic_id is None):
        found = name or "" if topic is None else topic.record.name
        check_access(caller, operation, topic_resource(found))
    if topic is None:
        raise unknown_topic(name) if topic_id is None else unknown_topic_id()
    return topic


async def visible_topics(caller: Caller, operation: AclOperation, *, or_static: bool = False) -> list[Topic]:
    """Return every topic that the caller may use so, found in slices of the loop: rules are asked for each."""
    if caller.node.access is None:
        return every_topic(caller, None, or_static=or_static)
    found: list[Topic] = []
    for name in list(caller.node.cell.current.topics.names(or_static=or_static)):
        await caller.node.turns.breathe()
        found += every_topic(caller, operation, (name,), or_static=or_static)
    return found


def every_topic(
    caller: Caller, operation: AclOperation | None, names: Iterable[str] | None = None, *, or_static: bool = False
) -> list[Topic]:
    """Every topic that the caller may use so; those of some names alone, where they are given.

    `operation` None: the cluster was asked already. `or_static`: static tables too.
    """
    topics = caller.node.cell.current.topics
    return [
        topic
        for name in (topics.names(or_static=or_static) if names is None else names)
        if (topic := topics.get(name, or_static=or_static)) is not None
        and (operation is None or is_allowed(caller, operation, AclResource(AclKind.TOPIC, name)))
    ]
