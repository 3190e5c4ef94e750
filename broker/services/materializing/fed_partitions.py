"""Partitions of a topic that feeds a table: where they stand, and slices of their records."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from pqbroker.pq.log.batch_run import Batches
from pqbroker.pq.log.producer_transactions import aborted_between
from pqbroker.pq.reading.query import READ_COMMITTED, ReadQuery, visible_end
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.storage.engine import Buffer

SLICE_BYTES: Final = 1 << 20
"""Stored bytes of records that a worker is given at once, about."""


class FedSpan(NamedTuple):
    """The records of a partition that may be fed now: from an offset on, to before another one."""

    partition: int
    start_offset: int
    end_offset: int


class FedSlice(NamedTuple):
    """Records of a partition up to before `end`, as batches. `aborted`: transactions that have records in them."""

    end: int
    aborted: Sequence[Sequence[int]]
    records: Sequence[Buffer]


def span_of(partition: PartitionServer) -> FedSpan:
    """Return the records that readers see."""
    return FedSpan(partition.index, partition.start_offset, visible_end(partition.state, READ_COMMITTED))


async def read_slice(partition: PartitionServer, start: int) -> FedSlice:
    """Return records from an offset on. KafkaError, StoredUnreadable, OSError."""
    end, spans = visible_end(partition.state, READ_COMMITTED), partition.state.transactions.aborted
    read = partition.read(ReadQuery(start, end, SLICE_BYTES))
    found = read if isinstance(read, Batches) else await read
    end = min(found.next_offset, end) if found.size else end
    return FedSlice(end, aborted_between(spans, start, end), found.in_memory())
