"""Nodes that lead a partition, coordinate a group or run a cell: the one place that names them.

One node runs everything today, so every answer is that node.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.storage.ids import CellId

NO_NODE: Final = -1
"""Stands where no node leads."""


class Leaders:
    """The nodes of the cluster and what each of them runs, as the node `own` knows it; nodes by their ids."""

    def __init__(self, own: int) -> None:
        self.own = own

    @property
    def nodes(self) -> Sequence[int]:
        """All nodes that serve."""
        return (self.own,)

    @property
    def controller(self) -> int:
        """The node that decides what the cluster looks like: the one that runs the system cell."""
        return self.own

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
