"""Kafka's features: levels that are supported and finalized, and changes of them."""

from typing import Any

from pqbroker.broker.ground.access import AclOperation, check_access
from pqbroker.broker.services.features.levels import FEATURES, FeatureUpdate, UpgradeType, level_of, update_levels
from pqbroker.broker.web.routing.problems import bad_request
from pqbroker.broker.web.routing.routes import Call, Route
from pqbroker.broker.web.routing.schemas import COUNT, TEXT, Schema, array_of, object_of

_BOOLEAN: Schema = {"type": "boolean"}
_FEATURE = object_of({"name": TEXT, "least": COUNT, "greatest": COUNT, "level": COUNT})
_FEATURES = object_of({"cell": TEXT, "epoch": COUNT, "features": array_of(_FEATURE)})
_EXAMPLE = {
    "cell": "0", "epoch": 1,
    "features": [{"name": "transaction.version", "least": 0, "greatest": 2, "level": 1}],
}  # fmt: skip


async def list_all(call: Call) -> Any:
    check_access(call, AclOperation.DESCRIBE)
    return _shown(call)


async def change(call: Call) -> Any:
    """Set levels as `kafka-features` does; a level below the one now needs `downgrade`."""
    check_access(call, AclOperation.ALTER)
    body = call.body
    given: dict[str, Any] = body["levels"]
    if not given:
        raise bad_request("body.levels is empty; give a level for at least one feature")
    is_lower = body.get("downgrade", False)
    kind = UpgradeType.SAFE_DOWNGRADE if is_lower else UpgradeType.UPGRADE
    updates = []
    for name, level in given.items():
        if isinstance(level, bool) or not isinstance(level, int):
            raise bad_request(f"body.levels.{name[:100]} is {level!r}"[:300])
        updates.append(FeatureUpdate(name, level, kind))
    await update_levels(call, updates, validate_only=body.get("dry_run", False))
    return _shown(call)


def _shown(call: Call) -> Any:
    return {
        "cell": call.cell.name,
        "epoch": call.node.cell.current.scheme.features_epoch,
        "features": [
            {"name": name, "least": least, "greatest": greatest, "level": level_of(call.node, name)}
            for name, (least, greatest) in FEATURES.items()
        ],
    }


ROUTES = (
    Route(
        "GET", "/v1/features", "List Kafka's features that this broker has, with their levels", list_all, _FEATURES,
        example=_EXAMPLE,
    ),
    Route(
        "PATCH", "/v1/features", "Set levels of features, all or none; clients use them from their next connection on",
        change, _FEATURES,
        body=object_of({"levels": {"type": "object"}}, {"downgrade": _BOOLEAN, "dry_run": _BOOLEAN}),
        body_example={"levels": {"transaction.version": 1}, "downgrade": True}, example=_EXAMPLE,
    ),
)  # fmt: skip
