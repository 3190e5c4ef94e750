"""Partitions that another node runs, at the node that coordinates groups and transactions: the way to them.

The node keeps a copy of their groups' offsets, which it alone changes, in the partitions that stand for them here.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from pqbroker.pq.log.consumers import ConsumerOffset
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.protocol.control_records import EndMarker
from pqbroker.storage.ids import TabletId
from pqbroker.storage.outcome import Outcome


class PartitionAway(NamedTuple):
    """A partition of another node: its tablet, and the generation in which the tablet's offsets were copied."""

    topic_id: bytes
    tablet: TabletId
    generation: int
    number: int


class WayElsewhere(Protocol):
    """The way to the partitions of one cell that another node has open. Requests arrive in the order of the calls."""

    def commit_offsets(
        self, group_id: str, offsets: Sequence[tuple[PartitionAway, ConsumerOffset | None]]
    ) -> Outcome[None]:
        """Store offsets of a group in one commit, or delete them (None). CommitRefused; ShardLost: nobody knows."""

    def end_transaction(self, partition: PartitionAway, marker: EndMarker) -> Outcome[int]:
        """End a Kafka transaction as `PartitionServer.end_transaction` does. KafkaError, CommitRefused, ShardLost."""


class KnownElsewhere(NamedTuple):
    """A partition whose offsets are known here, though another node runs it."""

    partition: PartitionAway
    way: WayElsewhere
    end: int = 0
    """End of the partition when its offsets were copied."""


Ways = dict[PartitionServer, KnownElsewhere]
"""Partitions of other nodes whose offsets are known, by what stands for them here."""
