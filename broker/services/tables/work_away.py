"""Work on tablets of tables that another node runs, as the first one asks for it, and which tablets these are."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from pqbroker.broker.ground.other_nodes import NodeSilent
from pqbroker.broker.services.tables.callers import TablesCaller
from pqbroker.storage.engine import CommitRefused
from pqbroker.storage.ids import CellId, TabletId
from pqbroker.tables.refusals import TableError

_SILENT_CURE: Final = (
    "Try again; `pqbroker cell list` shows the cells of each node, the log says why it does not answer."
)


class TabletsOfTable(Protocol):
    """The tablets of a table by their indexes, as the record of an ordered or a sorted one has them."""

    @property
    def name(self) -> str: ...
    @property
    def tablets(self) -> Sequence[TabletId]: ...
    def cell_of(self, tablet: int, /) -> CellId: ...


def at_other_nodes(caller: TablesCaller, record: TabletsOfTable, indexes: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield node and index of each of these tablets that another node runs; nothing at a node that is not the first
    one. A table may have thousands, and they live in a few cells."""
    if caller.node.others() is None:
        return
    nodes: dict[CellId, int | None] = {}
    for index in indexes:
        cell = record.cell_of(index)
        if cell not in nodes:
            nodes[cell] = caller.node.leaders.other_node(cell)
        node = nodes[cell]
        if node is not None:
            yield node, index


def indexes_of(record: TabletsOfTable, tablets: Iterable[int]) -> list[int]:
    """Return the indexes of tablets by their ids. TableError WRONG_STATE: the table was resharded."""
    known = {tablet: index for index, tablet in enumerate(record.tablets)}
    try:
        return [known[TabletId(tablet)] for tablet in tablets]
    except KeyError as unknown:
        text = f"{record.name} was resharded meanwhile: it has no tablet {unknown.args[0]}"
        raise TableError("WRONG_STATE", text, "List its tablets, and give the command again.") from None


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
