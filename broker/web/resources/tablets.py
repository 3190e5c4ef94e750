"""Tablets of the open cells: what runs, on which generation and channels; and the keys of those that are KV tablets."""

import asyncio
from bisect import bisect_right
from collections.abc import Sequence
from itertools import islice
from typing import Any

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.web.resources.keys import parse_key, show_key
from pqbroker.broker.web.routing.every_node import merged_page, nowhere_else
from pqbroker.broker.web.routing.problems import Problem
from pqbroker.broker.web.routing.routes import LIMIT, Call, Parameter, Route
from pqbroker.broker.web.routing.schemas import COUNT, OFFSET, TEXT, Schema, array_of, nullable, object_of
from pqbroker.storage.blobs.blob_id import BlobId
from pqbroker.storage.blobs.garbage import Barriers, Position
from pqbroker.storage.ids import TabletId
from pqbroker.storage.kv.rows import Entry
from pqbroker.storage.kv.tablet import KeyValueTablet
from pqbroker.storage.tablets.cell import Cell
from pqbroker.storage.tablets.hosting import Tablet, TabletPage
from pqbroker.storage.tablets.tablet import TabletRecord, TabletStorage
from pqbroker.storage.tablets.tablet_kinds import TABLET_KINDS

UNKNOWN_TABLET = "UNKNOWN_TABLET"
CLOSED_TABLET = "TABLET_NOT_OPEN"
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
        "history": array_of(
            object_of({"from_generation": COUNT, "pool_number": COUNT, "pool": TEXT, "group": COUNT})
        ),
        "soft_barrier": _BARRIER, "hard_barrier": _BARRIER,
    }
)  # fmt: skip
_ROW_SET = object_of({"name": TEXT, "rows": COUNT})
TABLET = object_of(
    {
        **_FACTS, "partitions": array_of(COUNT), "blocked_generation": COUNT, "channels": array_of(_CHANNEL),
        "commits": COUNT, "start_ms": nullable({"type": "number"}), "row_sets": nullable(array_of(_ROW_SET)),
        "tables": nullable(array_of(_ROW_SET)),
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
    is_first = call.node.leaders.own == call.node.leaders.controller  # others have a mirror in place of the system cell
    cells = call.cells if is_first else call.cells[1:]
    records = {each: record for cell in cells for each, record in cell.tablets().items()}
    ids = sorted(records)
    page, has_more = call.page(ids[bisect_right(ids, call.query.get("after", -1)) :])
    own = [_facts(call, records[each]) for each in page]
    rows, next_ = await merged_page(call, _LIST, (own, has_more), lambda told: told["tablets"])
    return {"tablets": rows, "next": next_}


def node_with(call: Call) -> int | None:
    """Return the number of the other node that runs the tablet of a path or query."""
    return call.node.leaders.node_with(TabletId(call.path["tablet"] if call.path else call.query["tablet"]))


async def describe(call: Call) -> Any:
    return await shown(call, call.path["tablet"])


async def shown(call: Call, tablet_id: TabletId) -> dict[str, Any]:
    """All that is said of a tablet. Raise Problem when no open cell has one of that id."""
    find_tablet(call, tablet_id)
    barriers = await cell_of(call, tablet_id).inspection.barriers(tablet_id)
    record = find_tablet(call, tablet_id)
    cell = cell_of(call, tablet_id)
    page = _page(call, record)
    row_sets = None if page.row_sets is None else [{"name": name, "rows": rows} for name, rows in page.row_sets.items()]
    instance = None if record.dropping else cell.storage(record.tablet_id)
    return {
        **_facts(call, record),
        "partitions": list(page.partitions),
        "blocked_generation": cell.inspection.blocked_generation(record.tablet_id),
        "channels": [
            _channel(number, record, cell) | _use(instance, number) | _barriers(barriers[number])
            for number in range(len(record.channels))
        ],
        "row_sets": row_sets,
        "tables": row_sets,  # the name of before, for one version
        "commits": instance.commits if instance else 0,
        "start_ms": None if page.start_s is None else round(1000 * page.start_s, 3),
        "key_count": None if page.kv is None else len(page.kv),
        "size_bytes": page.size_bytes,
    }


async def keys(call: Call) -> Any:
    tablet = find_kv(call, call.path["tablet"])
    lo = parse_key(call.query.get("from", ""), "from")
    page, has_more = call.page(list(islice(tablet.keys(lo), call.limit() + 1)))
    shown = await asyncio.to_thread(_show_entries, page, call.node.settings.http_answer_bytes_max)
    following = tablet.keys(page[len(shown) - 1][0] + b"\0") if has_more or len(shown) < len(page) else iter(())
    next_ = next((show_key(key) for key, _ in following), None)
    return {"cell": call.cell.name, "keys": shown, "next": next_}


def find_tablet(call: Call, tablet_id: TabletId) -> TabletRecord:
    """Return what the tablet's cell stores of it. Raise Problem when no open cell has one of that id."""
    record = cell_of(call, tablet_id).tablets().get(tablet_id)
    if record is None:
        _check_open(call, tablet_id)
        raise unknown_tablet(tablet_id)
    return record


def _check_open(call: Call, tablet_id: TabletId) -> None:
    """Raise Problem for a tablet of a topic, which no open cell has."""
    for topic in call.node.cell.current.scheme.topics.values():
        if tablet_id in topic.tablets:
            text = f"tablet {tablet_id} of {topic.name} is in cell {topic.home_of(tablet_id)}, which is not open"
            cure = "GET /v1/cells, or `pqbroker cell list`, shows the cause."
            raise Problem(409, CLOSED_TABLET, text, cure)


def cell_of(call: Call, tablet_id: TabletId) -> Cell:
    """The open cell that has the tablet; the system cell for one that none has."""
    return next((cell for cell in call.cells if tablet_id in cell.tablets()), call.cell)


def find_kv(call: Call, tablet_id: TabletId) -> KeyValueTablet:
    """The keys of a tablet; Problem when it has none."""
    record = find_tablet(call, tablet_id)
    found = _page(call, record).kv
    if found is None:
        raise _no_keys(record)
    return found


def unknown_tablet(tablet_id: TabletId) -> Problem:
    return Problem(404, UNKNOWN_TABLET, f"there is no tablet {tablet_id}", "GET /v1/tablets lists the tablets.")


def _facts(call: Call, record: TabletRecord) -> dict[str, Any]:
    page = _page(call, record)
    return {
        "id": record.tablet_id,
        "type": TABLET_KINDS[record.type].name,
        "owner": record.owner,
        "topic": page.topic,
        "state": _state(call, record),
        "generation": record.generation,
        "cell": cell_of(call, record.tablet_id).name,
        "partition_count": len(page.partitions),
    }


def _state(call: Call, record: TabletRecord) -> str:
    """Return `not started` for what runs only in a cell that can write: coordinators, while it is for reading only."""
    if record.dropping:
        return "dropping"
    return "not started" if _instance(call, record) is None else "running"


def _page(call: Call, record: TabletRecord) -> TabletPage:
    """Return what the tablet shows of itself; nothing when none runs, such as one of a topic that is deleted."""
    tablet = _instance(call, record)
    return tablet.describe() if tablet is not None else TabletPage()


def _instance(call: Call, record: TabletRecord) -> Tablet | None:
    return call.node.cell.current.cells.host_of(record.tablet_id).tablet(record.tablet_id)


def _channel(number: int, record: TabletRecord, cell: Cell) -> dict[str, Any]:
    history, pools = record.channels[number], cell.pools
    return {
        "channel": number,
        "holds": TABLET_KINDS[record.type].channels[number],
        "pool": pools[history.pool_at(record.generation)],
        "index_below_bytes": cell.inspection.index_blob_bytes_max,
        "history": [
            {"from_generation": generation, "pool_number": number, "pool": pools[number], "group": number}
            for generation, number in history.ranges
        ],
    }


def _use(instance: TabletStorage | None, number: int) -> dict[str, Any]:
    """Return how full the channel is, and what the running instance has put into it."""
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
    kind = TABLET_KINDS[record.type]
    name = f"tablet {record.tablet_id} ({kind.name})"
    if not kind.keyless:
        return Problem(409, "TABLET_NOT_SERVED", f"{name} is of a topic that is deleted", "Its space is coming back.")
    return Problem(
        409, "NO_KEYS", f"{name} {kind.keyless}", f"GET /v1/blobs?tablet={record.tablet_id} lists its blobs."
    )


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
_LIST = Route(
    "GET", "/v1/tablets", "List the tablets of the open cells by id", list_tablets,
    object_of({"tablets": array_of(object_of(_FACTS)), "next": nullable(COUNT)}), (_AFTER_TABLET, LIMIT),
    cluster=AclOperation.DESCRIBE, place=nowhere_else,
)  # fmt: skip

ROUTES = (
    _LIST,
    Route(
        "GET", "/v1/tablets/{tablet}", "Describe a tablet, its generation and its channels", describe, TABLET,
        cluster=AclOperation.DESCRIBE, place=node_with,
    ),
    Route(
        "GET", "/v1/tablets/{tablet}/keys", "List the keys of a KV tablet, and the blobs of their values", keys,
        object_of({"cell": TEXT, "keys": array_of(_KEY), "next": nullable(TEXT)}),
        (
            Parameter("from", TEXT, "Begin with this key, written as keys are shown: `next` of the answer before."),
            LIMIT,
        ),
        cluster=AclOperation.DESCRIBE, place=node_with,
    ),
)  # fmt: skip
