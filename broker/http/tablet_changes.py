"""A tablet is started anew, or a channel of it writes to another pool from its next start on."""

from typing import Any

from pqbroker.broker.http.problems import Problem
from pqbroker.broker.http.routes import Call, Route
from pqbroker.broker.http.schemas import COUNT, object_of
from pqbroker.broker.http.tablets import TABLET, describe, find_tablet, unknown_tablet
from pqbroker.storage.cells.cell import MoveRefused, TabletUnknown


async def restart(call: Call) -> Any:
    tablet_id = find_tablet(call, call.path["tablet"]).tablet_id
    try:
        await call.owner.restart_tablet(tablet_id)
    except TabletUnknown:
        raise unknown_tablet(tablet_id) from None
    return await describe(call)


async def move(call: Call) -> Any:
    tablet_id = find_tablet(call, call.path["tablet"]).tablet_id
    try:
        await call.owner.move_channel(tablet_id, call.path["channel"], call.body["group"])
    except TabletUnknown:
        raise unknown_tablet(tablet_id) from None
    except MoveRefused as refusal:
        raise Problem(
            409, "MOVE_REFUSED", str(refusal), f"GET /v1/tablets/{tablet_id} shows its channels and their pools."
        ) from None
    return await describe(call)


ROUTES = (
    Route(
        "POST", "/v1/tablets/{tablet}/restart",
        "Start a tablet anew, one generation later; its clients are told to look for it and find it again", restart,
        TABLET, body=object_of({}),
    ),
    Route(
        "POST", "/v1/tablets/{tablet}/channels/{channel}",
        "Let a channel write to another blob group from the tablet's next start on; old blobs stay where they are",
        move, TABLET, body=object_of({"group": COUNT}),
    ),
)  # fmt: skip
