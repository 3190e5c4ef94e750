"""Cells of the node, and bundles of cells: list, make, change and remove them."""

from collections.abc import Awaitable, Mapping
from typing import Any, TypeVar

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.services.cells.cell_owner import OpenCell
from pqbroker.broker.web.resources.contents import TIMESTAMP
from pqbroker.broker.web.routing.every_node import ask_nodes, nowhere_else
from pqbroker.broker.web.routing.problems import Problem
from pqbroker.broker.web.routing.routes import LIMIT, Call, Parameter, Route
from pqbroker.broker.web.routing.schemas import COUNT, SHOWN, TEXT, Schema, array_of, nullable, object_of
from pqbroker.storage.bundles.bundle import DEFAULT_BUNDLE, Bundle, BundleRefused, changed_bundle, new_bundle
from pqbroker.storage.bundles.bundle import reopens_cells as reopens
from pqbroker.storage.engine import EngineError
from pqbroker.storage.ids import SYSTEM_CELL, CellId

T = TypeVar("T")

_EVACUATE = Parameter(
    "evacuate", {"type": "boolean"}, "Move its tablets to other cells of its bundle first, while they are served."
)
_OPTIONS: Schema = {"type": "object"}
_CELL = object_of(
    {
        "id": COUNT, "bundle": TEXT, "health": TEXT, "node": nullable(COUNT), "generation": nullable(COUNT),
        "tablets": COUNT, "cause": TEXT,
    }
)
_MOVE = object_of(
    {
        "tablet": COUNT, "topic": TEXT, "from_cell": COUNT, "to_cell": COUNT, "begun": TIMESTAMP,
        "ended": nullable(TIMESTAMP), "state": TEXT, "failure": TEXT,
    }
)  # fmt: skip
_BUNDLE = object_of(
    {
        "name": TEXT, "options": _OPTIONS, "options_without_effect": array_of(TEXT), "node_tag_filter": TEXT,
        "health": TEXT, "cells": array_of(COUNT),
    }
)  # fmt: skip
_BUNDLE_EXAMPLE = {
    "name": "fast", "options": {"peer_count": 1}, "options_without_effect": ["peer_count"],
    "node_tag_filter": "ssd & !old", "health": "good", "cells": [1, 2],
}  # fmt: skip
_CELL_EXAMPLE = {
    "id": 1, "bundle": "fast", "health": "good", "node": 1, "generation": 3, "tablets": 12, "cause": "",
}  # fmt: skip


async def list_cells(call: Call) -> Any:
    opened = call.node.cell.current
    cells: dict[int, dict[str, Any]] = {cell: shown_cell(opened, cell) for cell in all_cells(opened)}
    for number in () if call.node.others() is None else range(2, len(call.node.leaders.nodes) + 1):
        try:
            told = (await ask_nodes(call, _LIST, [number], {}))[number]
        except Problem:
            continue  # what is known here of its cells is that it has not opened them, or has for all that is known
        cells |= {row["id"]: row for row in told["cells"] if row["node"] == number == cells[row["id"]]["node"]}
    return {"cells": list(cells.values())}


async def create_cell(call: Call) -> Any:
    opened = call.node.cell.current
    bundle = call.body.get("bundle", DEFAULT_BUNDLE)
    _find_bundle(opened, bundle)
    record = await _refused(opened.others.create(bundle))
    return shown_cell(opened, record.cell)


async def remove_cell(call: Call) -> None:
    opened, cell = call.node.cell.current, CellId(call.path["cell"])
    if cell == SYSTEM_CELL:
        message = "cell 0 is the system cell: it is always open and cannot be removed"
        raise Problem(409, "CELL_REFUSED", message, "Remove another cell.")
    if cell not in opened.hive.cells:
        raise Problem(404, "NO_CELL", f"there is no cell {cell}", "GET /v1/cells lists the cells.")
    await _refused(opened.others.remove(cell, evacuate=call.query.get("evacuate", False)))


async def move_cell(call: Call) -> Any:
    opened, cell = call.node.cell.current, CellId(call.path["cell"])
    await _refused(opened.others.between.give(cell, call.body["node"]))
    return shown_cell(opened, cell)


async def list_moves(call: Call) -> Any:
    history = call.node.cell.current.others.moves
    page, has_more = call.page([*history.running, *history.ended])
    return {"moves": [move.document() for move in page], "is_cut": has_more}


async def list_bundles(call: Call) -> Any:
    opened = call.node.cell.current
    return {"bundles": [shown_bundle(opened, opened.hive.bundles[name]) for name in sorted(opened.hive.bundles)]}


async def create_bundle(call: Call) -> Any:
    opened, body = call.node.cell.current, call.body
    try:
        bundle = new_bundle(body["name"], body.get("options", {}), body.get("node_tag_filter", ""))
    except BundleRefused as refusal:
        raise Problem(400, "INVALID_BUNDLE", str(refusal), "Correct what is named.") from None
    await _refused(opened.hive.create_bundle(bundle))
    return shown_bundle(opened, bundle)


async def change_bundle(call: Call) -> Any:
    return await changed(call, call.path["name"], call.body)


async def changed(call: Call, name: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Change a bundle. One whose options hold for its cells opens them again; where a filter changed, cells are opened
    or left."""
    opened = call.node.cell.current
    before = _find_bundle(opened, name)
    served = _served_topics(opened, name)

    def change(bundle: Bundle) -> Bundle:
        return changed_bundle(bundle, changes.get("options", {}), changes.get("node_tag_filter"), served)

    after = await _refused(opened.hive.change_bundle(name, change))
    if after.node_tag_filter != before.node_tag_filter:
        await opened.others.follow_homes()
    if reopens(before, after):
        await opened.others.reopen(name)
    return shown_bundle(opened, after)


async def remove_bundle(call: Call) -> None:
    opened, name = call.node.cell.current, call.path["name"]
    _find_bundle(opened, name)
    await _refused(opened.hive.remove_bundle(name))


def _find_bundle(opened: OpenCell, name: str) -> Bundle:
    found = opened.hive.bundles.get(name)
    if found is None:
        message = f"there is no bundle {name[:SHOWN]!r}"
        raise Problem(404, "NO_BUNDLE", message, "GET /v1/bundles lists the bundles.")
    return found


def _served_topics(opened: OpenCell, bundle: str) -> set[str]:
    """Return topics of the bundle with a tablet that is not unmounted: a topic that is no table always."""
    topics = [topic for name in opened.topics.names() if (topic := opened.topics.get(name)) is not None]
    return {
        topic.record.name
        for topic in topics
        if topic.config.pq_bundle == bundle and set(topic.states or ["mounted"]) != {"unmounted"}
    }


async def _refused(change: Awaitable[T]) -> T:
    """The outcome of a change; what refuses it is a problem."""
    try:
        return await change
    except BundleRefused as refusal:
        raise Problem(409, "BUNDLE_REFUSED", str(refusal), "GET /v1/bundles and /v1/cells list them.") from None
    except EngineError as failure:
        cure = "GET /v1/cells shows the cause; it is tried again by itself."
        raise Problem(503, "CELL_NOT_OPEN", str(failure), cure) from None


def all_cells(opened: OpenCell) -> list[CellId]:
    return [SYSTEM_CELL, *sorted(opened.hive.cells)]


def shown_cell(opened: OpenCell, cell: CellId) -> dict[str, Any]:
    host = opened.cells.host(cell)
    is_system = cell == SYSTEM_CELL
    return {
        "id": cell,
        "bundle": DEFAULT_BUNDLE if is_system else opened.hive.cells[cell].bundle,
        "health": opened.others.health(cell),
        "node": opened.others.node_of(cell),
        "generation": host.cell.generation if host is not None else None,
        "tablets": len(host.cell.tablets()) if host is not None else len(list(opened.scheme.owned_tablets(cell))),
        "cause": opened.others.failure(cell),
    }


def shown_bundle(opened: OpenCell, bundle: Bundle) -> dict[str, Any]:
    cells = [cell for cell, record in sorted(opened.hive.cells.items()) if record.bundle == bundle.name]
    cells = [SYSTEM_CELL, *cells] if bundle.name == DEFAULT_BUNDLE else cells
    healthy = sum(opened.others.health(cell) == "good" for cell in cells)
    return {
        "name": bundle.name,
        "options": bundle.all_options,
        "options_without_effect": sorted(bundle.options),
        "node_tag_filter": bundle.node_tag_filter,
        "health": "good" if healthy == len(cells) > 0 else "degraded" if healthy else "failed",
        "cells": cells,
    }


CHANGES: dict[str, Schema] = {"options": _OPTIONS, "node_tag_filter": TEXT}

_LIST = Route(
    "GET", "/v1/cells", "List the cells of the broker: their bundle, and whether they are open", list_cells,
    object_of({"cells": array_of(_CELL)}), cluster=AclOperation.DESCRIBE, example={"cells": [_CELL_EXAMPLE]},
    place=nowhere_else,
)  # fmt: skip

ROUTES = (
    _LIST,
    Route(
        "POST", "/v1/cells", "Make a cell of a bundle (default); topics of the bundle are spread over its cells",
        create_cell, _CELL, body=object_of({}, {"bundle": TEXT}), status=201, cluster=AclOperation.ALTER,
        example=_CELL_EXAMPLE, body_example={"bundle": "fast"},
    ),
    Route(
        "DELETE", "/v1/cells/{cell}", "Remove a cell that has no tablets", remove_cell, None, (_EVACUATE,), status=204,
        cluster=AclOperation.ALTER,
    ),
    Route(
        "POST", "/v1/cells/{cell}/move",
        "Have another node of a broker with several run a cell, while clients are served; it answers when that has it "
        "open. `node`: its number, from 1", move_cell, _CELL, body=object_of({"node": COUNT}),
        cluster=AclOperation.ALTER, example={**_CELL_EXAMPLE, "node": 2}, body_example={"node": 2},
    ),
    Route(
        "GET", "/v1/moves",
        "List moves of tablets between cells since the cells were opened: those under way, then the last that ended",
        list_moves, object_of({"moves": array_of(_MOVE), "is_cut": {"type": "boolean"}}), (LIMIT,),
        cluster=AclOperation.DESCRIBE,
        example={
            "moves": [
                {
                    "tablet": 65536, "topic": "orders", "from_cell": 0, "to_cell": 1, "begun": 1767225600000,
                    "ended": None, "state": "copying", "failure": "",
                }
            ],
            "is_cut": False,
        },
    ),
    Route(
        "GET", "/v1/bundles", "List the bundles of cells: options, filter of node tags, cells", list_bundles,
        object_of({"bundles": array_of(_BUNDLE)}), cluster=AclOperation.DESCRIBE,
        example={"bundles": [_BUNDLE_EXAMPLE]},
    ),
    Route(
        "POST", "/v1/bundles", "Make a bundle of cells, which has none at first", create_bundle, _BUNDLE,
        body=object_of({"name": TEXT}, CHANGES), status=201, cluster=AclOperation.ALTER, example=_BUNDLE_EXAMPLE,
        body_example={"name": "fast", "node_tag_filter": "ssd & !old"},
    ),
    Route(
        "PATCH", "/v1/bundles/{name}",
        "Change a bundle: options while none of its tables is mounted, dynamic ones and the filter at any time",
        change_bundle, _BUNDLE, body=object_of({}, CHANGES), cluster=AclOperation.ALTER, example=_BUNDLE_EXAMPLE,
        body_example={"options": {"dynamic_memory_pool_weight": 2}},
    ),
    Route(
        "DELETE", "/v1/bundles/{name}", "Remove a bundle that has no cells", remove_bundle, None, status=204,
        cluster=AclOperation.ALTER,
    ),
)  # fmt: skip
