"""Health of the node for supervisors (`/health`), and its readiness to take requests for load balancers (`/ready`).

Neither waits for anything: both answer whatever other connections do.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from pqbroker.broker.services.cells.cell_owner import OpenCell
from pqbroker.broker.services.cells.data_cells import READING_ONLY
from pqbroker.broker.web.routing.node import WebNode

Health = Callable[[], tuple[int, Any]]
"""Status and document."""
DAMAGES_SHOWN = 20
"""Places that /health names; the log and `pqbroker doctor` name all."""
PATHS = ("/health", "/ready")


def health_answers(node: WebNode) -> Mapping[str, Health]:
    """Return the answers by path."""
    return dict(zip(PATHS, (partial(_health, node), partial(_ready, node)), strict=True))


def status_of(node: WebNode) -> str:
    """Return the state of the system cell in a word or two."""
    if not node.cell.is_open:
        return "cell lost"
    cell = node.cell.current.cell
    if cell.quarantine.damages:
        return "damaged"
    return READING_ONLY if cell.reading_only else "ok"


def reading_only_cells(opened: OpenCell) -> dict[str, str]:
    """Return the cause with its cure, by cell, of those that are open for reading only."""
    return {str(cell): host.cell.reading_only for cell, host in opened.cells.hosts() if host.cell.reading_only}


def _health(node: WebNode) -> tuple[int, Any]:
    """200 while the cell is open, 503 while it is not.

    A cell that is served in part, or open for reading only, is open: another start would find it as it is.
    """
    is_open = node.cell.is_open
    damages = node.cell.current.cell.quarantine.damages
    state = _state(node, status_of(node))
    if causes := reading_only_cells(node.cell.current):
        state["reading_only"] = causes
    if damages:
        state["unreadable"] = sorted(damages)[:DAMAGES_SHOWN]
    return 200 if is_open else 503, state


def _ready(node: WebNode) -> tuple[int, Any]:
    """200 while new requests are served: not while the cell is opened again, nor once the node stops.

    Nor while the system cell is open for reading only: no write is taken then and no group is coordinated, so that a
    load balancer that has another node should send requests there. A further cell alone concerns its topics only.
    """
    if not node.cell.is_open:
        return 503, _state(node, "cell lost")
    if node.cell.current.coordinators.is_closed:
        return 503, _state(node, "stopping")
    is_reading_only = bool(node.cell.current.cell.reading_only)
    state = _state(node, READING_ONLY if is_reading_only else "ready")
    if causes := reading_only_cells(node.cell.current):
        state["reading_only"] = causes
    return 503 if is_reading_only else 200, state


def _state(node: WebNode, status: str) -> dict[str, Any]:
    return {"status": status, "node": node.settings.node_id, "cluster": node.cluster_id}
