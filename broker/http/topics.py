"""Topics: list, create, describe, grow, delete. What is allowed is decided where the Kafka APIs have it decided."""

from base64 import urlsafe_b64encode
from bisect import bisect_right
from typing import Any

from pqbroker.broker.http.configs import CHANGES, config_texts
from pqbroker.broker.http.routes import AFTER_NAME, LIMIT, Call, Parameter, Route
from pqbroker.broker.http.schemas import COUNT, OFFSET, TEXT, array_of, nullable, object_of
from pqbroker.broker.topics import (
    USE_DEFAULT,
    check_new_topic,
    check_partition_count,
    create_topic,
    delete_topic,
    grow_topic,
)
from pqbroker.pq.group import Group

_FACTS = {"name": TEXT, "id": TEXT, "partition_count": COUNT, "size_bytes": COUNT}
_PARTITION = object_of(
    {
        "partition": COUNT, "start_offset": OFFSET, "end_offset": OFFSET, "leader_epoch": COUNT, "size_bytes": COUNT,
        "tablet": COUNT, "writes_refused_by": nullable(TEXT),
    }
)  # fmt: skip
_TOPIC = object_of({**_FACTS, "partitions": array_of(_PARTITION), "next": nullable(COUNT)})


async def list_topics(call: Call) -> Any:
    groups = call.node.groups
    names = sorted(groups.names())
    page, has_more = call.page(names[bisect_right(names, call.query.get("after", "")) :])
    listed = [group for name in page if (group := groups.get(name)) is not None]
    return {"topics": [_facts(group) for group in listed], "next": page[-1] if has_more else None}


async def create(call: Call) -> Any:
    config = config_texts(call.body.get("config", {}))
    name: str = call.body["name"]
    count = check_new_topic(call.node, name, call.body.get("partitions", USE_DEFAULT), config)
    return _describe(call, await create_topic(call.node, name, count, config))


async def describe(call: Call) -> Any:
    return _describe(call, call.group())


async def grow(call: Call) -> Any:
    group = call.group()
    check_partition_count(call.node, call.body["count"], present=len(group.partitions))
    await grow_topic(call.node, group.topic.name, call.body["count"])
    return _describe(call, call.group())


async def delete(call: Call) -> Any:
    await delete_topic(call.node, call.group().topic.name)


def _facts(group: Group) -> dict[str, Any]:
    return {
        "name": group.topic.name,
        "id": urlsafe_b64encode(group.topic.topic_id).rstrip(b"=").decode(),
        "partition_count": len(group.partitions),
        "size_bytes": sum(partition.size_bytes for partition in group.partitions),
    }


def _describe(call: Call, group: Group) -> dict[str, Any]:
    page, has_more = call.page(group.partitions[call.query.get("after", -1) + 1 :])
    partitions = [
        {
            "partition": partition.index,
            "start_offset": partition.start_offset,
            "end_offset": partition.end_offset,
            "leader_epoch": partition.leader_epoch,
            "size_bytes": partition.size_bytes,
            "tablet": group.topic.tablet_of(partition.index),
            "writes_refused_by": (partition.why_no_writes() or (None,))[0],
        }
        for partition in page
    ]
    return {**_facts(group), "partitions": partitions, "next": page[-1].index if has_more else None}


_AFTER_PARTITION = Parameter("after", COUNT, "List the partitions behind this one: `next` of the answer before.")
_COUNT = {"type": "integer", "minimum": 1}

ROUTES = (
    Route(
        "GET", "/v1/topics", "List topics by name", list_topics,
        object_of({"topics": array_of(object_of(_FACTS)), "next": nullable(TEXT)}), (AFTER_NAME, LIMIT),
    ),
    Route(
        "POST", "/v1/topics", "Create a topic", create, _TOPIC,
        body=object_of({"name": TEXT}, {"partitions": _COUNT, "config": CHANGES}), status=201,
    ),
    Route(
        "GET", "/v1/topics/{name}", "Describe a topic and its partitions", describe, _TOPIC, (_AFTER_PARTITION, LIMIT),
    ),
    Route("DELETE", "/v1/topics/{name}", "Delete a topic", delete, None, status=204),
    Route(
        "POST", "/v1/topics/{name}/partitions", "Grow a topic to a number of partitions", grow, _TOPIC,
        body=object_of({"count": _COUNT}),
    ),
)  # fmt: skip
