"""Tablets of the cell: what runs, on which generation and channels; and the keys of those that are KV tablets."""

import asyncio
from bisect import bisect_right
from collections.abc import Sequence
from itertools import islice
from typing import Any

from pqbroker.broker.http.keys import parse_key, show_key
from pqbroker.broker.http.problems import Problem
from pqbroker.broker.http.routes import LIMIT, Call, Parameter, Route
from pqbroker.broker.http.schemas import COUNT, OFFSET, TEXT, Schema, array_of, nullable, object_of
from pqbroker.pq.group import Group
from pqbroker.pq.tablet import PqTablet
from pqbroker.storage.blobid import BlobId
from pqbroker.storage.cells.cell import Cell
from pqbroker.storage.garbage import Barriers, Position
from pqbroker.storage.kv import KeyValueTablet
from pqbroker.storage.kv_rows import Entry
from pqbroker.storage.tablet import LOG_CHANNEL, SNAPSHOT_CHANNEL, TabletRecord, TabletStorage, TabletType

_BOOLEAN: Schema = {"type": "boolean"}
_FACTS = {
    "id": COUNT, "type": TEXT, "owner": TEXT, "topic": nullable(TEXT), "state": TEXT, "generation": COUNT,
    "cell": TEXT, "partition_count": COUNT,
}  # fmt: skip
_BARRIER = nullable(object_of({"generation": COUNT, "step": COUNT}))
_CHANNEL = object_of(
    {
        "channel": COUNT, "holds": TEXT, "pool": TEXT, "index_below_bytes": COUNT,
        "status": nullable(TEXT), "puts": COUNT, "put_bytes": COUNT,
        "history": array_of(object_of({"from_generation": COUNT, "group": COUNT, "pool": TEXT})),
        "soft_barrier": _BARRIER, "hard_barrier": _BARRIER,
    }
)  # fmt: skip
_TABLE = object_of({"name": TEXT, "rows": COUNT})
TABLET = object_of(
    {
        **_FACTS, "partitions": array_of(COUNT), "blocked_generation": COUNT, "channels": array_of(_CHANNEL),
        "commits": COUNT, "start_ms": nullable({"type": "number"}), "tables": nullable(array_of(_TABLE)),
        "key_count": nullable(COUNT), "size_bytes": nullable(COUNT),
    }
)  # fmt: skip
_KEY = object_of(
    {
        "key": TEXT, "size_bytes": COUNT, "created": OFFSET, "inline": _BOOLEAN, "shared": _BOOLEAN,
        "blobs": array_of(TEXT),
    }
)  # fmt: skip


async def list_tablets(call: Call) -> Any:
    records = call.cell.tablets()
    ids = sorted(records)
    page, has_more = call.page(ids[bisect_right(ids, call.query.get("after", -1)) :])
    return {"tablets": [_facts(call, records[each]) for each in page], "next": page[-1] if has_more else None}


async def describe(call: Call) -> Any:
    barriers = await call.cell.barriers(find_tablet(call, call.path["tablet"]).tablet_id)
    cell, record = call.cell, find_tablet(call, call.path["tablet"])
    served = _served(call, record)
    instance = None if record.dropping else cell.storage(record.tablet_id)
    return {
        **_facts(call, record),
        "partitions": sorted(served.partitions) if served else [],
        "blocked_generation": cell.blocked_generation(record.tablet_id),
        "channels": [
            _channel(number, record, cell) | _use(instance, number) | _barriers(barriers[number])
            for number in range(len(record.channels))
        ],
        "tables": _tables(call, record),
        "commits": instance.commits if instance else 0,
        "start_ms": round(1000 * served.start_s, 3) if served else None,
        "key_count": len(served.kv) if served else None,
        "size_bytes": sum(one.size_bytes for one in served.partitions.values()) if served else None,
    }


async def keys(call: Call) -> Any:
    tablet = find_kv(call, call.path["tablet"])
    lo = parse_key(call.query.get("from", ""), "from")
    page, has_more = call.page(list(islice(tablet.keys(lo), call.limit() + 1)))
    shown = await asyncio.to_thread(_show_entries, page, call.node.settings.http_answer_bytes_max)
    following = tablet.keys(page[len(shown) - 1][0] + b"\0") if has_more or len(shown) < len(page) else iter(())
    return {"keys": shown, "next": next((show_key(key) for key, _ in following), None)}


def find_tablet(call: Call, tablet_id: int) -> TabletRecord:
    """What the cell stores of a tablet; Problem when it has none of that id."""
    record = call.cell.tablets().get(tablet_id)
    if record is None:
        raise unknown_tablet(tablet_id)
    return record


def find_kv(call: Call, tablet_id: int) -> KeyValueTablet:
    """The keys of a tablet; Problem when it has none."""
    record = find_tablet(call, tablet_id)
    tablet = _served(call, record)
    if tablet is None:
        raise _no_keys(record)
    return tablet.kv


def unknown_tablet(tablet_id: int) -> Problem:
    return Problem(404, "UNKNOWN_TABLET", f"there is no tablet {tablet_id}", "GET /v1/tablets lists the tablets.")


def _facts(call: Call, record: TabletRecord) -> dict[str, Any]:
    group, served = _group(call, record), _served(call, record)
    return {
        "id": record.tablet_id,
        "type": record.type.name.lower(),
        "owner": record.owner,
        "topic": group.topic.name if group else None,
        "state": "dropping" if record.dropping else "running",
        "generation": record.generation,
        "cell": call.cell.name,
        "partition_count": len(served.partitions) if served else 0,
    }


def _group(call: Call, record: TabletRecord) -> Group | None:
    """The topic a PQ tablet is of; None when it is deleted."""
    return call.node.groups.by_id(bytes.fromhex(record.owner)) if record.type is TabletType.PERSQUEUE else None


def _served(call: Call, record: TabletRecord) -> PqTablet | None:
    group = _group(call, record)
    return group.tablets.get(record.tablet_id) if group else None


def _tables(call: Call, record: TabletRecord) -> list[dict[str, Any]] | None:
    """Those of a base tablet; a KV tablet has none."""
    opened = call.owner.current
    if record.type is TabletType.SCHEME:
        tables = opened.scheme.tables
    elif record.type is TabletType.COORDINATOR:
        tables = opened.coordinators.tables(record.tablet_id)
    else:
        return None
    return [{"name": name, "rows": len(table)} for name, table in tables.items()]


def _channel(number: int, record: TabletRecord, cell: Cell) -> dict[str, Any]:
    history, pools = record.channels[number], cell.groups
    return {
        "channel": number,
        "holds": {LOG_CHANNEL: "log", SNAPSHOT_CHANNEL: "snapshots"}.get(number, "data"),
        "pool": pools[history.group_at(record.generation)],
        "index_below_bytes": cell.index_blob_bytes_max,
        "history": [
            {"from_generation": generation, "group": group, "pool": pools[group]}
            for generation, group in history.ranges
        ],
    }


def _use(instance: TabletStorage | None, number: int) -> dict[str, Any]:
    """How full the channel is, and what the running instance has put into it."""
    if instance is None:
        return {"status": None, "puts": 0, "put_bytes": 0}
    counters = instance.counters[number]
    status = instance.status(number).name.lower()
    return {"status": status, "puts": counters.puts, "put_bytes": counters.put_bytes}


def _barriers(barriers: Barriers) -> dict[str, Any]:
    return {"soft_barrier": _barrier(barriers.soft), "hard_barrier": _barrier(barriers.hard)}


def _barrier(position: Position) -> dict[str, int] | None:
    generation, step = position
    return {"generation": generation, "step": step} if generation else None


def _no_keys(record: TabletRecord) -> Problem:
    name = f"tablet {record.tablet_id} ({record.type.name.lower()})"
    if record.type is TabletType.PERSQUEUE:
        return Problem(409, "TABLET_NOT_SERVED", f"{name} is of a topic that is deleted", "Its space is coming back.")
    return Problem(
        409, "NO_KEYS", f"{name} keeps tables in log blobs, no keys",
        f"GET /v1/blobs?tablet={record.tablet_id} lists its blobs.",
    )  # fmt: skip


def _show_entries(page: Sequence[tuple[bytes, Entry]], bytes_max: int) -> list[dict[str, Any]]:
    """Runs in a thread. At least one entry, no more than about `bytes_max` of text."""
    shown: list[dict[str, Any]] = []
    for key, entry in page:
        blobs = [str(BlobId.from_key(blob)) for blob in entry.blobs()]
        text = show_key(key)
        bytes_max -= len(text) + sum(map(len, blobs))
        if shown and bytes_max < 0:
            break
        shown.append(
            {
                "key": text, "size_bytes": entry.size, "created": entry.created_ms, "inline": entry.is_inline,
                "shared": entry.is_shared, "blobs": blobs,
            }
        )  # fmt: skip
    return shown


_AFTER_TABLET = Parameter("after", COUNT, "List those behind this id: `next` of the answer before.")

ROUTES = (
    Route(
        "GET", "/v1/tablets", "List the tablets of the cell by id", list_tablets,
        object_of({"tablets": array_of(object_of(_FACTS)), "next": nullable(COUNT)}), (_AFTER_TABLET, LIMIT),
    ),
    Route("GET", "/v1/tablets/{tablet}", "Describe a tablet, its generation and its channels", describe, TABLET),
    Route(
        "GET", "/v1/tablets/{tablet}/keys", "List the keys of a KV tablet, and the blobs of their values", keys,
        object_of({"keys": array_of(_KEY), "next": nullable(TEXT)}),
        (
            Parameter("from", TEXT, "Begin with this key, written as keys are shown: `next` of the answer before."),
            LIMIT,
        ),
    ),
)  # fmt: skip
