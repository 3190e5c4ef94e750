"""The cleaner of compacted topics: what it did and does, and cleaning on command."""

from typing import Any

from pqbroker.broker.ground.access import AclKind, AclOperation, AclResource, is_allowed
from pqbroker.broker.services.cleaning.explaining import ask_for_cleaning, describe_cleaning
from pqbroker.broker.services.cleaning.passes import PassRecord
from pqbroker.broker.services.topics.partitions import needs_keys
from pqbroker.broker.web.resources.topic_parts import with_other_rows
from pqbroker.broker.web.resources.topics import AFTER_PARTITION
from pqbroker.broker.web.routing.every_node import ask_others, nowhere_else
from pqbroker.broker.web.routing.routes import LIMIT, Call, Route
from pqbroker.broker.web.routing.schemas import COUNT, OFFSET, TEXT, Schema, array_of, nullable, object_of

_RATIO: Schema = {"type": "number"}
_FLAG: Schema = {"type": "boolean"}
PASS = object_of(
    {
        "topic": TEXT, "partition": COUNT, "reason": TEXT, "begun_ms": OFFSET, "ended_ms": nullable(OFFSET),
        "bound": OFFSET, "bodies": COUNT, "bytes_before": COUNT, "dirty_bytes": COUNT, "bytes_read": COUNT,
        "bytes_written": COUNT, "bytes_freed": {"type": "integer"}, "bytes_read_per_s": COUNT,
        "bodies_replaced": COUNT, "bodies_written": COUNT, "keys": COUNT, "records": COUNT, "records_gone": COUNT,
        "tombstones_gone": COUNT, "records_without_key": COUNT, "unread_batches": array_of(OFFSET), "failure": TEXT,
    }
)  # fmt: skip
_CLEANING: dict[str, Schema] = {
    "state": TEXT, "reason": TEXT, "text": TEXT, "next": nullable(OFFSET), "dirty_ratio": _RATIO,
    "dirty_bytes": COUNT, "size_bytes": COUNT, "bodies": COUNT, "end_offset": OFFSET,
    "cleaned_to": nullable(OFFSET), "cleaned": nullable(OFFSET), "tombstones_due": nullable(OFFSET),
    "running": nullable(PASS), "last": nullable(PASS),
}  # fmt: skip
CLEANING = object_of(_CLEANING)


async def clean(call: Call) -> Any:
    is_dry = call.body.get("dry_run", False)
    topic = call.topic(AclOperation.DESCRIBE if is_dry else AclOperation.ALTER)
    call.check_served(topic, call.body.get("partitions"))
    asked = ask_for_cleaning(call, topic, call.body.get("partitions"), is_dry=is_dry)
    return {"cell": call.cell.name, "topic": topic.record.name, "dry_run": is_dry, "partitions": asked}


async def describe_topic(call: Call) -> Any:
    topic = call.topic()
    is_compacted = needs_keys(topic)
    page, has_more = call.page(topic.partitions[call.query.get("after", -1) + 1 :] if is_compacted else [])
    partitions = [{"partition": one.index, **(describe_cleaning(call.node, topic, one) or {})} for one in page]
    own = {
        "cell": call.cell.name, "topic": topic.record.name, "is_compacted": is_compacted, "partitions": partitions,
        "next": page[-1].index if has_more else None,
    }  # fmt: skip
    return await with_other_rows(call, _CLEANING_OF_TOPIC, topic, own)


async def describe_cleaner(call: Call) -> Any:
    cleaner, now_ms, limit = call.node.cleaner, call.node.clock(), call.limit()
    settings, counters = call.node.settings, cleaner.counters
    running = [record.document(now_ms) for record in visible(call, list(cleaner.running.values()))]
    ended = [record.document(now_ms) for record in visible(call, list(reversed(cleaner.history.ended)))]
    whole: dict[str, Any] = {
        "cell": call.cell.name, "is_enabled": settings.cleaner_enable, "threads": settings.cleaner_threads,
        "passes": counters.done, "failed": counters.failed, "bytes_read": counters.bytes_read,
        "bytes_written": counters.bytes_written, "bytes_freed": counters.bytes_freed,
        "records_gone": counters.records_gone, "tombstones_gone": counters.tombstones_gone,
        "running": running, "ended": ended,
    }  # fmt: skip
    for told in await ask_others(call, _CLEANER):
        whole |= {name: whole[name] + told[name] for name in _TOTALS}
    whole["ended"].sort(key=lambda one: -one["ended_ms"])
    return {**whole, "running": whole["running"][:limit], "ended": whole["ended"][:limit]}


def visible(call: Call, records: list[PassRecord]) -> list[PassRecord]:
    """Return the passes over topics that the caller may see."""
    names = {record.topic for record in records}
    seen = {name for name in names if is_allowed(call, AclOperation.DESCRIBE, AclResource(AclKind.TOPIC, name))}
    return [record for record in records if record.topic in seen]


_ASKED = object_of(
    {
        "partition": COUNT, "is_cleaned": _FLAG, "bodies": COUNT, "windows": COUNT, "size_bytes": COUNT,
        "dirty_bytes": COUNT, "dirty_ratio": _RATIO, "head_bytes": COUNT, "text": TEXT,
    }
)  # fmt: skip
_CLEANER = Route(
    "GET", "/v1/cleaner", "Look at the cleaner of compacted topics: totals, passes under way, the last that ended",
    describe_cleaner,
    object_of(
        {
            "cell": TEXT, "is_enabled": _FLAG, "threads": COUNT, "passes": COUNT, "failed": COUNT,
            "bytes_read": COUNT, "bytes_written": COUNT, "bytes_freed": {"type": "integer"}, "records_gone": COUNT,
            "tombstones_gone": COUNT, "running": array_of(PASS), "ended": array_of(PASS),
        }
    ),
    (LIMIT,), cluster=AclOperation.DESCRIBE,
    place=nowhere_else,
)  # fmt: skip
_CLEANING_OF_TOPIC = Route(
    "GET", "/v1/topics/{name}/cleaning",
    "Look at the cleaning of a compacted topic's partitions: past, present, next, and why",
    describe_topic,
    object_of(
        {
            "cell": TEXT, "topic": TEXT, "is_compacted": _FLAG,
            "partitions": array_of(object_of({"partition": COUNT, **_CLEANING})), "next": nullable(COUNT),
        }
    ),
    (AFTER_PARTITION, LIMIT), place=nowhere_else,
)  # fmt: skip
_TOTALS = (
    "threads", "passes", "failed", "bytes_read", "bytes_written", "bytes_freed", "records_gone", "tombstones_gone",
    "running", "ended",
)  # fmt: skip
"""Fields of the answers of several nodes that are added up."""
ROUTES = (
    Route(
        "POST", "/v1/topics/{name}/clean",
        "Have a compacted topic cleaned soon, whatever its dirty ratio; `dry_run` says what a pass would go through",
        clean,
        object_of({"cell": TEXT, "topic": TEXT, "dry_run": _FLAG, "partitions": array_of(_ASKED)}),
        body=object_of({}, {"partitions": array_of(COUNT), "dry_run": _FLAG}), status=202,
        place=lambda call: call.node_of(AclOperation.DESCRIBE, call.body.get("partitions")),
        body_example={"partitions": [0], "dry_run": False},
        example={
            "cell": "0", "topic": "orders", "dry_run": False,
            "partitions": [
                {
                    "partition": 0, "is_cleaned": True, "bodies": 12, "windows": 6, "size_bytes": 83886080,
                    "dirty_bytes": 41943040, "dirty_ratio": 0.5, "head_bytes": 4096, "text": "",
                }
            ],
        },
    ),
    _CLEANING_OF_TOPIC,
    _CLEANER,
)  # fmt: skip
