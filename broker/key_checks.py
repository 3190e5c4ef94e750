"""Batches for compacted topics, looked into before they are written: each of their records needs a key.

A long batch is looked into by a thread, and what comes after it for its partition waits, so that order stays.

partition  event                        next
idle       a long batch                 waiting: a thread looks into it
idle       any other                    written or refused in the same call
waiting    any batch                    waits behind the others
waiting    the first is looked into     written or refused, and those behind it up to the next long one; idle after all

What waits is bounded by what connections may have in work (pqbroker.inflight.bytes.max).
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from pqbroker.protocol.errors import KafkaError
from pqbroker.protocol.records import BatchHeader, check_keys
from pqbroker.storage.outcome import Outcome

if TYPE_CHECKING:
    from pqbroker.pq.cycle import Written
    from pqbroker.pq.partition_server import PartitionServer

LONG_RECORDS: Final = 200
LONG_BYTES: Final = 32_768
LONG_COMPRESSED_BYTES: Final = 1024
"""What is less than these takes less time to look into than to hand to a thread: some tenths of a millisecond."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """One batch whose turn has not come."""

    records: memoryview
    header: BatchHeader
    needs_keys: bool
    outcome: "Outcome[Written]" = field(default_factory=Outcome)


class KeyChecks:
    """The batches that wait, by partition; empty but for long batches of compacted topics."""

    def __init__(self) -> None:
        self._waiting: dict[PartitionServer, deque[_Waiting]] = {}

    @property
    def are_waiting(self) -> bool:
        """Whether a batch may have to wait that needs no check itself."""
        return bool(self._waiting)

    def write(
        self, partition: "PartitionServer", records: memoryview, header: BatchHeader, *, needs_keys: bool
    ) -> "Outcome[Written]":
        """Write a batch that is checked but for its keys, in its turn. KafkaError, now or as the outcome."""
        if partition not in self._waiting:
            if not needs_keys:
                return partition.write(records, header)
            if not _is_long(header):
                check_keys(records)
                return partition.write(records, header)
            self._waiting[partition] = deque()
        waiting = _Waiting(records, header, needs_keys)
        queue = self._waiting[partition]
        queue.append(waiting)
        if len(queue) == 1:
            self._look(partition, waiting)
        return waiting.outcome

    def _look(self, partition: "PartitionServer", first: _Waiting) -> None:
        looked = partition.decode(partial(check_keys, first.records))
        looked.add_done_callback(partial(self._looked, partition))

    def _looked(self, partition: "PartitionServer", looked: "asyncio.Future[None]") -> None:
        """Write what waits up to the next long batch."""
        queue = self._waiting[partition]
        _settle(partition, queue.popleft(), looked.exception())
        while queue:
            first = queue[0]
            if first.needs_keys and _is_long(first.header):
                self._look(partition, first)
                return
            _settle(partition, queue.popleft(), _refusal(first) if first.needs_keys else None)
        del self._waiting[partition]


def _settle(partition: "PartitionServer", waiting: _Waiting, error: BaseException | None) -> None:
    if error is not None:
        waiting.outcome.set_exception(error)
    else:
        partition.write(waiting.records, waiting.header).add_done_callback(partial(_pass_on, waiting.outcome))


def _pass_on(outcome: "Outcome[Written]", written: "Outcome[Written]") -> None:
    error = written.exception()
    if error is not None:
        outcome.set_exception(error)
    else:
        outcome.set_result(written.result())


def _refusal(waiting: _Waiting) -> KafkaError | None:
    try:
        check_keys(waiting.records)
    except KafkaError as error:
        return error
    return None


def _is_long(header: BatchHeader) -> bool:
    most = LONG_COMPRESSED_BYTES if header.codec else LONG_BYTES
    return header.record_count > LONG_RECORDS or header.size_bytes > most
