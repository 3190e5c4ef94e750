"""Query of a partition: the one question of every read, and how far a reader sees."""

from enum import Enum
from typing import Final, NamedTuple

from pqbroker.pq.log.partition import Partition


class ReadQuery(NamedTuple):
    """Whole batches from the one that holds `offset`, or follows the hole there; none that reaches `end_offset`.

    The first one comes even if it is larger than `bytes_max`, when `one_at_least`. `in_files`: large answers may stay
    in their files, since they are only sent.
    """

    offset: int
    end_offset: int
    """End of the reader's view; see `visible_end`."""
    bytes_max: int
    one_at_least: bool = True
    in_files: bool = False
    with_trimmed: bool = False
    """True to read rows before the partition's start too, as far as their blobs exist."""


class Isolation(Enum):
    """The records that a reader may see: Kafka's isolation level, with its number in requests."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1

    @classmethod
    def of(cls, level: int) -> "Isolation":
        """Return the isolation level of a request; a level that Kafka does not know is READ_UNCOMMITTED."""
        return cls.READ_COMMITTED if level == 1 else cls.READ_UNCOMMITTED


READ_UNCOMMITTED: Final = Isolation.READ_UNCOMMITTED
READ_COMMITTED: Final = Isolation.READ_COMMITTED


def visible_end(partition: Partition, isolation: Isolation) -> int:
    """The offset before which a reader sees everything: the high watermark, for READ_COMMITTED the last stable offset.

    Both are the same while no Kafka transaction is open. No other place says it but `visible_ends`.
    """
    if isolation is READ_COMMITTED and partition.transactions.open:
        return partition.stable_offset
    return partition.end_offset


def visible_ends(partition: Partition) -> tuple[int, int]:
    """The high watermark, and the last stable offset."""
    end_offset = partition.end_offset
    return end_offset, partition.stable_offset if partition.transactions.open else end_offset
