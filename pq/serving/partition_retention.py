"""The oldest records of one partition: how long they are kept, and their deletion (semantics A.11)."""

from collections.abc import Callable

from pqbroker.pq.log.consumers import Consumers
from pqbroker.pq.log.partition import Partition
from pqbroker.pq.log.retention import FirstUnread, Held, why_held
from pqbroker.pq.log.trim_cycles import is_retention_due, plan_retention, plan_trim
from pqbroker.pq.log.write_cycle import Cycle
from pqbroker.pq.serving.writer import Writer
from pqbroker.pq.serving.writer_states import LOSING
from pqbroker.protocol.errors import ErrorCode, KafkaError


class PartitionRetention:
    """Deletes records in cycles of the partition's writer. KafkaError 6, 56."""

    __slots__ = ("_clock", "_consumers", "_partition", "_writer")

    def __init__(
        self, partition: Partition, consumers: Consumers, writer: Writer, clock: Callable[[], int]
    ) -> None:
        self._partition = partition
        self._consumers = consumers
        self._writer = writer
        self._clock = clock

    async def delete_before(self, offset: int) -> int:
        """Move the start offset up to `offset` (DeleteRecords); durable when it returns the start offset.

        OFFSET_OUT_OF_RANGE beyond the end offset; an offset at or before the start changes nothing.
        """
        partition = self._partition
        partition.settings.check_mounted(partition.index)
        if self._writer.state < LOSING and not 0 <= offset <= partition.end_offset:
            text = f"offset {offset} is outside [0, {partition.end_offset}]"
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, text)
        while True:
            await self._writer.perform(lambda: plan_trim(partition, max(offset, partition.start_offset), self._clock()))
            if offset <= partition.start_offset:
                return partition.start_offset

    async def retain(self) -> None:
        """Delete what retention no longer keeps, and forget producers."""
        partition = self._partition
        while partition.index not in partition.settings.closed and self._is_due():
            before = partition.start_offset
            await self._writer.perform(self._plan)
            if partition.start_offset == before:
                return

    def why_held(self) -> Held:
        """Return why the oldest data was not deleted by now."""
        partition = self._partition
        return why_held(partition.bodies, partition.head, partition.settings, self._clock(), self._first_unread())

    def read_on(self, group_id: str) -> None:
        """Note that a group has read on: what only it still needed may go."""
        topic = self._partition.settings.topic
        if topic.pq_delete_when_read and group_id in topic.pq_important_groups and self._is_due():
            self._writer.perform(self._plan)

    def _first_unread(self) -> FirstUnread:
        return self._consumers.first_unread(self._partition.settings.topic.pq_important_groups)

    def _is_due(self) -> bool:
        return is_retention_due(self._partition, self._clock(), self._first_unread())

    def _plan(self) -> Cycle:
        return plan_retention(self._partition, self._clock(), self._first_unread())
