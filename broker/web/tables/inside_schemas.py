"""Schemas of what is shown of the inside of sorted tables, and of the facts that are said of every table."""

from pqbroker.broker.web.resources.events import TABLE_TASK
from pqbroker.broker.web.routing.schemas import COUNT, OFFSET, TEXT, Schema, array_of, nullable, object_of

TABLE_FACTS = {
    "name": TEXT, "path": TEXT, "dynamic": {"type": "boolean"}, "sorted": {"type": "boolean"}, "tablet_count": COUNT,
    "state": TEXT, "bundle": TEXT,
}  # fmt: skip
_KEY: Schema = {"type": "array"}
_PICKED = nullable(
    object_of(
        {"kind": TEXT, "reason": TEXT, "inputs": array_of(COUNT), "input_count": COUNT, "compressed_bytes": COUNT}
    )
)
_WRITTEN_AGAIN = {
    "flushed_rows": COUNT, "flushed_bytes": COUNT, "rewritten_bytes": COUNT,
    "amplification": nullable({"type": "number"}),
}  # fmt: skip
_STORE = object_of(
    {
        "store": COUNT, "state": TEXT, "keys": COUNT, "rows": COUNT, "bytes": COUNT, "begun_ms": OFFSET,
        "age_ms": COUNT, "least_timestamp": nullable(COUNT), "passive_for": TEXT,
    }
)  # fmt: skip
_NODE_TASKS: Schema = {
    "type": "object", "additionalProperties": object_of({"running": COUNT, "most": COUNT}),
}  # fmt: skip
_TABLET_INSIDE = {
    "index": COUNT, "tablet_id": COUNT, "state": TEXT, "pivot_key": _KEY, "stores": array_of(_STORE),
    "partition_count": COUNT, "chunk_count": COUNT, "eden_chunk_count": COUNT, "rows": COUNT, "deletes": COUNT,
    "compressed_bytes": COUNT, "uncompressed_bytes": COUNT, "overlap": COUNT, "overlap_max": COUNT,
    "overlap_key": nullable(_KEY), "retained_timestamp": COUNT,
    "prepared_count": COUNT, "locked_keys": COUNT,
    "blocked": nullable(object_of({"code": TEXT, "number": nullable(COUNT), "message": TEXT, "cure": TEXT})),
    "flush_failure": nullable(object_of({"cause": TEXT, "retry_ms": OFFSET})), "rests": TEXT, **_WRITTEN_AGAIN,
}  # fmt: skip
INSIDE = object_of(
    {
        **TABLE_FACTS, **_WRITTEN_AGAIN,
        "node": object_of(
            {
                "stores_bytes": COUNT, "stores_bytes_max": COUNT, "table_stores_bytes": COUNT,
                "table_stores_bytes_max": COUNT, "workers": COUNT, "workers_busy": COUNT, "tasks": _NODE_TASKS,
            }
        ),
        "running": array_of(TABLE_TASK), "ended": array_of(TABLE_TASK),
        "tablets": array_of(object_of(_TABLET_INSIDE, {"node": COUNT})),
        "next": nullable(COUNT),
    }
)  # fmt: skip
_PARTITION = object_of(
    {
        "index": COUNT, "pivot_key": _KEY, "order": TEXT, "chunk_count": COUNT, "compressed_bytes": COUNT,
        "overlap": COUNT, "overlap_key": nullable(_KEY), "backoff_until_ms": nullable(OFFSET), "task": _PICKED,
    }
)  # fmt: skip
_CHUNK = object_of(
    {
        "chunk": COUNT, "partition_index": nullable(COUNT), "state": TEXT, "first_key": _KEY, "last_key": _KEY,
        "first_order": TEXT, "last_order": TEXT, "keys": COUNT, "rows": COUNT, "deletes": COUNT,
        "compressed_bytes": COUNT, "uncompressed_bytes": COUNT, "least_timestamp": COUNT, "greatest_timestamp": COUNT,
        "created_ms": OFFSET, "age_ms": COUNT, "revision": COUNT, "retry_ms": nullable(OFFSET),
        "preload": TEXT,
        "task": nullable(object_of({"task": COUNT, "kind": TEXT, "reason": TEXT})),
        "picked": nullable(object_of({"kind": TEXT, "reason": TEXT})),
        "left_out": {"type": "object", "additionalProperties": TEXT},
    }
)  # fmt: skip
INSIDE_OF_TABLET = object_of(
    {
        **_TABLET_INSIDE,
        "eden": object_of(
            {"chunk_count": COUNT, "compressed_bytes": COUNT, "partitioning": _PICKED, "compaction": _PICKED}
        ),
        "partitions": array_of(_PARTITION), "chunks": array_of(_CHUNK), "next_partition": nullable(COUNT),
        "next": nullable(COUNT),
    }
)  # fmt: skip
EXPLAINED = object_of(
    {
        **TABLE_FACTS, "task_count": COUNT,
        "tasks": array_of(
            object_of(
                {
                    "order": COUNT, "tablet_index": COUNT, "in_eden": {"type": "boolean"},
                    "partition_pivot_key": nullable(_KEY), "kind": TEXT, "reason": TEXT, "inputs": array_of(COUNT),
                    "input_count": COUNT, "compressed_bytes": COUNT, "slack": COUNT, "effect": COUNT, "waits": TEXT,
                }
            )
        ),
        "balance": array_of(
            object_of(
                {"kind": TEXT, "tablet_index": COUNT, "partition_pivot_key": _KEY, "reason": TEXT, "parts_max": COUNT}
            )
        ),
        "left_out": array_of(
            object_of(
                {
                    "kind": TEXT, "reason": TEXT, "chunk_count": COUNT,
                    "examples": array_of(object_of({"tablet_index": COUNT, "chunk": COUNT})),
                }
            )
        ),
        "rests": array_of(object_of({"reason": TEXT, "tablet_indexes": array_of(COUNT)})),
        "node_tasks": _NODE_TASKS,
    }
)  # fmt: skip
