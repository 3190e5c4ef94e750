"""Nodes that lead a partition, coordinate a group or run a cell: the one place that names them.

A broker of one node runs everything there. Of several nodes the first one runs the system cell and coordinates all
groups.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.store_refusals import not_leader
from pqbroker.pq.serving.topic import Topic
from pqbroker.storage.bundles.cell_homes import CellHome, node_of
from pqbroker.storage.bundles.placement import Elsewhere
from pqbroker.storage.ids import CellId, TabletId

NO_NODE: Final = -1
"""Stands where no node leads."""
NO_EPOCH: Final = -1
"""Stands where the leader epoch is unknown."""


class Leaders:
    """The nodes of the cluster and what each of them runs, as the node `own` knows it; nodes by their ids."""

    def __init__(
        self, own: int, nodes: Sequence[int] = (), elsewhere: Elsewhere = MappingProxyType({}),
        homes: Callable[[], Mapping[CellId, CellHome]] = lambda: MappingProxyType({}),
    ) -> None:
        """`nodes`: ids of several nodes, the one with the system cell first; `elsewhere`: what others of them run;
        `homes`: homes of cells."""
        self.own = own
        self._homes = homes
        self._elsewhere = elsewhere
        self.nodes = nodes or (own,)
        """All nodes, whether they serve now or are started again."""

    @property
    def controller(self) -> int:
        """The node that decides what the cluster looks like: the one that runs the system cell."""
        return self.nodes[0]

    @property
    def number(self) -> int:
        """The number of this node among all."""
        return self.nodes.index(self.own) + 1

    @property
    def others(self) -> range:
        """The numbers of all nodes but the first one."""
        return range(2, len(self.nodes) + 1)

    def port(self, node_id: int, port: int) -> int:
        """Return the port of a node at a listener with this port: its own where the broker has one node."""
        return port if len(self.nodes) == 1 else port + 1 + self.nodes.index(node_id)

    def of_partition(self, topic: Topic, partition: PartitionServer) -> tuple[int, int]:
        """Return the node that a partition is read and written at, and its leader epoch; NO_NODE while its tablet is
        unmounted, or not open at its node."""
        cell = self._cell(topic, partition)
        if cell is None:
            return NO_NODE if partition.is_unmounted else self.own, partition.leader_epoch
        generation = self._elsewhere.get(cell, {}).get(topic.record.tablet_of(partition.index))
        if generation is None:
            return NO_NODE, NO_EPOCH
        return NO_NODE if partition.is_unmounted else self.of_cell(cell), generation + topic.record.epoch_base

    def replicas(self, topic: Topic, partition: PartitionServer) -> list[int]:
        """The nodes that have a partition's records, the one that leads it first, unmounted or not."""
        cell = self._cell(topic, partition)
        return [self.own if cell is None else self.of_cell(cell)]

    def _cell(self, topic: Topic, partition: PartitionServer) -> CellId | None:
        """Return the cell of a partition that another node runs."""
        if len(self.nodes) == 1:
            return None
        cell = topic.record.cell_of(partition.index // topic.record.partitions_per_tablet)
        return None if self.of_cell(cell) == self.own else cell

    def of_group(self, group_id: str) -> int:
        """The node whose coordinators host a consumer group."""
        return self.controller

    def of_cell(self, cell: CellId) -> int:
        """The node that runs a cell; NO_NODE where none does yet."""
        number = self._number_of(cell)
        return NO_NODE if number is None else self.nodes[number - 1]

    def other_node(self, cell: CellId) -> int | None:
        """Return the number of the other node that runs a cell; None: this one does, or none does yet."""
        node = self.own if len(self.nodes) == 1 else self.of_cell(cell)
        return None if node in (self.own, NO_NODE) else self.nodes.index(node) + 1

    def _number_of(self, cell: CellId) -> int | None:
        return node_of(self._homes(), cell, len(self.nodes))

    def foreign_cell(self, topic: Topic, partitions: Iterable[int] | None = None) -> CellId | None:
        """Return a cell with some of these partitions, or of all, that this node does not run; None: it runs all."""
        if len(self.nodes) == 1:
            return None
        return next((cell for cell in sorted(cells_of(topic, partitions)) if self.of_cell(cell) != self.own), None)

    def nodes_of(self, topic: Topic) -> set[int]:
        """Return the nodes that run partitions of a topic; NO_NODE among them while none runs some of them."""
        return {self.own} if len(self.nodes) == 1 else {self.of_cell(cell) for cell in cells_of(topic)}

    def by_number(self, topic: Topic, partitions: Iterable[int] | None = None) -> dict[int, list[int]]:
        """Return these partitions of a topic, or all that are in service, by the number of the node that runs them,
        this one first; unknown ones are this one's to refuse. KafkaError NOT_LEADER_OR_FOLLOWER while no node runs some
        of them."""
        own = self.number
        indexes = range(len(topic.partitions)) if partitions is None else partitions  # the record grows first
        if len(self.nodes) == 1:
            return {own: [*indexes]}
        record, numbers = topic.record, {cell: self._number_of(cell) for cell in cells_of(topic)}
        found: dict[int, list[int]] = {}
        for index in indexes:
            is_known = index < record.partitions
            number = numbers[record.cell_of(index // record.partitions_per_tablet)] if is_known else own
            if number is None:
                raise not_leader()
            found.setdefault(number, []).append(index)
        return dict(sorted(found.items(), key=lambda part: (part[0] != own, part[0])))

    def only_node(self, topic: Topic, partitions: Iterable[int] | None = None) -> int | None:
        """Return the number of the one other node that runs these partitions, or all of the topic; None: this one runs
        some of them, or several nodes do, or none."""
        return None if len(self.nodes) == 1 else self.only_node_of(cells_of(topic, partitions))

    def only_node_of(self, cells: Iterable[CellId]) -> int | None:
        """Return the number of the one other node that runs all these cells; None: this one runs some of them, or
        several nodes do, or none."""
        nodes = {self.of_cell(cell) for cell in cells} or {self.own}
        only = nodes.pop()
        return None if nodes or only in (self.own, NO_NODE) else self.nodes.index(only) + 1

    def node_with(self, tablet: TabletId) -> int | None:
        """Return the number of the other node that runs a tablet; None: none does, as far as this node knows."""
        cell = next((cell for cell, tablets in self._elsewhere.items() if tablet in tablets), None)
        return None if cell is None else self.other_node(cell)

    def can_have(self, replicas: Iterable[int]) -> bool:
        """Return True if a partition can be assigned to these nodes: a partition has one replica."""
        return list(replicas) == [self.own]


def cells_of(topic: Topic, partitions: Iterable[int] | None = None) -> set[CellId]:
    """Return the cells of these partitions of a topic, or of all."""
    record = topic.record
    if partitions is None:
        return {record.cell_of(number) for number in range(len(record.tablets))}
    return {record.cell_of(index // record.partitions_per_tablet) for index in partitions if index < record.partitions}
