"""Native commits of a consumer (semantics A.14): in sessions, forwards only, within the partition's bounds.

Kafka's OffsetCommit stores what it is given; a commit here is refused when another session has replaced the caller's.
"""

from typing import Any

from pqbroker.broker.ground.access import AclKind, AclOperation, AclResource, check_access
from pqbroker.broker.services.coordination.consumer_groups import set_offsets
from pqbroker.broker.services.topics.finding import find_topic
from pqbroker.broker.services.topics.partitions import find_partition
from pqbroker.broker.web.resources.contents import read_text
from pqbroker.broker.web.routing.problems import bad_request
from pqbroker.broker.web.routing.routes import Call, Route
from pqbroker.broker.web.routing.schemas import COUNT, OFFSET, TEXT, Schema, object_of
from pqbroker.pq.log.consumers import ConsumerOffset, Session, committed_in, recreated
from pqbroker.pq.serving.offsets import TopicPartition
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.protocol.errors import ErrorCode, KafkaError

_INT64: Schema = {"type": "integer", "minimum": 0, "maximum": (1 << 63) - 1}
_CONSUMER_SESSION_NAME_BYTES_MAX = 249
_SESSION = object_of({"name": TEXT, "generation": _INT64, "step": _INT64})
_PLACE = {"topic": TEXT, "partition": COUNT}
_ANSWER = object_of({"offset": OFFSET, "changed": {"type": "boolean"}, "session": _SESSION})


async def commit(call: Call) -> Any:
    topic_partition, server = _topic_partition(call)
    body = call.body
    asked, metadata = body["session"], body.get("metadata", "")
    read_text(metadata, "metadata")
    if len(read_text(asked["name"], "session.name")) > _CONSUMER_SESSION_NAME_BYTES_MAX:
        raise bad_request(f"session.name is longer than {_CONSUMER_SESSION_NAME_BYTES_MAX} bytes; choose a shorter one")
    session = Session(asked["generation"], asked["step"], asked["name"])
    wanted = ConsumerOffset(
        body["offset"], metadata=metadata, commit_ms=call.node.clock(), creator=call.holder
    )  # fmt: skip
    await _settled(call, server)
    stored = server.consumers.get(call.path["name"])
    bounds = server.start_offset, server.end_offset
    decided = committed_in(session, stored, wanted, bounds, strict=body.get("strict", False))
    if decided is not None:
        await _store(call, topic_partition, decided)
    return _shown(decided or stored, is_changed=decided is not None)


async def recreate(call: Call) -> Any:
    topic_partition, server = _topic_partition(call)
    await _settled(call, server)
    made = recreated(server.consumers.get(call.path["name"]))._replace(commit_ms=call.node.clock(), creator=call.holder)
    await _store(call, topic_partition, made)
    return _shown(made, is_changed=True)


def _topic_partition(call: Call) -> tuple[TopicPartition, PartitionServer]:
    check_access(call, AclOperation.READ, AclResource(AclKind.GROUP, call.path["name"]))
    topic, index = call.body["topic"], call.body["partition"]
    return (topic, index), find_partition(find_topic(call, AclOperation.READ, topic), index)


async def _settled(call: Call, server: PartitionServer) -> None:
    """Return when no commit of the group is on its way, so that what is stored is what this one goes by."""
    groups, group_id = call.node.cell.current.topics, call.path["name"]
    while groups.offsets.is_committing(group_id):
        await groups.offsets.settled(group_id)
    if server.is_lost:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the partition's tablet moved; retry")


async def _store(call: Call, topic_partition: TopicPartition, state: ConsumerOffset) -> None:
    outcomes = await set_offsets(call.node, call.path["name"], {topic_partition: state})
    if (refusal := outcomes[topic_partition]) is not None:
        raise refusal


def _shown(state: ConsumerOffset | None, *, is_changed: bool) -> dict[str, Any]:
    assert state is not None  # what changes nothing lies at or before what is stored
    return {"offset": state.offset, "changed": is_changed, "session": state.session._asdict()}


ROUTES = (
    Route(
        "POST", "/v1/groups/{name}/commits",
        "Commit natively for a group without members: in a session, forwards only; `strict` refuses what lies outside "
        "the partition", commit, _ANSWER,
        body=object_of(
            {**_PLACE, "offset": _INT64, "session": _SESSION}, {"strict": {"type": "boolean"}, "metadata": TEXT}
        ),
    ),
    Route(
        "POST", "/v1/groups/{name}/recreate",
        "Let a group read a partition from offset 0 again; earlier sessions are over", recreate, _ANSWER,
        body=object_of(_PLACE),
    ),
)  # fmt: skip
