"""Consumer groups: list, describe with members, offsets and lag, set offsets, delete."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pqbroker.broker.ground.access import AclKind, AclOperation, AclResource, check_access
from pqbroker.broker.services.coordination.classic.states import GroupState
from pqbroker.broker.services.coordination.consumer_groups import (
    delete_group,
    describe_group,
    set_offsets,
    visible_groups,
)
from pqbroker.broker.services.coordination.coordinators import ListedGroup
from pqbroker.broker.services.topics.finding import find_topic
from pqbroker.broker.services.topics.partitions import find_partition
from pqbroker.broker.web.resources.contents import TIMESTAMP
from pqbroker.broker.web.resources.group_members import MEMBER, MEMBER_EXAMPLE, members, modern_group
from pqbroker.broker.web.routing.problems import bad_request
from pqbroker.broker.web.routing.routes import AFTER_NAME, LIMIT, Call, Parameter, Route
from pqbroker.broker.web.routing.schemas import (
    COUNT,
    OFFSET,
    TEXT,
    SchemaError,
    array_of,
    nullable,
    object_of,
    parse_text,
)
from pqbroker.broker.web.routing.sorted_pages import ORDER, sort_field, sorted_page
from pqbroker.pq.log.consumers import ConsumerOffset
from pqbroker.pq.serving.offsets import TopicPartition
from pqbroker.protocol.errors import ErrorCode, KafkaError

_FACTS = {
    "name": TEXT, "type": TEXT, "state": TEXT, "protocol_type": TEXT, "member_count": COUNT, "topics": array_of(TEXT),
    "lag": nullable(COUNT),
}  # fmt: skip
_PARTITION = object_of(
    {
        "topic": TEXT, "partition": COUNT, "offset": OFFSET, "metadata": TEXT, "commit_timestamp": TIMESTAMP,
        "end_offset": OFFSET, "lag": COUNT,
    }
)  # fmt: skip
_GROUP = object_of(
    {
        "cell": TEXT, **_FACTS, "generation": COUNT, "target_epoch": nullable(COUNT), "protocol": nullable(TEXT),
        "leader": nullable(TEXT), "members": array_of(MEMBER), "members_next": nullable(TEXT),
        "partitions": array_of(_PARTITION), "next": nullable(TEXT),
    }
)  # fmt: skip
_INT64_MAX = (1 << 63) - 1
_SORTS: Final[Mapping[str, str]] = {
    "name": "name", "state": "state", "type": "type", "members": "member_count", "lag": "lag",
}  # fmt: skip
"""Facts by which a list may be sorted, by their names in the query."""


async def list_all(call: Call) -> Any:
    part, field = call.query.get("contains", "").lower(), sort_field(call, _SORTS)
    groups = await call.node.turns.finish(visible_groups(call))
    groups = [group for group in groups if part in group.group_id.lower()] if part else groups
    total = len(groups)
    if field is None:
        behind = bisect_right(groups, call.query.get("after", ""), key=lambda group: group.group_id)
        page, has_more = call.page(groups[behind:])
        following = page[-1].group_id if has_more else None
        return {"cell": call.cell.name, "groups": await _listed(call, page), "total": total, "next": following}
    listed, following = sorted_page(call, await _listed(call, groups), field)
    return {"cell": call.cell.name, "groups": listed, "total": total, "next": following}


async def _listed(call: Call, groups: Sequence[ListedGroup]) -> list[dict[str, Any]]:
    listed = list[dict[str, Any]]()
    for group in groups:
        await call.node.turns.breathe()
        listed.append(_facts(call, group, await _lag(call, group.group_id)))
    return listed


async def describe(call: Call) -> Any:
    check_access(call, AclOperation.DESCRIBE, _group(call))
    found = describe_group(call.node, call.path["name"])
    if found is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {call.path['name']}")
    image = found.image
    lag = await _lag(call, image.group_id)
    listed = ListedGroup(image.group_id, image.protocol_type or "", found.state, len(image.members), found.type)
    modern = modern_group(call, image.group_id)
    return {
        "cell": call.cell.name,
        **_facts(call, listed, lag),
        "generation": image.generation,
        "target_epoch": None if modern is None else modern.assignment_epoch,
        "protocol": image.protocol if modern is not None or found.state is GroupState.STABLE else None,
        "leader": image.leader,
        **(await members(call, found)),
        **_partitions(call, image.group_id, lag),
    }


async def change_offsets(call: Call) -> Any:
    check_access(call, AclOperation.READ, _group(call))
    now_ms = call.node.clock()
    offsets: dict[TopicPartition, ConsumerOffset | None] = {}
    for asked in call.body["offsets"]:
        topic_partition = (asked["topic"], asked["partition"])
        if topic_partition in offsets:
            raise bad_request(f"partition {topic_partition[1]} of {topic_partition[0]} is named twice")
        find_partition(find_topic(call, AclOperation.READ, topic_partition[0]), topic_partition[1])
        offsets[topic_partition] = ConsumerOffset(asked["offset"], commit_ms=now_ms, creator=call.holder)
    most = call.node.settings.http_items_max
    if not 1 <= len(offsets) <= most:
        raise bad_request(f"{len(offsets)} offsets; give 1 to {most} (pqbroker.http.items.max)")
    outcomes = await set_offsets(call.node, call.path["name"], offsets)
    for (topic, partition), refusal in outcomes.items():
        if refusal is not None:
            raise KafkaError(refusal.code, f"partition {partition} of {topic}: {refusal.message}")
    return await describe(call)


async def delete(call: Call) -> Any:
    check_access(call, AclOperation.DELETE, _group(call))
    await delete_group(call.node, call.path["name"])


async def _lag(call: Call, group_id: str) -> dict[TopicPartition, int]:
    """Return the lag in each partition, with turns for others between them: there may be thousands."""
    lag: dict[TopicPartition, int] = {}
    for partition, behind in call.node.cell.current.topics.offsets.each_lag(group_id):
        await call.node.turns.breathe()
        lag[partition] = behind
    return lag


def _group(call: Call) -> AclResource:
    return AclResource(AclKind.GROUP, call.path["name"])


def _facts(call: Call, group: ListedGroup, lag: Mapping[TopicPartition, int]) -> dict[str, Any]:
    subscribed = call.node.cell.current.coordinators.subscribed_topics(group.group_id)
    topics = {topic for topic, _ in lag} | (subscribed or frozenset())
    return {
        "name": group.group_id,
        "type": group.type,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "member_count": group.members,
        "topics": sorted(topics),
        "lag": sum(lag.values()) if lag else None,
    }


def _partitions(call: Call, group_id: str, lag: Mapping[TopicPartition, int]) -> dict[str, Any]:
    offsets = call.node.cell.current.topics.offsets
    topic_partitions = list(lag)
    page, has_more = call.page(topic_partitions[bisect_right(topic_partitions, _after_topic_partition(call)) :])
    found = [(topic, index, state) for topic, index in page if (state := offsets.at(group_id, (topic, index)))]
    return {
        "partitions": [
            {
                "topic": topic,
                "partition": index,
                "offset": state.offset,
                "metadata": state.metadata,
                "commit_timestamp": state.commit_ms,
                "end_offset": _end_offset(call, topic, index),
                "lag": lag[topic, index],
            }
            for topic, index, state in found
        ],
        "next": "{}-{}".format(*page[-1]) if has_more else None,
    }


def _end_offset(call: Call, topic: str, index: int) -> int:
    partition = find_partition(find_topic(call, AclOperation.DESCRIBE, topic), index)
    return call.node.cell.current.topics.offsets.end_of(partition)


def _after_topic_partition(call: Call) -> TopicPartition:
    text: str = call.query.get("after", "-0")
    topic, _, index = text.rpartition("-")
    try:
        return topic, parse_text(index, COUNT, "after")
    except SchemaError:
        raise bad_request(f"after is {text!r}; give `next` of the answer before, TOPIC-PARTITION") from None


_AFTER_PARTITION = Parameter("after", TEXT, "List the partitions behind this one: `next` of the answer before.")
_AFTER_MEMBER = Parameter(
    "members_after", TEXT, "List the members behind this one: `members_next` of the answer before."
)
_OFFSET = object_of({"topic": TEXT, "partition": COUNT, "offset": {**OFFSET, "maximum": _INT64_MAX}})
_FACTS_EXAMPLE = {
    "name": "billing", "type": "consumer", "state": "Reconciling", "protocol_type": "consumer", "member_count": 1,
    "topics": ["orders"], "lag": 2,
}  # fmt: skip
_GROUP_EXAMPLE = {
    "cell": "0",
    **_FACTS_EXAMPLE,
    "generation": 4, "target_epoch": 4, "protocol": "uniform", "leader": None, "members": [MEMBER_EXAMPLE],
    "members_next": None,
    "partitions": [
        {
            "topic": "orders", "partition": 0, "offset": 40, "metadata": "", "commit_timestamp": 1767225600000,
            "end_offset": 42, "lag": 2,
        }
    ],
    "next": None,
}  # fmt: skip

ROUTES = (
    Route(
        "GET", "/v1/groups", "List consumer groups by name, or sorted by a figure; `lag` is in records", list_all,
        object_of({"cell": TEXT, "groups": array_of(object_of(_FACTS)), "total": COUNT, "next": nullable(TEXT)}),
        (
            AFTER_NAME, LIMIT,
            Parameter("contains", TEXT, "List those whose names contain this, whatever the case."),
            Parameter("sort", {"type": "string", "enum": list(_SORTS)}, "Sort by this."), ORDER,
        ),
        example={"cell": "0", "groups": [_FACTS_EXAMPLE], "total": 1, "next": None},
    ),
    Route(
        "GET", "/v1/groups/{name}", "Describe a consumer group: its members, and offset and lag in each partition",
        describe, _GROUP, (_AFTER_PARTITION, _AFTER_MEMBER, LIMIT), example=_GROUP_EXAMPLE,
    ),
    Route(
        "POST", "/v1/groups/{name}/offsets", "Set offsets of a consumer group without members, in one commit",
        change_offsets, _GROUP, body=object_of({"offsets": array_of(_OFFSET)}),
        body_example={"offsets": [{"topic": "orders", "partition": 0, "offset": 40}]}, example=_GROUP_EXAMPLE,
    ),
    Route(
        "DELETE", "/v1/groups/{name}", "Delete a consumer group without members, and its offsets", delete, None,
        status=204,
    ),
)  # fmt: skip
