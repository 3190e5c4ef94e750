"""Isolation levels of Kafka in commands: which batches of a Fetch a reader of committed records leaves out."""

from collections import deque
from collections.abc import Sequence
from enum import StrEnum

from pqbroker.protocol.control_records import is_abort
from pqbroker.protocol.messages.fetch import AbortedTransaction
from pqbroker.protocol.records import BatchHeader


class ReadIsolation(StrEnum):
    """The records that a reader sees."""

    COMMITTED = "read_committed"
    UNCOMMITTED = "read_uncommitted"

    @property
    def level(self) -> int:
        """Return its number in requests."""
        return int(self is ReadIsolation.COMMITTED)


class AbortedFilter:
    """Tells aborted batches from others in one answer to a Fetch, whose batches it is shown in their order."""

    __slots__ = ("_producers", "_waiting")

    def __init__(self, transactions: Sequence[AbortedTransaction] | None) -> None:
        """`transactions`: as the answer names them; their batches end at a marker."""
        self._waiting = deque(sorted(transactions or (), key=lambda each: each.first_offset))
        self._producers: set[int] = set()

    def is_aborted(self, header: BatchHeader, batch: memoryview) -> bool:
        """Return True if the batch is of a transaction that was aborted."""
        while self._waiting and self._waiting[0].first_offset <= header.last_offset:
            self._producers.add(self._waiting.popleft().producer_id)
        if header.is_control:
            if is_abort(batch):
                self._producers.discard(header.producer_id)
            return False
        return header.is_transactional and header.producer_id in self._producers
