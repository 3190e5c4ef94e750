"""Topics: list, create, describe, grow, delete. What is allowed is decided where the Kafka APIs have it decided."""

from base64 import urlsafe_b64encode
from bisect import bisect_right
from collections.abc import Generator, Mapping, Sequence
from typing import Any, Final

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.services.topics.finding import check_creation, visible_topics
from pqbroker.broker.services.topics.topics import (
    USE_DEFAULT,
    check_new_topic,
    check_partition_count,
    create_topic,
    delete_topic,
)
from pqbroker.broker.web.resources.configs import CHANGES, config_texts
from pqbroker.broker.web.resources.topic_parts import add_other_parts, partitions_here, with_other_parts
from pqbroker.broker.web.routing.every_node import nowhere_else
from pqbroker.broker.web.routing.routes import AFTER_NAME, LIMIT, Call, Parameter, Route
from pqbroker.broker.web.routing.schemas import COUNT, OFFSET, TEXT, array_of, nullable, object_of
from pqbroker.broker.web.routing.sorted_pages import ORDER, sort_field, sorted_page
from pqbroker.pq.serving.topic import Topic

_FACTS = {
    "name": TEXT, "id": TEXT, "partition_count": COUNT, "size_bytes": COUNT, "record_count": COUNT,
    "written_count": COUNT, "records_per_s": nullable({"type": "number"}),
}  # fmt: skip
_SORTS: Final[Mapping[str, str]] = {
    "name": "name", "rate": "records_per_s",
    "partitions": "partition_count", "size": "size_bytes", "records": "record_count", "written": "written_count",
}  # fmt: skip
"""Facts by which a list may be sorted, by their names in the query."""
_PARTITIONS_AT_ONCE: Final = 500
"""Partitions that are summed up before the loop's other work has its turn."""
_PARTITION = object_of(
    {
        "partition": COUNT, "start_offset": OFFSET, "end_offset": OFFSET, "leader_epoch": COUNT, "size_bytes": COUNT,
        "tablet": COUNT, "writes_refused_by": nullable(TEXT),
    }
)  # fmt: skip
_TOPIC = object_of(
    {"cell": TEXT, **_FACTS, "feeder": nullable(TEXT), "partitions": array_of(_PARTITION), "next": nullable(COUNT)}
)


async def list_topics(call: Call) -> Any:
    part, field = call.query.get("contains", "").lower(), sort_field(call, _SORTS)
    topics = {
        topic.record.name: topic
        for topic in await visible_topics(call, AclOperation.DESCRIBE)
        if part in topic.record.name.lower()
    }
    total = len(topics)
    if field is None:
        names = sorted(topics)
        page, has_more = call.page(names[bisect_right(names, call.query.get("after", "")) :])
        found = await call.node.turns.finish(_facts_of(call, [topics[name] for name in page]))
        await add_other_parts(call, _LIST, found)
        return {"cell": call.cell.name, "topics": found, "total": total, "next": page[-1] if has_more else None}
    found = await call.node.turns.finish(_facts_of(call, [topics[name] for name in sorted(topics)]))
    await add_other_parts(call, _LIST, found)
    shown, following = sorted_page(call, found, field)
    return {"cell": call.cell.name, "topics": shown, "total": total, "next": following}


def _facts_of(call: Call, topics: Sequence[Topic]) -> Generator[None, None, list[dict[str, Any]]]:
    found, summed = list[dict[str, Any]](), 0
    for topic in topics:
        found.append(_facts(call, topic))
        summed += 1 + len(topic.partitions)
        if summed >= _PARTITIONS_AT_ONCE:
            summed = 0
            yield
    call.node.topic_rates.forget(sum(1 for _ in call.node.cell.current.topics.names()))
    return found


async def create(call: Call) -> Any:
    config = config_texts(call.body.get("config", {}))
    name: str = call.body["name"]
    check_creation(call, name)
    count = check_new_topic(call.node, name, call.body.get("partitions", USE_DEFAULT), config)
    return shown(call, await create_topic(call.node, name, count, config))


async def describe(call: Call) -> Any:
    topic = call.topic()
    return await with_other_parts(call, DESCRIBE, topic, shown(call, topic))


async def grow(call: Call) -> Any:
    topic = call.topic(AclOperation.ALTER)
    check_partition_count(call.node, call.body["count"], present=len(topic.partitions))
    await call.node.cell.current.topics.grow(topic.record.name, call.body["count"])
    return await describe(call)


async def delete(call: Call) -> Any:
    await delete_topic(call.node, call.topic(AclOperation.DELETE).record.name)


def _facts(call: Call, topic: Topic) -> dict[str, Any]:
    partitions = partitions_here(call, topic)
    written = sum(partition.end_offset for partition in partitions)
    rate = call.node.topic_rates.look(topic.record.topic_id, written, call.node.clock())
    return {
        "name": topic.record.name,
        "id": urlsafe_b64encode(topic.record.topic_id).rstrip(b"=").decode(),
        "partition_count": len(topic.partitions),
        "size_bytes": sum(partition.size_bytes for partition in partitions),
        "record_count": sum(partition.end_offset - partition.start_offset for partition in partitions),
        "written_count": written,
        "records_per_s": None if rate is None else round(rate, 3),
    }


def shown(call: Call, topic: Topic) -> dict[str, Any]:
    page, has_more = call.page(topic.partitions[call.query.get("after", -1) + 1 :])
    partitions = [
        {
            "partition": partition.index,
            "start_offset": partition.start_offset,
            "end_offset": partition.end_offset,
            "leader_epoch": partition.leader_epoch,
            "size_bytes": partition.size_bytes,
            "tablet": topic.record.tablet_of(partition.index),
            "writes_refused_by": (partition.why_no_writes() or (None,))[0],
        }
        for partition in page
    ]
    next_ = page[-1].index if has_more else None
    feeder = topic.feeder or None
    return {"cell": call.cell.name, **_facts(call, topic), "feeder": feeder, "partitions": partitions, "next": next_}


AFTER_PARTITION = Parameter("after", COUNT, "List the partitions behind this one: `next` of the answer before.")
_COUNT = {"type": "integer", "minimum": 1}
_FACTS_EXAMPLE = {
    "name": "orders", "id": "q7S0Yc2bQxWl8QpEJw0n1A", "partition_count": 1, "size_bytes": 4096, "record_count": 42,
    "written_count": 42, "records_per_s": 3.5,
}  # fmt: skip
_TOPIC_EXAMPLE = {
    "cell": "0",
    **_FACTS_EXAMPLE,
    "feeder": None,
    "partitions": [
        {
            "partition": 0, "start_offset": 0, "end_offset": 42, "leader_epoch": 1, "size_bytes": 4096, "tablet": 65536,
            "writes_refused_by": None,
        }
    ],
    "next": None,
}  # fmt: skip

_LIST = Route(
    "GET", "/v1/topics",
    "List topics by name, or sorted by a figure. `record_count` are offsets that are kept, `written_count` all "
    "that were given; `records_per_s` is its rise between two requests, null until there were two",
    list_topics,
    object_of({"cell": TEXT, "topics": array_of(object_of(_FACTS)), "total": COUNT, "next": nullable(TEXT)}),
    (
        AFTER_NAME, LIMIT,
        Parameter("contains", TEXT, "List those whose names contain this, whatever the case."),
        Parameter("sort", {"type": "string", "enum": list(_SORTS)}, "Sort by this."), ORDER,
    ),
    example={"cell": "0", "topics": [_FACTS_EXAMPLE], "total": 1, "next": None},
    place=nowhere_else,
)  # fmt: skip
DESCRIBE = Route(
    "GET", "/v1/topics/{name}", "Describe a topic and its partitions", describe, _TOPIC, (AFTER_PARTITION, LIMIT),
    example=_TOPIC_EXAMPLE,
    place=nowhere_else,
)  # fmt: skip

ROUTES = (
    _LIST,
    Route(
        "POST", "/v1/topics", "Create a topic", create, _TOPIC,
        body=object_of({"name": TEXT}, {"partitions": _COUNT, "config": CHANGES}), status=201,
        body_example={"name": "orders", "partitions": 1, "config": {"retention.ms": 86400000}}, example=_TOPIC_EXAMPLE,
    ),
    DESCRIBE,
    Route("DELETE", "/v1/topics/{name}", "Delete a topic", delete, None, status=204),
    Route(
        "POST", "/v1/topics/{name}/partitions", "Grow a topic to a number of partitions", grow, _TOPIC,
        body=object_of({"count": _COUNT}), body_example={"count": 1}, example=_TOPIC_EXAMPLE,
    ),
)  # fmt: skip
