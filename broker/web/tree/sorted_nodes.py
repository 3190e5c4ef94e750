"""Nodes of sorted tables, and of their tablets under //sys; loaded where there is a sorted table."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.services.sorted_tables.attributes import set_sorted_attributes
from pqbroker.broker.services.sorted_tables.finding import every_sorted_table, find_sorted
from pqbroker.broker.web.routing.routes import Call
from pqbroker.broker.web.tables.sorted_showing import shown_sorted, shown_sorted_tablet
from pqbroker.broker.web.tree.node import TreeNode
from pqbroker.broker.web.tree.table_nodes import TableView, table_node
from pqbroker.conf.sorted_attributes import sorted_document
from pqbroker.storage.ids import CellId, TabletId
from pqbroker.tables.serving.table import SortedTable
from pqbroker.tables.sorted.attribute_checks import check_sorted_attributes


class SortedPlace(NamedTuple):
    """The place of a tablet: its table, and its number there."""

    table: SortedTable
    number: int

    @property
    def name(self) -> str:
        return self.table.record.name

    @property
    def cell(self) -> CellId:
        return self.table.record.cell_of(self.number)

    @property
    def config(self) -> dict[str, Any]:
        """Return the attributes that act in it."""
        return sorted_document(self.table.record.mounted.of_tablet(self.number))

    def shown(self, call: Call) -> dict[str, Any]:
        return _shown(call, self.table, self.number)


def sorted_node(call: Call, below: Sequence[str], name: str) -> TreeNode:
    """Return the node of a sorted table. KafkaError TOPIC_AUTHORIZATION_FAILED; TableError NO_TABLE."""
    table = find_sorted(call, AclOperation.DESCRIBE, name)

    def complete(given: Mapping[str, Any]) -> Mapping[str, Any]:
        check_sorted_attributes(given, {})
        return sorted_document(given)

    keys = [column.name for column in table.schema.keys]
    view = TableView(
        shown_sorted(table), {"id": table.record.table_id.hex(), "key_columns": keys}, range(len(table.tablets)),
        partial(_shown, call, table), complete, partial(set_sorted_attributes, call, name),
    )  # fmt: skip
    return table_node(call, below, view)


def _shown(call: Call, table: SortedTable, index: int) -> dict[str, Any]:
    """Return all that is said of a tablet; of one that another node runs that node, without statistics."""
    shown, node = shown_sorted_tablet(table, index), call.node.leaders.other_node(table.record.cell_of(index))
    return shown if node is None else {**shown, "statistics": {}, "node": node}


def sorted_names(call: Call) -> list[str]:
    """Return the names of all sorted tables that the caller may see."""
    return [table.record.name for table in every_sorted_table(call, AclOperation.DESCRIBE)]


def sorted_tablets(call: Call) -> dict[TabletId, SortedPlace]:
    """Return the tablets of all sorted tables that the caller may see."""
    return {
        tablet: SortedPlace(table, index)
        for table in every_sorted_table(call, AclOperation.DESCRIBE)
        for index, tablet in enumerate(table.record.tablets)
    }
