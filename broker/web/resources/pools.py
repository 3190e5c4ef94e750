"""Pools of the cell and their segments: what is free, what is alive, what will come back."""

from typing import Any

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.web.routing.problems import Problem
from pqbroker.broker.web.routing.routes import LIMIT, Call, Parameter, Route
from pqbroker.broker.web.routing.schemas import COUNT, TEXT, Schema, array_of, nullable, object_of
from pqbroker.storage.engine import PoolStats, SegmentFacts

_BOOLEAN: Schema = {"type": "boolean"}
_POOL = object_of(
    {
        "name": TEXT, "directory": TEXT, "status": TEXT, "free_bytes": COUNT, "total_bytes": COUNT,
        "live_bytes": COUNT, "trash_bytes": COUNT, "segments": COUNT,
    }
)  # fmt: skip
_SEGMENT = object_of(
    {"id": TEXT, "pool": TEXT, "size_bytes": COUNT, "live_bytes": COUNT, "trash_bytes": COUNT, "active": _BOOLEAN}
)


async def list_pools(call: Call) -> Any:
    segments = await call.cell.inspection.segments()
    return {"cell": call.cell.name, "pools": [_show_pool(pool, segments) for pool in call.node.pools()]}


async def list_segments(call: Call) -> Any:
    """Ids order as the list does: by pool, and in it the oldest first."""
    wanted: str | None = call.query.get("pool")
    known = sorted(pool.name for pool in call.node.pools())
    if wanted is not None and wanted not in known:
        raise Problem(404, "UNKNOWN_POOL", f"there is no pool {wanted[:100]!r}", f"The cell has {', '.join(known)}.")
    found = {_id(one): one for one in await call.cell.inspection.segments() if wanted in (None, one.pool)}
    after = call.query.get("after", "")
    page, has_more = call.page([each for each in sorted(found) if each > after])
    return {
        "cell": call.cell.name,
        "segments": [_show_segment(each, found[each]) for each in page],
        "next": page[-1] if has_more else None,
    }


def _show_pool(pool: PoolStats, segments: Any) -> dict[str, Any]:
    return {
        "name": pool.name,
        "directory": pool.directory,
        "status": pool.colour.name.lower(),
        "free_bytes": pool.free_bytes,
        "total_bytes": pool.total_bytes,
        "live_bytes": pool.live_bytes,
        "trash_bytes": pool.stored_bytes - pool.live_bytes,
        "segments": sum(one.pool == pool.name for one in segments),
    }


def _show_segment(own: str, one: SegmentFacts) -> dict[str, Any]:
    return {
        "id": own,
        "pool": one.pool,
        "size_bytes": one.size_bytes,
        "live_bytes": one.live_bytes,
        "trash_bytes": one.size_bytes - one.live_bytes,
        "active": one.is_active,
    }


def _id(one: SegmentFacts) -> str:
    return f"{one.pool}/{one.name}"


ROUTES = (
    Route(
        "GET", "/v1/pools", "List the pools of the cell: free space, blobs in use, and what will come back", list_pools,
        object_of({"cell": TEXT, "pools": array_of(_POOL)}), cluster=AclOperation.DESCRIBE,
        example={
            "cell": "0",
            "pools": [
                {
                    "name": "main", "directory": "/var/lib/pqbroker/blobs", "status": "green",
                    "free_bytes": 80000000000, "total_bytes": 100000000000, "live_bytes": 9000000000,
                    "trash_bytes": 1000000000, "segments": 160,
                }
            ],
        },
    ),
    Route(
        "GET", "/v1/segments", "List the segments (files) of the pools, the oldest of each first", list_segments,
        object_of({"cell": TEXT, "segments": array_of(_SEGMENT), "next": nullable(TEXT)}),
        (
            Parameter("pool", TEXT, "List those of this pool alone.", example="main"),
            Parameter("after", TEXT, "List those behind this id: `next` of the answer before."),
            LIMIT,
        ),
        cluster=AclOperation.DESCRIBE,
        example={
            "cell": "0",
            "segments": [
                {
                    "id": "main/0000000000000001-00000001.segment", "pool": "main", "size_bytes": 67108864,
                    "live_bytes": 60000000, "trash_bytes": 7108864, "active": False,
                }
            ],
            "next": None,
        },
    ),
)  # fmt: skip
