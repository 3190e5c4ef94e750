"""Backups: make one of all cells while they serve. They are directories on the broker's machine; nothing lists them."""

from dataclasses import asdict
from typing import Any

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.web.routing.problems import Problem
from pqbroker.broker.web.routing.routes import Call, Route
from pqbroker.broker.web.routing.schemas import COUNT, TEXT, object_of
from pqbroker.storage.engine import BackupRefused, EngineCannot

_CURE = "pqbroker.backup.dir says where backups go; see docs/operate.md."


async def make(call: Call) -> Any:
    try:
        cells = call.node.cell.current.others
        return {"cell": call.cell.name, **asdict(await cells.back_up(call.body["name"], call.node.others()))}
    except EngineCannot as cannot:
        raise Problem(501, "ENGINE_CANNOT", str(cannot), cannot.cure) from cannot
    except BackupRefused as refusal:
        raise Problem(409, "BACKUP_REFUSED", str(refusal), _CURE) from refusal


ROUTES = (
    Route(
        "POST", "/v1/backups",
        "Copy what each cell holds to a new directory below pqbroker.backup.dir; answers when it is whole",
        make,
        object_of(
            {"cell": TEXT, "directory": TEXT, "commit": COUNT, "files": COUNT, "linked_bytes": COUNT,
             "copied_bytes": COUNT}
        ),
        body=object_of({"name": TEXT}), status=201, cluster=AclOperation.ALTER,
    ),
)  # fmt: skip
