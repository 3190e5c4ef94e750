"""Whether the node is well, for supervisors (`/health`), and whether it takes requests, for load balancers (`/ready`).

Neither waits for anything: both answer whatever other connections do.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from pqbroker.broker.web.routing.node import WebNode

Health = Callable[[], tuple[int, Any]]
"""Status and document."""
DAMAGES_SHOWN = 20
"""Places that /health names; the log and `pqbroker doctor` name all."""
PATHS = ("/health", "/ready")


def health_answers(node: WebNode) -> Mapping[str, Health]:
    """By path."""
    return dict(zip(PATHS, (partial(_health, node), partial(_ready, node)), strict=True))


def _health(node: WebNode) -> tuple[int, Any]:
    """200 while the cell is open, 503 while it is not.

    A cell that is served in part is open: another start would find it as it is.
    """
    is_open = node.cell.is_open
    damages = node.cell.current.cell.quarantine.damages
    status = ("damaged" if damages else "ok") if is_open else "cell lost"
    state = _state(node, status)
    if damages:
        state["unreadable"] = sorted(damages)[:DAMAGES_SHOWN]
    return 200 if is_open else 503, state


def _ready(node: WebNode) -> tuple[int, Any]:
    """200 while new requests are served: not while the cell is opened again, nor once the node stops."""
    if not node.cell.is_open:
        return 503, _state(node, "cell lost")
    if not node.cell.current.coordinators.is_serving:
        return 503, _state(node, "stopping")
    return 200, _state(node, "ready")


def _state(node: WebNode, status: str) -> dict[str, Any]:
    return {"status": status, "node": node.settings.node_id, "cluster": node.cluster_id}
