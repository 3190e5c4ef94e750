"""Sorted tables whose creation the store refuses."""

import pytest

from pqbroker.broker.ground.access import DirectCaller
from pqbroker.broker.node.parts import Node
from pqbroker.broker.services.sorted_tables.making import NewSortedTable, create_sorted
from pqbroker.conf.broker import BrokerSettings
from pqbroker.storage.engine import CommitRefused
from tests.simulation.node import SimulatedNode

SCHEMA = [{"name": "id", "type": "int64", "sort_order": "ascending"}, {"name": "n", "type": "int64"}]


@pytest.mark.parametrize("refusals", [1, 2, 3])
async def test_a_table_that_could_not_be_created_leaves_its_name_free(refusals: int) -> None:
    """Its tablets are refused, then the removal of its record, then that again."""
    node = SimulatedNode(BrokerSettings())
    await node.start()
    caller: DirectCaller[Node] = DirectCaller(node.node)
    new = NewSortedTable("//t", SCHEMA)
    for number in range(refusals):
        node.engine.faults.refuse_next(after=1 + number)
    with pytest.raises(CommitRefused):
        await create_sorted(caller, new)
    if refusals == 3:
        with pytest.raises(CommitRefused):
            await create_sorted(caller, new)
    table = await create_sorted(caller, new)
    assert list(node.owner.current.sorted_tables.tables) == ["t"]
    assert table.record.name == "t"
    await node.stop()
