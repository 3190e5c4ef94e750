"""Nodes that lead a partition, coordinate a group or run a cell: the one place that names them.

A broker of one node runs everything there. Of several nodes the first one runs the system cell and coordinates all
groups.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.storage.ids import CellId

NO_NODE: Final = -1
"""Stands where no node leads."""


class Leaders:
    """The nodes of the cluster and what each of them runs, as the node `own` knows it; nodes by their ids."""

    def __init__(self, own: int, nodes: Sequence[int] = ()) -> None:
        """`nodes`: ids of several nodes, the one with the system cell first."""
        self.own = own
        self.nodes = nodes or (own,)
        """All nodes, whether they serve now or are started again."""

    @property
    def controller(self) -> int:
        """The node that decides what the cluster looks like: the one that runs the system cell."""
        return self.nodes[0]

    def port(self, node_id: int, port: int) -> int:
        """Return the port of a node at a listener with this port: its own where the broker has one node."""
        return port if len(self.nodes) == 1 else port + 1 + self.nodes.index(node_id)

    def of_partition(self, partition: PartitionServer) -> int:
        """The node that a partition is read and written at; NO_NODE while its tablet is unmounted. Its leader epoch is
        the partition's own."""
        return NO_NODE if partition.is_unmounted else self.own

    def replicas(self, partition: PartitionServer) -> list[int]:
        """The nodes that have a partition's records, the one that leads it first, unmounted or not."""
        return [self.own]

    def of_group(self, group_id: str) -> int:
        """The node whose coordinators host a consumer group."""
        return self.own

    def of_cell(self, cell: CellId) -> int:
        """The node that runs a cell."""
        return self.own

    def can_have(self, replicas: Iterable[int]) -> bool:
        """Return True if a partition can be assigned to these nodes: a partition has one replica."""
        return list(replicas) == [self.own]
