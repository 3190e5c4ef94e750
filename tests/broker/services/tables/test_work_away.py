"""Tablets of a table by their ids and their nodes: a table may have twenty thousand, and one turn looks at all."""

import time
from types import SimpleNamespace
from typing import Any

import pytest

from pqbroker.broker.services.tables.work_away import at_other_nodes, indexes_of
from pqbroker.storage.ids import CellId, TabletId
from pqbroker.storage.tablets.scheme_state import TopicRecord
from pqbroker.tables.refusals import TableError

MANY = 20_000
TURN_S = 0.5
"""Much more than it takes; a look through all tablets for each takes seconds."""
RECORD = TopicRecord(
    "t", bytes(16), MANY, 1, tuple(map(TabletId, range(70, 70 + MANY))), {}, 0, None,
    tuple(CellId(index % 3) for index in range(MANY)),
)  # fmt: skip


class Nodes:
    """The leaders of a broker of two nodes: cell 2 is at the second."""

    def __init__(self) -> None:
        self.asked = 0

    def other_node(self, cell: CellId) -> int | None:
        self.asked += 1
        return 2 if cell == 2 else None


def _caller(nodes: Nodes, others: object) -> Any:
    return SimpleNamespace(node=SimpleNamespace(leaders=nodes, others=lambda: others))


def test_tablets_at_other_nodes_are_found_by_their_cells() -> None:
    nodes = Nodes()
    found = list(at_other_nodes(_caller(nodes, object()), RECORD, range(MANY)))
    assert found == [(2, index) for index in range(2, MANY, 3)]
    assert nodes.asked == 3
    assert list(at_other_nodes(_caller(nodes, None), RECORD, range(MANY))) == []


def test_indexes_of_many_tablets_are_found_in_one_walk() -> None:
    begun_s = time.thread_time()
    assert indexes_of(RECORD, reversed(RECORD.tablets)) == [*reversed(range(MANY))]
    assert time.thread_time() - begun_s < TURN_S


def test_a_tablet_that_is_gone_is_refused() -> None:
    with pytest.raises(TableError, match="t was resharded meanwhile: it has no tablet 69"):
        indexes_of(RECORD, [70, 69])
