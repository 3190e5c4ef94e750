"""Faults of the store on cue, on a test broker: what a user's clients do when a commit is refused, or the disk is full.

Nothing here touches what is acknowledged: a fault meets commits to come.
"""

from collections.abc import Callable, Mapping
from typing import Any

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.web.resources.cues import cues_of
from pqbroker.broker.web.routing.problems import bad_request
from pqbroker.broker.web.routing.routes import Call, Route
from pqbroker.broker.web.routing.schemas import COUNT, TEXT, Schema, object_of
from pqbroker.storage.faults import Faults, FaultyEngine
from pqbroker.storage.ids import SYSTEM_CELL
from pqbroker.storage.pool_status import Colour

_BOOLEAN: Schema = {"type": "boolean"}
_STATE = object_of({"commits": COUNT, "holding": _BOOLEAN, "waiting": _BOOLEAN, "full": _BOOLEAN})
_AFTER_MAX = 1_000_000

_SIMPLE: Mapping[str, Callable[[Faults], None]] = {
    "hold": Faults.hold, "release": Faults.release, "fill": Faults.fill, "make_room": Faults.make_room,
    "clear": Faults.clear,
}  # fmt: skip
_NAMES = ("refuse_next", "lose_next", *_SIMPLE)


async def describe(call: Call) -> Any:
    _, faults = _faulty(call)
    return _state(faults)


async def cue(call: Call) -> Any:
    engine, faults = _faulty(call)
    name, after, stored = call.body["fault"], call.body.get("after", 0), call.body.get("stored", False)
    if name == "refuse_next":
        faults.refuse_next(after=after)
    elif name == "lose_next":
        faults.lose_next(after=after, stored=stored)
    elif name in _SIMPLE:
        _SIMPLE[name](faults)
    else:
        raise bad_request(f"there is no fault {name[:100]!r}; there are {', '.join(_NAMES)}")
    colour = Colour.ORANGE_OUT_SPACE if faults.is_full else None
    for pool in call.node.pools():
        engine.tell_colour(colour, pool.name)
    return _state(faults)


def _state(faults: Faults) -> dict[str, Any]:
    return {
        "commits": faults.commits, "holding": faults.is_holding, "waiting": faults.is_waiting, "full": faults.is_full,
    }  # fmt: skip


def _faulty(call: Call) -> tuple[FaultyEngine, Faults]:
    """The store of the cell that is named, or the system cell's, and its faults; Problem unless the broker is for
    tests."""
    engine = cues_of(call).store
    cell = (call.body or {}).get("cell", SYSTEM_CELL)
    if engine is not None and cell != SYSTEM_CELL:
        if cell not in call.node.cell.current.hive.cells:
            raise bad_request(f"there is no cell {cell}; GET /v1/cells lists the cells")
        engine = engine.sibling(str(cell), must_exist=False)
    if engine is None or engine.faults is None:
        raise bad_request("the store was opened without faults: pqbroker.test.door counts at the start alone")
    return engine, engine.faults


ROUTES = (
    Route(
        "GET", "/v1/test/store", "Test brokers: faults of the store that are on, and the number of commits so far",
        describe, _STATE, cluster=AclOperation.DESCRIBE,
    ),
    Route(
        "POST", "/v1/test/store",
        "Test brokers: have the store refuse or lose the next commit (or the one `after` more), hold commits, or be "
        "full: " + ", ".join(_NAMES),
        cue, _STATE,
        body=object_of({"fault": TEXT}, {"after": {**COUNT, "maximum": _AFTER_MAX}, "stored": _BOOLEAN, "cell": COUNT}),
        cluster=AclOperation.ALTER,
    ),
)  # fmt: skip
