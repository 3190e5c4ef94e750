"""One partition seen from inside: blobs by level, producers, consumers, traffic, and why its oldest data is held."""

from collections.abc import Sequence
from itertools import islice
from typing import Any

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.services.cleaning.explaining import describe_cleaning
from pqbroker.broker.services.topics.partitions import find_partition
from pqbroker.broker.web.resources.cleaning import CLEANING
from pqbroker.broker.web.routing.routes import LIMIT, Call, Route
from pqbroker.broker.web.routing.schemas import COUNT, OFFSET, TEXT, Schema, array_of, nullable, object_of
from pqbroker.pq.counters import ReadCounters, WriteCounters
from pqbroker.pq.log.body import Bodies
from pqbroker.pq.log.consumers import ConsumerOffset
from pqbroker.pq.log.head import Head
from pqbroker.pq.log.levels import BORDERS, level_of
from pqbroker.pq.log.partition import Partition
from pqbroker.pq.log.producers import Producer
from pqbroker.pq.log.retention import Held
from pqbroker.pq.serving.partition_server import PartitionServer

_INTEGER: Schema = {"type": "integer"}
_BLOB = {"key": TEXT, "offset": OFFSET, "end_offset": OFFSET, "size_bytes": COUNT}
_LEVEL = object_of(
    {
        "border_bytes": COUNT, "size_bytes": COUNT,
        "blobs": array_of(object_of({**_BLOB, "pieces": COUNT})),
    }
)  # fmt: skip
_PARTITION = object_of(
    {
        "cell": TEXT, "topic": TEXT, "partition": COUNT, "tablet": COUNT, "leader_epoch": COUNT, "start_offset": OFFSET,
        "end_offset": OFFSET, "size_bytes": COUNT,
        "writes": object_of({"are_taken": {"type": "boolean"}, "refused_by": nullable(TEXT), "reason": nullable(TEXT)}),
        "oldest_data": object_of(
            {"held_by": TEXT, "reason": TEXT, "until": nullable(_INTEGER), "groups": array_of(TEXT)}
        ),
        "kafka_transactions": object_of(
            {"last_stable_offset": OFFSET, "open": COUNT, "aborted": COUNT, "oldest_open": nullable(TEXT)}
        ),
        "cleaning": nullable(CLEANING),
        "head": object_of({"size_bytes": COUNT, "in_memory_bytes": COUNT, "levels": array_of(_LEVEL)}),
        "body": object_of(
            {"size_bytes": COUNT, "count": COUNT, "blobs": array_of(object_of({**_BLOB, "created": OFFSET}))}
        ),
        "producers": object_of(
            {
                "count": COUNT,
                "producers": array_of(
                    object_of(
                        {
                            "id": COUNT, "epoch": COUNT, "last_sequence": nullable(COUNT), "last_offset": OFFSET,
                            "last_written": OFFSET,
                        }
                    )
                ),
            }
        ),
        "consumers": object_of(
            {
                "count": COUNT,
                "consumers": array_of(
                    object_of(
                        {
                            "group": TEXT, "offset": _INTEGER, "lag": COUNT, "committed": _INTEGER,
                            "important": {"type": "boolean"},
                        }
                    )
                ),
            }
        ),
        "leader_epochs": array_of(object_of({"leader_epoch": COUNT, "start_offset": OFFSET})),
        "written": object_of(
            {
                "records": COUNT, "bytes": COUNT, "blob_bytes": COUNT, "rewritten_bytes": COUNT,
                "amplification": nullable({"type": "number"}), "cycles": COUNT,
            }
        ),
        "read": object_of({"bytes": COUNT, "reads": COUNT, "reads_from_memory": COUNT, "reads_from_store": COUNT}),
    }
)  # fmt: skip
_SEQUENCES = 1 << 31


async def describe(call: Call) -> Any:
    topic = call.topic()
    server = find_partition(topic, call.path["partition"])
    call.check_served(topic, (server.index,))
    state, limit = server.state, call.limit()
    important = topic.config.pq_important_groups
    return {
        "cell": call.cell.name,
        "topic": topic.record.name,
        "partition": server.index,
        "tablet": topic.record.tablet_of(server.index),
        "leader_epoch": server.leader_epoch,
        "start_offset": server.start_offset,
        "end_offset": server.end_offset,
        "size_bytes": server.size_bytes,
        "writes": _writes(server),
        "oldest_data": _oldest(server.retention.why_held(), limit),
        "kafka_transactions": _transactions(state),
        "cleaning": describe_cleaning(call.node, topic, server),
        "head": _head(state.head, server.index),
        "body": _body(state.bodies, server.index, limit),
        "producers": {
            "count": len(state.producers.producers),
            "producers": [_producer(*one) for one in islice(server.state.producers, limit)],
        },
        "consumers": {
            "count": len(server.consumers.all()),
            "consumers": [
                _consumer(*one, server.end_offset, important) for one in islice(server.consumers.all().items(), limit)
            ],
        },
        "leader_epochs": [
            {"leader_epoch": epoch, "start_offset": offset} for epoch, offset in state.epochs.entries[-limit:]
        ],
        "written": _written(server.writer.counters),
        "read": _read(server.reader.counters),
    }


def _writes(server: PartitionServer) -> dict[str, Any]:
    refused_by, reason = server.why_no_writes() or (None, None)
    return {"are_taken": refused_by is None, "refused_by": refused_by, "reason": reason}


def _transactions(state: Partition) -> dict[str, Any]:
    """The transactions of Kafka producers whose records are here."""
    known = state.transactions
    return {
        "last_stable_offset": state.stable_offset,
        "open": len(known.open),
        "aborted": 0 if known.aborted is None else len(known.aborted),
        "oldest_open": state.why_unstable,
    }


def _oldest(held: Held, limit: int) -> dict[str, Any]:
    return {
        "held_by": held.hold.value,
        "reason": held.text,
        "until": held.until_ms,
        "groups": held.groups[:limit],
    }


def _head(head: Head, index: int) -> dict[str, Any]:
    levels: list[dict[str, Any]] = [{"border_bytes": border, "size_bytes": 0, "blobs": []} for border in BORDERS]
    for blob in head.blobs:
        level = levels[level_of(blob.size)]
        level["size_bytes"] += blob.size
        level["blobs"].append(
            {
                "key": blob.key(index).decode(), "offset": blob.offset, "end_offset": blob.end,
                "size_bytes": blob.size, "pieces": blob.pieces,
            }
        )  # fmt: skip
    return {"size_bytes": head.size, "in_memory_bytes": head.run.held, "levels": levels}


def _body(bodies: Bodies, index: int, limit: int) -> dict[str, Any]:
    """The oldest blobs; the tablet's keys have them all."""
    return {
        "size_bytes": bodies.size,
        "count": len(bodies),
        "blobs": [
            {
                "key": bodies.key(index, number).decode(), "offset": bodies.offsets[number],
                "end_offset": bodies.ends[number], "size_bytes": bodies.sizes[number],
                "created": bodies.created[number],
            }
            for number in range(min(limit, len(bodies)))
        ],
    }  # fmt: skip


def _producer(producer_id: int, state: Producer) -> dict[str, int | None]:
    return {
        "id": producer_id,
        "epoch": state.epoch,
        "last_sequence": state.last % _SEQUENCES if state.batches else None,
        "last_offset": state.last_offset,
        "last_written": state.written_ms,
    }


def _consumer(group_id: str, state: ConsumerOffset, end_offset: int, important: Sequence[str]) -> dict[str, Any]:
    return {
        "group": group_id,
        "offset": state.offset,
        "lag": max(0, end_offset - state.offset),
        "committed": state.commit_ms,
        "important": group_id in important,
    }


def _written(counters: WriteCounters) -> dict[str, Any]:
    """Return write counters since the tablet's start. Blobs have more bytes than batches: merging writes some again,
    and indexes are added."""
    stored, blobs = counters.bytes_written, counters.blob_bytes
    return {
        "records": counters.written,
        "bytes": stored,
        "blob_bytes": blobs,
        "rewritten_bytes": max(0, blobs - stored),
        "amplification": round(blobs / stored, 3) if stored else None,
        "cycles": counters.cycles,
    }


def _read(counters: ReadCounters) -> dict[str, int]:
    """Since the tablet's start."""
    return {
        "bytes": counters.bytes_read,
        "reads": counters.reads,
        "reads_from_memory": counters.reads - counters.reads_from_store,
        "reads_from_store": counters.reads_from_store,
    }


ROUTES = (
    Route(
        "GET", "/v1/topics/{name}/partitions/{partition}",
        "Look inside a partition: blobs, producers, consumers; `limit` holds for each list", describe, _PARTITION,
        (LIMIT,), place=lambda call: call.node_of(AclOperation.DESCRIBE, (call.path["partition"],)),
    ),
)  # fmt: skip
