"""Work on tablets of tables that another node runs, as the first one asks for it."""

from collections.abc import Mapping
from typing import Any, Final

from pqbroker.broker.ground.other_nodes import NodeSilent
from pqbroker.broker.services.tables.callers import TablesCaller
from pqbroker.storage.engine import CommitRefused
from pqbroker.tables.refusals import TableError

_SILENT_CURE: Final = (
    "Try again; `pqbroker cell list` shows the cells of each node, the log says why it does not answer."
)


async def ask_for_work(caller: TablesCaller, node: int, asked: Mapping[str, Any]) -> Any:
    """Have a node do some work; return what it says. TableError as there, and NODE_SILENT; CommitRefused."""
    others = caller.node.others()
    assert others is not None, "only the first node knows tablets of others"
    try:
        told = await others.work_on_tablets(node, asked)
        if "refused" in told:
            raise CommitRefused(f"node {node}: {told['refused']}")
        if "error" in told:
            code, message, cure = map(str, told["error"])
            raise TableError(code, message, cure)
        return told["told"]
    except NodeSilent as silent:
        raise TableError("NODE_SILENT", str(silent), _SILENT_CURE) from None
    except (LookupError, TypeError, ValueError) as bad:
        text = f"node {node} sent no answer that this version knows: {bad!r}"
        raise TableError("NODE_SILENT", text, "Restart the nodes: `pqbroker cluster restart`.") from None
