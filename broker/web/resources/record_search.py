"""Looking through the records of a partition, batch by batch, within bounds. Batches are decoded in a thread."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from pqbroker.broker.ground.looks import Look
from pqbroker.broker.web.resources.contents import size_of
from pqbroker.pq.log.batch_run import Batches
from pqbroker.pq.log.producer_transactions import AbortedBatches
from pqbroker.pq.reading.query import READ_COMMITTED, Isolation, ReadQuery, visible_end
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.protocol.records import Record, batches, decode_records
from pqbroker.storage.engine import Buffer

READ_BYTES = 1 << 20
"""Bytes of stored batches taken at once; at least one batch."""
RECORD_OVERHEAD_BYTES = 32
"""Bytes counted for an empty record, since a search through many is work too."""


@dataclass(frozen=True, slots=True)
class Sought:
    """The records looked for, how one is shown, how much is shown (`records_max`, `answer_bytes`) and looked at
    (`look_bytes`), and which records are seen."""

    show: Callable[[Record], Any]
    key: bytes | None
    records_max: int
    answer_bytes: int
    look_bytes: int
    isolation: Isolation = READ_COMMITTED


class Search:
    """The records found so far, and what may still be looked at, from `next_offset` on."""

    __slots__ = ("_answer_bytes", "_look_bytes", "_sought", "next_offset", "shown", "shown_bytes")

    def __init__(self, sought: Sought, first: int) -> None:
        self._sought = sought
        self._answer_bytes = sought.answer_bytes
        self._look_bytes = sought.look_bytes
        self.next_offset = first
        self.shown: list[Any] = []
        self.shown_bytes = 0

    @property
    def wants_more(self) -> bool:
        return len(self.shown) < self._sought.records_max and self._answer_bytes > 0 and self._look_bytes > 0

    async def look_through(self, partition: PartitionServer, looks: Look) -> None:
        """Look at all there is, as far as the bounds allow. KafkaError NOT_LEADER_OR_FOLLOWER, CORRUPT_MESSAGE."""
        while self.wants_more and self.is_behind(partition):
            self.next_offset = max(self.next_offset, partition.start_offset)
            async with looks:
                await self._look_at_next(partition)

    def is_behind(self, partition: PartitionServer) -> bool:
        """Return True if the partition has more to look at."""
        return self.next_offset < visible_end(partition.state, self._sought.isolation)

    async def _look_at_next(self, partition: PartitionServer) -> None:
        offset, end_offset = self.next_offset, visible_end(partition.state, self._sought.isolation)
        spans = partition.state.transactions.aborted if self._sought.isolation is READ_COMMITTED else None
        read = partition.read(ReadQuery(offset, end_offset, READ_BYTES))
        found = read if isinstance(read, Batches) else await read
        aborted = None if spans is None else AbortedBatches(spans.between(offset, found.next_offset))
        await partition.reader.decode(partial(self._decode, found.in_memory(), aborted))
        if self.wants_more:
            self.next_offset = max(self.next_offset, found.next_offset)

    def _decode(self, buffers: list[Buffer], aborted: AbortedBatches | None) -> None:
        """Runs in a thread. One batch may be larger than what may be looked at: INVALID_RECORD says so."""
        run = memoryview(b"".join(buffers))
        for position, header in batches(run):
            if not self.wants_more:
                return
            batch = run[position : position + header.size_bytes]
            if not header.is_control and (aborted is None or not aborted.has(header)):
                self._take(decode_records(batch, self._sought.look_bytes))
            if self.wants_more:
                self.next_offset = max(self.next_offset, header.last_offset + 1)

    def _take(self, records: Iterable[Record]) -> None:
        """Look at the records of a batch, from `next_offset` on."""
        sought = self._sought
        for record in records:
            if not self.wants_more:
                return
            if record.offset < self.next_offset:
                continue
            size = size_of(record)
            if sought.key is None or record.key == sought.key:
                if self.shown and size > self._answer_bytes:
                    self._answer_bytes = 0
                    return
                self._answer_bytes -= size
                self.shown_bytes += size
                self.shown.append(sought.show(record))
            self.next_offset = record.offset + 1
            self._look_bytes -= size + RECORD_OVERHEAD_BYTES
