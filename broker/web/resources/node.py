"""The facts of this node: version, addresses, cell, and how much it serves."""

import os
import platform
from typing import Any

from pqbroker import __version__
from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.services.configs.location_configs import advertised_listeners
from pqbroker.broker.web.routing.every_node import NODE, named_node
from pqbroker.broker.web.routing.routes import Call, Route
from pqbroker.broker.web.routing.schemas import COUNT, TEXT, Schema, array_of, object_of

_BOOLEAN: Schema = {"type": "boolean"}
CONDITION = object_of(
    {
        "kind": TEXT, "severity": TEXT, "place": TEXT, "since": COUNT, "affects": TEXT, "cause": TEXT, "cure": TEXT,
    }
)  # fmt: skip
"""One thing that is wrong with the node; `since` in milliseconds since 1970."""


async def describe(call: Call) -> Any:
    named_node(call)
    node, cell = call.node, call.cell
    now_ms = node.clock()
    return {
        "cell": cell.name,
        "generation": cell.generation,
        "is_open": call.node.cell.is_open,
        "cluster": node.cluster_id,
        "node": node.settings.node_id,
        "version": __version__,
        "python": platform.python_version(),
        "system": platform.system(),
        "process": os.getpid(),
        "started": node.started_ms,
        "uptime_ms": max(0, now_ms - node.started_ms),
        "durability": node.settings.durability,
        "listeners": [{"name": one.name, "address": str(one.address)} for one in node.listeners],
        "advertised": advertised_listeners(node),
        "is_test_broker": node.settings.test_door,
        "console_writes": node.settings.console_writes,
        "topics": len(list(node.cell.current.topics.names())),
        "nodes": len(node.leaders.nodes),
        "tablets": len(cell.tablets()),
        "connections": len(node.connections),
        "unreadable_places": len(cell.quarantine.damages),
        **node.health.document(node),
    }


ROUTES = (
    Route(
        "GET", "/v1/node", "Describe this node: version, addresses, cell, and how much it serves", describe,
        object_of(
            {
                "cell": TEXT, "generation": COUNT, "is_open": _BOOLEAN, "cluster": TEXT, "node": COUNT, "version": TEXT,
                "python": TEXT, "system": TEXT, "process": COUNT, "started": COUNT, "uptime_ms": COUNT,
                "durability": TEXT, "listeners": array_of(object_of({"name": TEXT, "address": TEXT})),
                "advertised": TEXT, "is_test_broker": _BOOLEAN, "console_writes": _BOOLEAN, "topics": COUNT,
                "nodes": COUNT, "tablets": COUNT, "connections": COUNT, "unreadable_places": COUNT, "status": TEXT,
                "conditions": array_of(CONDITION),
            }
        ),
        (NODE,), cluster=AclOperation.DESCRIBE, place=named_node,
        example={
            "cell": "0", "generation": 3, "is_open": True, "cluster": "q7S0Yc2bQxWl8QpEJw0n1A", "node": 1,
            "version": "0.1.0", "python": "3.12.8", "system": "Linux", "process": 812, "started": 1767225600000,
            "uptime_ms": 3600000, "durability": "fsync",
            "listeners": [{"name": "PLAINTEXT", "address": "127.0.0.1:9092"}],
            "advertised": "PLAINTEXT://127.0.0.1:9092", "is_test_broker": False,
            "console_writes": False, "topics": 4, "nodes": 1, "tablets": 7, "connections": 2, "unreadable_places": 0,
            "status": "ok", "conditions": [],
        },
    ),
)  # fmt: skip
