"""Leaders of partitions among several nodes: by the homes of their cells, and only where a node has them open."""

from types import SimpleNamespace
from typing import Any, cast

from pqbroker.broker.services.leaders import NO_EPOCH, NO_NODE, Leaders
from pqbroker.storage.bundles.cell_homes import CellHome
from pqbroker.storage.ids import CellId, TabletId
from pqbroker.storage.tablets.scheme_state import TopicRecord

TABLETS = tuple(map(TabletId, (70, 71, 72)))
TOPIC: Any = SimpleNamespace(
    record=TopicRecord("t", bytes(16), 6, 2, TABLETS, {}, 0, None, tuple(map(CellId, (0, 1, 2))))
)


def _partition(index: int, *, is_unmounted: bool = False) -> Any:
    return SimpleNamespace(index=index, is_unmounted=is_unmounted, leader_epoch=5)


def test_of_several_nodes_the_cells_home_leads_with_the_epoch_that_it_has_named() -> None:
    elsewhere: dict[CellId, dict[TabletId, int]] = {}
    homes = {CellId(cell): CellHome(CellId(cell), node, node) for cell, node in ((1, 1), (2, 2))}
    leaders = Leaders(7, (7, 8), elsewhere, lambda: homes)
    assert [leaders.of_partition(TOPIC, _partition(index)) for index in range(4)] == [(7, 5)] * 4
    assert leaders.of_partition(TOPIC, _partition(4)) == (NO_NODE, NO_EPOCH)
    elsewhere[CellId(2)] = {TabletId(72): 3}
    assert leaders.of_partition(TOPIC, _partition(5)) == (8, 3)
    assert leaders.of_partition(TOPIC, _partition(5, is_unmounted=True)) == (NO_NODE, 3)
    assert [leaders.replicas(TOPIC, _partition(index)) for index in (0, 5)] == [[7], [8]]
    assert leaders.foreign_cell(TOPIC) == 2
    assert leaders.foreign_cell(TOPIC, (0, 3)) is None
    assert leaders.foreign_cell(TOPIC, (3, 4)) == 2
    assert [leaders.only_node(TOPIC, asked) for asked in ((4, 5), (0, 4), (0, 1), (), (9,), None)] == [2, *[None] * 5]
    homes[CellId(2)] = CellHome(CellId(2), 1, 2)
    assert leaders.foreign_cell(TOPIC) is None
    assert leaders.of_partition(TOPIC, _partition(5)) == (7, 5)
    del homes[CellId(2)]
    assert leaders.only_node(TOPIC, (4,)) is None
    assert (leaders.of_cell(CellId(2)), leaders.of_partition(TOPIC, _partition(5))[0]) == (NO_NODE, NO_NODE)


def test_partitions_that_are_not_in_service_yet_are_nobodys() -> None:
    """The record of a topic grows a turn before its partitions."""
    homes = {CellId(cell): CellHome(CellId(cell), node, node) for cell, node in ((1, 1), (2, 2))}
    for served, wanted in ((6, {1: [0, 1, 2, 3], 2: [4, 5]}), (5, {1: [0, 1, 2, 3], 2: [4]}), (3, {1: [0, 1, 2]})):
        topic: Any = SimpleNamespace(record=TOPIC.record, partitions=[*map(_partition, range(served))])
        assert Leaders(7, (7, 8), {}, lambda: homes).by_number(topic) == wanted
        assert Leaders(7).by_number(topic) == {1: [*range(served)]}


def test_each_node_has_the_port_that_is_its_number_above_the_shared_one() -> None:
    several = Leaders(8, (7, 8, 9))
    assert [several.port(node, 9092) for node in several.nodes] == [9093, 9094, 9095]
    assert (several.controller, several.of_group("g"), several.of_cell(CellId(0))) == (7, 7, 7)


def test_one_node_leads_everything_at_its_own_port() -> None:
    alone = Leaders(1)
    assert alone.of_partition(TOPIC, _partition(5)) == (1, 5)
    assert alone.of_partition(TOPIC, _partition(5, is_unmounted=True)) == (NO_NODE, 5)
    assert (alone.port(1, 9092), alone.controller, alone.of_cell(CellId(3))) == (9092, 1, 1)
    assert alone.foreign_cell(TOPIC) is None
    assert alone.only_node(TOPIC, (4,)) is None
    assert cast(Any, alone.replicas(TOPIC, _partition(0))) == [1]
