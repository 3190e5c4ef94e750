"""Connections of Kafka clients: who they are, what they have asked for, and how much went over them."""

from collections.abc import Mapping
from typing import Any

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.ground.client_connections import ConnectionFacts
from pqbroker.broker.web.routing.routes import LIMIT, Call, Parameter, Route
from pqbroker.broker.web.routing.schemas import COUNT, TEXT, array_of, nullable, object_of

_CONNECTION = object_of(
    {
        "id": COUNT, "client_id": nullable(TEXT), "address": TEXT, "listener": TEXT, "principal": TEXT,
        "apis": array_of(TEXT), "bytes_in": COUNT, "bytes_out": COUNT, "idle_ms": COUNT, "requests": COUNT,
    }
)  # fmt: skip


async def list_connections(call: Call) -> Any:
    page, has_more = call.page(call.node.connections.after(call.query.get("after", 0), call.limit() + 1))
    return {
        "cell": call.cell.name,
        "connections": [_show(number, facts, call.node.api_names) for number, facts in page],
        "next": page[-1][0] if has_more else None,
    }


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
    }


ROUTES = (
    Route(
        "GET", "/v1/connections", "List connections of Kafka clients, the oldest first", list_connections,
        object_of({"cell": TEXT, "connections": array_of(_CONNECTION), "next": nullable(COUNT)}),
        (Parameter("after", COUNT, "List those behind this id: `next` of the answer before."), LIMIT),
        cluster=AclOperation.DESCRIBE,
        example={
            "cell": "0",
            "connections": [
                {
                    "id": 3, "client_id": "billing", "address": "127.0.0.1:40112", "listener": "PLAINTEXT",
                    "principal": "User:ANONYMOUS", "apis": ["Produce", "Metadata", "ApiVersions"], "bytes_in": 5120,
                    "bytes_out": 880, "idle_ms": 12, "requests": 0,
                }
            ],
            "next": None,
        },
    ),
)  # fmt: skip
