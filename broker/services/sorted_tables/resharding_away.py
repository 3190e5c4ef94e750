"""Reshards of sorted tablets that another node runs: it plans them and fills the new tablets, the first one decides.

planned there -> ids and cells given here -> filled there -> no cell moves, no table changes -> compared there
    -> the scheme names them: one commit, which decides -> the node follows the scheme
    -> refused before that: dropped there
"""

import logging
from collections.abc import Sequence
from typing import Any

from pqbroker.broker.services.sorted_tables.tablets_away import TabletWork, tablets_away, work_away
from pqbroker.broker.services.tables.callers import TablesCaller
from pqbroker.storage.engine import CommitRefused
from pqbroker.storage.ids import CellId, TabletId
from pqbroker.tables.refusals import TableError
from pqbroker.tables.serving.resharding import ReshardPlan
from pqbroker.tables.serving.table import SortedTable

log = logging.getLogger(__name__)


def resharding_nodes(caller: TablesCaller, table: SortedTable, indexes: Sequence[int]) -> list[int | None]:
    """Return the numbers of the nodes that run these tablets; None stands for this one."""
    away = tablets_away(caller, table, indexes)
    own = [None] if sum(map(len, away.values())) < len(indexes) else []
    return [*own, *sorted(away)]


async def plan_away(
    caller: TablesCaller, table: SortedTable, node: int, indexes: Sequence[int], asked: Sequence[bytes] | int
) -> ReshardPlan:
    """Return what a reshard at another node would do. `asked`: pivots, or the count of tablets. Raises as
    `plan_reshard` and `work_away`."""
    pivots = None if isinstance(asked, int) else [pivot.hex() for pivot in asked]
    told = await work_away(
        caller, node, table, TabletWork.PLAN, **_range(table, indexes), pivots=pivots,
        count=asked if isinstance(asked, int) else 0,
    )  # fmt: skip
    try:
        planned = [bytes.fromhex(pivot) for pivot in told["pivots"]]
        return ReshardPlan(indexes[0], indexes[-1], planned, int(told["copied"]), int(told["rewritten"]))
    except (LookupError, TypeError, ValueError) as bad:
        raise TableError("NODE_SILENT", f"node {node} sent no plan: {bad!r}", "Restart the nodes.") from None


class FillingAway:
    """The `Filling` of tablets that another node runs."""

    def __init__(self, caller: TablesCaller, table: SortedTable, node: int, plan: ReshardPlan) -> None:
        self._caller = caller
        self._table = table
        self._node = node
        self._plan = plan
        self._range = _range(table, range(plan.first, plan.last + 1))
        self._filled: dict[str, Any] = {}

    def place(self, count: int) -> Sequence[CellId]:
        node = self._caller.node
        return node.cell.current.cells.place(
            self._table.record.bundle, count, lambda cell: node.leaders.other_node(cell) == self._node
        )

    async def fill(self, tablets: Sequence[TabletId], homes: Sequence[CellId]) -> None:
        pivots = [pivot.hex() for pivot in self._plan.pivots]
        rows = await self._work(TabletWork.FILL, **self._range, pivots=pivots, tablets=tablets, homes=homes)
        self._filled = {"rows": rows, "tablets": tablets, "homes": homes}

    async def check(self) -> None:
        await self._work(TabletWork.CHECK, **self._range, **self._filled)

    async def drop(self, tablets: Sequence[TabletId], homes: Sequence[CellId]) -> None:
        try:
            await self._work(TabletWork.DROP, tablets=tablets, homes=homes)
        except (TableError, CommitRefused) as refusal:
            log.warning("new tablets of %s stay at node %d: %s", self._table.record.name, self._node, refusal)

    async def _work(self, work: TabletWork, **asked: Any) -> Any:
        return await work_away(self._caller, self._node, self._table, work, **asked)


def _range(table: SortedTable, indexes: Sequence[int]) -> dict[str, Any]:
    """Return the tablets of a range by their ids."""
    return {"first": table.record.tablets[indexes[0]], "last": table.record.tablets[indexes[-1]]}
