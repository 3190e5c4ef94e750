"""A rolling restart of a broker with several nodes: asked for, and looked at. Its parent process performs it."""

from typing import Any

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.ground.other_nodes import NodeSilent, OtherNodes
from pqbroker.broker.web.routing.problems import Problem
from pqbroker.broker.web.routing.routes import Call, Route
from pqbroker.broker.web.routing.schemas import COUNT, TEXT, array_of, object_of

_RESTART = object_of({"state": TEXT, "nodes": COUNT, "restarted": array_of(COUNT), "failure": TEXT})
_EXAMPLE = {"state": "running", "nodes": 3, "restarted": [3], "failure": ""}


async def begin(call: Call) -> Any:
    nodes = _nodes(call)
    try:
        return _shown(call, await nodes.restart_all())
    except NodeSilent as refused:
        raise Problem(409, "RESTART_REFUSED", str(refused), "GET /v1/restart shows how far it is.") from refused


async def show(call: Call) -> Any:
    nodes = _nodes(call)
    try:
        return _shown(call, await nodes.restart_state())
    except NodeSilent as silent:
        raise Problem(503, "NODE_SILENT", f"the parent process: {silent}", "Try again in a moment.") from silent


def _nodes(call: Call) -> OtherNodes:
    """Return the nodes of the broker. Problem where there is one."""
    nodes = call.node.others()
    if nodes is None:
        text = "this broker has one node, which cannot be restarted while it serves"
        raise Problem(409, "ONE_NODE", text, "Stop the broker and start it again, or serve with --nodes 2 or more.")
    return nodes


def _shown(call: Call, told: Any) -> dict[str, Any]:
    return {**told, "nodes": len(call.node.leaders.nodes)}


ROUTES = (
    Route(
        "POST", "/v1/restart",
        "Restart all nodes of a broker with several, one by one, while clients are served: each after others have its "
        "cells open, the next when it has them again. The first node is the last", begin, _RESTART, status=202,
        cluster=AclOperation.ALTER, example={**_EXAMPLE, "restarted": []},
    ),
    Route(
        "GET", "/v1/restart",
        "Show how far the last restart of all nodes is. `state`: idle, running, done, failed; `restarted`: nodes that "
        "have their cells again; `failure`: why the others are not restarted", show, _RESTART,
        cluster=AclOperation.DESCRIBE, example=_EXAMPLE,
    ),
)  # fmt: skip
