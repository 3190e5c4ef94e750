"""Restarts of a tablet, and moves of its channels to other pools from its next start on."""

from typing import Any

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.web.resources.tablets import TABLET, cell_of, describe, find_tablet, node_with, unknown_tablet
from pqbroker.broker.web.routing.problems import Problem
from pqbroker.broker.web.routing.routes import Call, Route
from pqbroker.broker.web.routing.schemas import COUNT, SHOWN, TEXT, object_of
from pqbroker.storage.tablets.cell import Cell, MoveRefused, TabletUnknown


async def restart(call: Call) -> Any:
    tablet_id = find_tablet(call, call.path["tablet"]).tablet_id
    try:
        await call.node.cell.restart_tablet(tablet_id)
    except TabletUnknown:
        raise unknown_tablet(tablet_id) from None
    return await describe(call)


async def move(call: Call) -> Any:
    tablet_id = find_tablet(call, call.path["tablet"]).tablet_id
    try:
        await call.node.cell.move_channel(tablet_id, call.path["channel"], _pool(call, cell_of(call, tablet_id)))
    except TabletUnknown:
        raise unknown_tablet(tablet_id) from None
    except MoveRefused as refusal:
        raise Problem(
            409, "MOVE_REFUSED", str(refusal), f"GET /v1/tablets/{tablet_id} shows its channels and their pools."
        ) from None
    return await describe(call)


def _pool(call: Call, cell: Cell) -> int:
    """The number of the pool in the body, where it has a name or its number. `group` was the number's name earlier."""
    name: str | None = call.body.get("pool")
    number: int | None = call.body.get("pool_number", call.body.get("group"))
    if name is None and number is None:
        raise Problem(400, "INVALID_BODY", "body has no field 'pool', which it needs", "Give the name of a pool.")
    if name is None:
        assert number is not None
        return number
    known = list(cell.pools)
    if name not in known:
        message = f"there is no pool {name[:SHOWN]!r}; the cell has {', '.join(known)}"
        raise Problem(409, "MOVE_REFUSED", message, "Give the name of one of these pools.")
    return known.index(name)


ROUTES = (
    Route(
        "POST", "/v1/tablets/{tablet}/restart",
        "Restart a tablet, one generation later; its clients find it again by themselves", restart,
        TABLET, body=object_of({}), cluster=AclOperation.ALTER, place=node_with,
    ),
    Route(
        "POST", "/v1/tablets/{tablet}/channels/{channel}",
        "Move a channel to another pool from the tablet's next start on; old blobs stay where they are",
        move, TABLET, body=object_of({}, {"pool": TEXT, "pool_number": COUNT, "group": {**COUNT, "deprecated": True}}),
        cluster=AclOperation.ALTER, place=node_with,
    ),
)  # fmt: skip
