"""Connections of Kafka clients, one by one and by client: who they are, what they have asked for, what they cost."""

from collections.abc import Generator, Mapping, Sequence
from typing import Any, Final

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.ground.client_connections import ConnectionFacts
from pqbroker.broker.web.routing.every_node import ask_others, merged_page, nowhere_else
from pqbroker.broker.web.routing.problems import bad_request
from pqbroker.broker.web.routing.routes import LIMIT, Call, Parameter, Route
from pqbroker.broker.web.routing.schemas import COUNT, SHOWN, TEXT, Schema, array_of, nullable, object_of

_NUMBER: Schema = {"type": "number"}
_CONNECTION = object_of(
    {
        "id": COUNT, "client_id": nullable(TEXT), "address": TEXT, "listener": TEXT, "principal": TEXT,
        "apis": array_of(TEXT), "bytes_in": COUNT, "bytes_out": COUNT, "idle_ms": COUNT, "requests": COUNT,
        "begun": nullable(COUNT), "busy_ms": nullable(_NUMBER),
    }
)  # fmt: skip
_CLIENT = object_of(
    {
        "client_id": nullable(TEXT), "principal": TEXT, "connections": COUNT, "bytes_in": COUNT, "bytes_out": COUNT,
        "requests": COUNT, "begun": COUNT, "busy_ms": _NUMBER,
    }
)  # fmt: skip
_SORTS: Final = ("connections", "bytes_in", "bytes_out", "requests", "begun", "busy_ms")
_CONNECTIONS_AT_ONCE: Final = 200
"""Connections that are summed up before the loop's other work has its turn."""
_CLIENT_ID_SHOWN: Final = 200
"""Characters of a client id in the list of clients."""


async def list_connections(call: Call) -> Any:
    if call.query.get("measure", False):
        call.node.connections.measure()
    count, own = len(call.node.leaders.nodes), call.node.leaders.number - 1
    behind = max(call.query.get("after", 0) - own, 0) // count
    page, has_more = call.page(call.node.connections.after(behind, call.limit() + 1))
    shown = [_show(number * count + own, facts, call.node.api_names) for number, facts in page]
    rows, next_ = await merged_page(call, _LIST, (shown, has_more), lambda told: told["connections"])
    return {"cell": call.cell.name, "connections": rows, "next": next_}


def _show(number: int, facts: ConnectionFacts, names: Mapping[int, str]) -> dict[str, Any]:
    return {
        "id": number,
        "client_id": facts.client_id,
        "address": str(facts.address),
        "listener": facts.listener,
        "principal": facts.principal,
        "apis": [name for key, name in sorted(names.items()) if facts.apis >> key & 1],
        "bytes_in": facts.bytes_in,
        "bytes_out": facts.bytes_out,
        "idle_ms": int(1000 * facts.idle_s),
        "requests": facts.requests,
        "begun": facts.begun,
        "busy_ms": None if facts.busy_s is None else round(1000 * facts.busy_s, 3),
    }


async def list_clients(call: Call) -> Any:
    """Sum up connections by client id and principal; a client is measured from the first look on."""
    order: str = call.query.get("sort", "busy_ms")
    if order not in _SORTS:
        raise bad_request(f"sort is {order[:SHOWN]!r}; give one of {', '.join(_SORTS)}")
    call.node.connections.measure()
    clients = await call.node.turns.finish(_clients(call))
    for told in await ask_others(call, _CLIENTS, {"limit": call.node.settings.http_items_max}):
        _add(clients, told["clients"])
    clients.sort(key=lambda client: (-client[order], client["client_id"] or "", client["principal"]))
    page, _ = call.page(clients)
    return {"cell": call.cell.name, "clients": page, "total": len(clients)}


def _clients(call: Call) -> Generator[None, None, list[dict[str, Any]]]:
    found: dict[tuple[str | None, str], dict[str, Any]] = {}
    behind = 0
    while some := call.node.connections.after(behind, _CONNECTIONS_AT_ONCE):
        behind = some[-1][0]
        for _, facts in some:
            _count(found.setdefault((facts.client_id, facts.principal), _client(facts)), facts)
        yield
    return list(found.values())


def _add(clients: list[dict[str, Any]], others: Sequence[Mapping[str, Any]]) -> None:
    """Add the figures of another node's clients to those with the same id and principal."""
    known = {(one["client_id"], one["principal"]): one for one in clients}
    for theirs in others:
        own = known.get((theirs["client_id"], theirs["principal"]))
        if own is None:
            clients.append({**theirs})
        else:
            own |= {name: round(own[name] + theirs[name], 3) for name in _SORTS}


def _client(facts: ConnectionFacts) -> dict[str, Any]:
    name = None if facts.client_id is None else facts.client_id[:_CLIENT_ID_SHOWN]
    return {"client_id": name, "principal": facts.principal, **dict.fromkeys(_SORTS, 0)}


def _count(client: dict[str, Any], facts: ConnectionFacts) -> None:
    client["connections"] += 1
    client["bytes_in"] += facts.bytes_in
    client["bytes_out"] += facts.bytes_out
    client["requests"] += facts.requests
    client["begun"] += facts.begun or 0
    client["busy_ms"] = round(client["busy_ms"] + 1000 * (facts.busy_s or 0.0), 3)


_LIST = Route(
    "GET", "/v1/connections", "List connections of Kafka clients, the oldest first", list_connections,
    object_of({"cell": TEXT, "connections": array_of(_CONNECTION), "next": nullable(COUNT)}),
    (
        Parameter("after", COUNT, "List those behind this id: `next` of the answer before."), LIMIT,
        Parameter(
            "measure", {"type": "boolean"},
            "Measure what requests cost for the next 15 seconds: `begun` and `busy_ms`, which are null else.",
        ),
    ),
    cluster=AclOperation.DESCRIBE,
    example={
        "cell": "0",
        "connections": [
            {
                "id": 3, "client_id": "billing", "address": "127.0.0.1:40112", "listener": "PLAINTEXT",
                "principal": "User:ANONYMOUS", "apis": ["Produce", "Metadata", "ApiVersions"], "bytes_in": 5120,
                "bytes_out": 880, "idle_ms": 12, "requests": 0, "begun": 14, "busy_ms": 2.25,
            }
        ],
        "next": None,
    },
    place=nowhere_else,
)  # fmt: skip
_CLIENTS = Route(
    "GET", "/v1/clients",
    "List Kafka clients by what they cost, the dearest first: connections with one client id and principal "
    "together. `requests` are in work; `begun` and `busy_ms` (processor time of the event loop, in its "
    "beginning) rise while somebody looks, and begin again after 15 seconds without a look",
    list_clients, object_of({"cell": TEXT, "clients": array_of(_CLIENT), "total": COUNT}),
    (Parameter("sort", {"type": "string", "enum": list(_SORTS)}, "List the first by this."), LIMIT),
    cluster=AclOperation.DESCRIBE,
    example={
        "cell": "0",
        "clients": [
            {
                "client_id": "billing", "principal": "User:ANONYMOUS", "connections": 2, "bytes_in": 5120,
                "bytes_out": 880, "requests": 1, "begun": 14, "busy_ms": 2.25,
            }
        ],
        "total": 1,
    },
    place=nowhere_else,
)  # fmt: skip

ROUTES = (_LIST, _CLIENTS)
