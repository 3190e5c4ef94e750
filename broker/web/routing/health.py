"""Health of the node for supervisors (`/health`), and its readiness to take requests for load balancers (`/ready`).

Neither waits for anything: both answer whatever other connections do.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from pqbroker.broker.services.health.conditions import NodeStatus
from pqbroker.broker.web.routing.node import WebNode

HealthAnswer = Callable[[], tuple[int, Any]]
"""Status and document."""
PATHS: Final = ("/health", "/ready")
_UNHEALTHY: Final = frozenset((NodeStatus.CELL_LOST,))
_UNREADY: Final = frozenset((NodeStatus.CELL_LOST, NodeStatus.STOPPING))


def health_answers(node: WebNode) -> Mapping[str, HealthAnswer]:
    """Return the answers by path.

    /health is 503 where another start may help: while the system cell is lost. /ready is 503 also once the node
    stops. Everything else is 200 with the status `degraded`: a restart or another route would find it as it is.
    """
    return dict(zip(PATHS, (partial(_answer, node, _UNHEALTHY), partial(_answer, node, _UNREADY)), strict=True))


def _answer(node: WebNode, bad: frozenset[NodeStatus]) -> tuple[int, Any]:
    document = node.health.document(node)
    status = NodeStatus(document["status"])
    return 503 if status in bad else 200, {**document, "node": node.settings.node_id, "cluster": node.cluster_id}
