"""The staged rows of one partition: pieces, and the decisions that it is the home of (see pq/log/staged_rows.py)."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from pqbroker.pq.log.partition import Partition
from pqbroker.pq.log.row_facts import Weighed
from pqbroker.pq.log.staged_cycles import plan_drop, plan_end, plan_piece, plan_value
from pqbroker.pq.log.staged_rows import Decision, decision_range, staged_before, staged_range
from pqbroker.pq.log.write_cycle import Cycle
from pqbroker.pq.serving.writer import Writer
from pqbroker.protocol.errors import KafkaError
from pqbroker.protocol.records import read_header
from pqbroker.storage.kv.tablet import KeyValueTablet
from pqbroker.storage.unreadable import StoredUnreadable

_DROPPED_AT_ONCE = 1000


class StagedPieces:
    """Every change is durable when its call returns; KafkaError as a write's."""

    __slots__ = ("_clock", "_kv", "_partition", "_unread", "_writer", "bytes", "count", "decision_count")

    def __init__(self, partition: Partition, kv: KeyValueTablet, writer: Writer, clock: Callable[[], int]) -> None:
        self._partition = partition
        self._kv = kv
        self._writer = writer
        self._clock = clock
        found = list(kv.keys(*staged_range(partition.index)))
        sizes = [entry.size for _, entry in found]
        self._unread = {key for key, entry in found if not entry.is_inline}
        self.bytes = sum(sizes)
        """The bytes of all pieces."""
        self.count = len(sizes)
        """The number of pieces."""
        self.decision_count = sum(1 for _ in kv.keys(*decision_range(partition.index)))
        """Batches that are being written."""

    def size_of(self, key: bytes) -> int | None:
        """Bytes of a piece; None: there is no such piece."""
        entry = self._kv.entry(key)
        return None if entry is None else entry.size

    async def add(self, key: bytes, batch: memoryview) -> None:
        """Stage a checked batch."""
        await self._planned(lambda: plan_value(self._partition, key, batch, self._clock()), len(batch))
        self.bytes += len(batch)
        self.count += 1

    async def read(self, key: bytes) -> memoryview:
        """Return the rows of a piece as a batch of the caller's own. BlobCorrupt, BlobMissing, OSError."""
        (buffers,) = await self._kv.read([(key, 0, 0)])
        return memoryview(bytearray(b"".join(buffers)))

    def is_unread(self, key: bytes) -> bool:
        """Return True if the piece was staged before the tablet's start, and nobody has read it since. What was staged
        since was synced by this process."""
        return key in self._unread

    async def verify(self, key: bytes) -> None:
        """Read a piece, so that it is not unread any more. BlobCorrupt, BlobMissing, OSError."""
        await self._kv.read([(key, 0, 0)])
        self._unread.discard(key)

    async def write(self, key: bytes, batch: memoryview, weights: Weighed) -> None:
        """Put the rows of a piece into the log; the piece goes in the same commit. One that is gone was written."""
        planned, is_gone = (batch, read_header(batch)), False

        def plan() -> Cycle | KafkaError:
            nonlocal is_gone
            is_gone = self._kv.entry(key) is None
            now_ms = self._clock()
            return (
                self._partition.no_change(now_ms) if is_gone
                else plan_piece(self._partition, key, planned, now_ms, weights)
            )  # fmt: skip

        await self._planned(plan, len(batch))
        if not is_gone:
            self._unread.discard(key)
            self.bytes -= len(batch)
            self.count -= 1

    async def decide(self, decision: Decision) -> None:
        """Store a decision, whose home this partition is."""
        stored = await asyncio.to_thread(decision.encode)
        await self._planned(lambda: plan_value(self._partition, decision.key, stored, self._clock()), len(stored))
        self.decision_count += 1

    async def retract(self, decision: Decision) -> None:
        """Delete a decision that is not carried out: what it has written stays, and its session knows nothing of it."""
        await self._take_away(decision, lambda: plan_drop(self._partition, [decision.key], self._clock()))

    async def decisions(self) -> Sequence[Decision]:
        """The batches that are being written. StoredUnreadable; BlobCorrupt, BlobMissing, OSError."""
        found = []
        for key in [key for key, _ in self._kv.keys(*decision_range(self._partition.index))]:
            (buffers,) = await self._kv.read([(key, 0, 0)])
            try:
                found.append(await asyncio.to_thread(Decision.decode, b"".join(buffers)))
            except ValueError as cause:
                raise StoredUnreadable(f"the row of key {key.decode('ascii', 'replace')!r}", str(cause)) from cause
        return found

    async def end(self, decision: Decision) -> None:
        """All pieces are written: the session knows its batch, and the decision goes. One that is gone was ended, and
        its session may have a later batch by now."""
        await self._take_away(decision, lambda: plan_end(self._partition, decision, self._clock()))

    async def _take_away(self, decision: Decision, plan: Callable[[], Cycle]) -> None:
        is_gone = False

        def planned() -> Cycle:
            nonlocal is_gone
            is_gone = self._kv.entry(decision.key) is None
            return self._partition.no_change(self._clock()) if is_gone else plan()

        await self._planned(planned, 0)
        if not is_gone:
            self.decision_count -= 1

    def stale(self, session: str, sequence: int) -> list[bytes]:
        """Keys of the pieces of a session's batches up to `sequence`."""
        lo, hi = staged_before(self._partition.index, session, sequence)
        return [key for key, _ in self._kv.keys(lo, hi)]

    def older_than(self, time_ms: int) -> list[bytes]:
        """Keys of pieces that were staged before the time, milliseconds since 1970."""
        lo, hi = staged_range(self._partition.index)
        return [key for key, entry in self._kv.keys(lo, hi) if entry.created_ms < time_ms]

    async def drop(self, keys: Sequence[bytes]) -> None:
        """Delete pieces that no decision will name."""
        for begin in range(0, len(keys), _DROPPED_AT_ONCE):
            present: dict[bytes, int] = {}
            await self._planned(partial(self._plan_drop, keys[begin : begin + _DROPPED_AT_ONCE], present), 0)
            self._unread.difference_update(present)
            self.bytes -= sum(present.values())
            self.count -= len(present)

    def _plan_drop(self, keys: Sequence[bytes], present: dict[bytes, int]) -> Cycle:
        """Plan to delete pieces; those that are still there are added to `present`, with their bytes."""
        for key in keys:
            entry = self._kv.entry(key)
            if entry is not None:
                present[key] = entry.size
        now_ms = self._clock()
        return plan_drop(self._partition, [*present], now_ms) if present else self._partition.no_change(now_ms)

    async def _planned(self, plan: Callable[[], Cycle | KafkaError], size: int) -> None:
        refusals: list[KafkaError] = []

        def planned() -> Cycle:
            made = plan()
            if isinstance(made, KafkaError):
                refusals.append(made)
                return self._partition.no_change(self._clock())
            return made

        await self._writer.perform(planned, size)
        if refusals:
            raise refusals[0]
