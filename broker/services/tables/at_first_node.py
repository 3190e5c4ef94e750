"""Ordered tables of which several nodes run tablets: what looks at all tablets at once needs them at the first node."""

from pqbroker.broker.services.leaders import cells_of
from pqbroker.broker.services.tables.callers import TablesCaller
from pqbroker.pq.serving.topic import Topic
from pqbroker.tables.paths import table_path
from pqbroker.tables.refusals import TableError


def check_all_here(caller: TablesCaller, topic: Topic) -> None:
    """TableError TABLETS_OF_OTHER_NODES where other nodes run tablets of a topic: their rows are not known here."""
    if caller.node.others() is None:
        return
    found = ((cell, caller.node.leaders.other_node(cell)) for cell in sorted(cells_of(topic)))
    away = {cell: node for cell, node in found if node is not None}
    if away:
        nodes = ", ".join(map(str, sorted({*away.values()})))
        path, cells = table_path(topic.record.name), ", ".join(map(str, away))
        text = f"tablets of {path} are at other nodes ({nodes}), and such a request needs all at the first node"
        cure = f"Move these cells there, each with `pqbroker cell move CELL --node 1`: {cells}."
        raise TableError("TABLETS_OF_OTHER_NODES", text, cure)
