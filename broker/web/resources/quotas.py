"""Quotas of clients: show them, set and remove them."""

from collections.abc import Mapping
from typing import Any, Final

from pqbroker.broker.ground.access import CLUSTER, AclOperation, audit_change
from pqbroker.broker.services.quotas.changes import QuotaAlteration, alter_quotas, check_alteration, find_quotas
from pqbroker.broker.services.quotas.quota_rules import (
    QUOTA_CLIENT_ID,
    QUOTA_IP,
    QUOTA_USER,
    QuotaEntity,
    QuotaFilter,
    quota_entity,
)
from pqbroker.broker.web.routing.problems import bad_request
from pqbroker.broker.web.routing.routes import LIMIT, Call, Parameter, Route
from pqbroker.broker.web.routing.schemas import COUNT, TEXT, array_of, nullable, object_of

_TYPES: Final = {"user": QUOTA_USER, "client_id": QUOTA_CLIENT_ID, "ip": QUOTA_IP}


async def list_all(call: Call) -> Any:
    found = sorted(await find_quotas(call.node, QuotaFilter({}, strict=False)), key=lambda item: item[0].parts())
    after: int = call.query.get("after", 0)
    page, has_more = call.page(found[after:])
    return {
        "cell": call.cell.name,
        "quotas": [{"entity": _shown(entity), "quotas": dict(values)} for entity, values in page],
        "throttled_ms": call.node.quotas.throttled_ms,
        "unreadable": list(call.node.quotas.unreadable.values()),
        "next": str(after + len(page)) if has_more else None,
    }


async def change(call: Call) -> Any:
    given: Mapping[str, str | None] = call.body["entity"]
    entity = quota_entity([(_TYPES[kind], name) for kind, name in given.items()])
    if not call.body["quotas"]:
        raise bad_request("body.quotas names no quota; give one, or null for one that is to go")
    alteration = QuotaAlteration(entity, call.body["quotas"])
    check_alteration(call.node, alteration)
    await alter_quotas(call.node, [alteration])
    audit_change(call, AclOperation.ALTER_CONFIGS.name, str(CLUSTER), str(alteration))
    return {"cell": call.cell.name, "entity": given, "quotas": dict(call.node.quotas.entries.get(entity, {}))}


def _shown(entity: QuotaEntity) -> dict[str, str | None]:
    words = {kind: word for word, kind in _TYPES.items()}
    return {words[kind]: name for kind, name in entity.parts()}


_NUMBER: Any = {"type": "number"}
_ENTITY = object_of({}, {word: nullable(TEXT) for word in _TYPES})
_VALUES: Any = {"type": "object", "additionalProperties": _NUMBER}
_EXAMPLE = {"entity": {"user": "ann", "client_id": None}, "quotas": {"producer_byte_rate": 1048576.0}}

ROUTES = (
    Route(
        "GET", "/v1/quotas", "List quotas of users, client ids and addresses; a name of null is the default", list_all,
        object_of({
            "cell": TEXT, "quotas": array_of(object_of({"entity": _ENTITY, "quotas": _VALUES})),
            "throttled_ms": {"type": "object", "additionalProperties": COUNT}, "unreadable": array_of(TEXT),
            "next": nullable(TEXT),
        }),
        (Parameter("after", COUNT, "Number of entries to leave out: `next` of the previous answer."), LIMIT),
        cluster=AclOperation.DESCRIBE_CONFIGS,
        example={
            "cell": "0", "quotas": [_EXAMPLE], "throttled_ms": {"producer_byte_rate": 12000}, "unreadable": [],
            "next": None,
        },
    ),
    Route(
        "PATCH", "/v1/quotas", "Set quotas of a user, a client id, both, or an address; null removes one", change,
        object_of({"cell": TEXT, "entity": _ENTITY, "quotas": _VALUES}),
        body=object_of({
            "entity": _ENTITY,
            "quotas": {"type": "object", "additionalProperties": nullable(_NUMBER)},
        }),
        cluster=AclOperation.ALTER_CONFIGS, body_example=_EXAMPLE, example={"cell": "0", **_EXAMPLE},
    ),
)  # fmt: skip
