"""Batches for one partition as a part of a commit over several tablets, and what of such commits is under way.

The part holds as a place in the partition's queue (`joint_cycle.py`). Beside the decision the commands write the rows;
elsewhere they store a key with them, and the partition's queue stays held until its `Participant.finish`.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence

from pqbroker.pq.log.batch_admission import why_closed
from pqbroker.pq.log.prepared_batches import PreparedBatches
from pqbroker.pq.log.row_facts import RowFacts
from pqbroker.pq.log.sessions import Fence
from pqbroker.pq.log.transacted_cycles import fill_prepared, plan_beside, plan_prepared
from pqbroker.pq.log.write_cycle import Cycle
from pqbroker.pq.serving.joint_cycle import JointCycle
from pqbroker.pq.serving.joint_write import Share
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.partition_transactions import DECODED_IN_LOOP, PartitionTransactions
from pqbroker.pq.transactions.participants import OnTurn, SentRows
from pqbroker.pq.transactions.stored_forms import PreparedHead, TransactionId
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.kv.commands import Command
from pqbroker.storage.kv.joint_request import TabletCommands
from pqbroker.storage.outcome import Outcome

WAIT_S = 5.0
"""Seconds that a change of a topic waits for the end of transactions."""


class BatchesPart:
    """A `CommitPart`."""

    __slots__ = ("_head", "_place", "_rows", "_server", "_size", "first_offset", "row_count")

    def __init__(self, share: Share, fence: Fence | None, clock: Callable[[], int]) -> None:
        """`share`: checked batches without producers, one at least; of their weights no facts."""
        assert share.batches, "a part has rows"
        assert all(header.producer_id < 0 for _, header in share.batches), "a producer's batches have their own way"
        weights = [None if isinstance(one, RowFacts) else one for one in share.weights]
        self._server = share.partition
        self._rows = PreparedBatches(fence, share.batches, weights or [None] * len(share.batches))
        self._size = share.size
        self.row_count = share.row_count
        self.first_offset = -1
        """Offset of the first row; -1: the part had no turn."""
        self._head: PreparedHead | None = None
        self._place = JointCycle(share.partition, self._plan, clock)

    @property
    def participant(self) -> PartitionTransactions:
        return self._server.transactions

    @property
    def position(self) -> int:
        return self.first_offset

    async def sent(self) -> SentRows:
        encode = self._rows.encode
        rows = await asyncio.to_thread(encode) if self._size > DECODED_IN_LOOP else encode()
        return SentRows(self.participant.participant_id, None, b"".join(rows))

    def taken(self, position: int) -> None:
        self.first_offset = position

    def prepares(self, head: PreparedHead) -> None:
        self._head = head

    async def look_ahead(self) -> None:
        """Look at nothing: a partition has no conflicts."""

    async def examine(self) -> None:
        """Look at nothing: its turn has checked the batches."""

    def enter(self, turn: OnTurn) -> None:
        self._place.enter(turn, size=self._size)

    def refusal(self) -> BaseException | None:
        refusal = self._place.refusal()
        if refusal is not None:
            return refusal
        if self._server.writer.is_disk_full:
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self._server.writer.disk_full)
        return why_closed(self._server.state)

    async def encode(self, timestamp: int | None) -> None:
        if self._head is None:
            return
        encode = self._rows.encode
        rows = await asyncio.to_thread(encode) if self._size > DECODED_IN_LOOP else encode()
        if self._place.cycle is not None:
            fill_prepared(self._place.cycle, self._head, rows)

    def commands(self, timestamp: int | None) -> Sequence[Command]:
        assert self._place.cycle is not None, "the part holds"
        assert (timestamp is None) == (self._head is not None), "rows are prepared without a timestamp"
        if timestamp is not None:
            self._server.state.stamp(self._place.cycle, timestamp)
        return self._place.commands()

    def beside(self) -> Sequence[TabletCommands]:
        return ()

    def told(self, error: BaseException | None) -> Outcome[None]:
        return self._place.told(error, None if self._head is None else self._prepared)

    def leave(self) -> None:
        self._place.leave()

    def _prepared(self) -> None:
        assert self._head is not None, "the rows are prepared"
        self.participant.take_prepared(self._head)

    def _plan(self, now_ms: int) -> Cycle | KafkaError:
        partition = self._server.state
        self.first_offset = partition.end_offset  # nothing else comes before the rows, or they never come
        if self._head is None:
            return plan_beside(partition, self._rows, now_ms)
        return plan_prepared(partition, self._rows, self._head.transaction, now_ms)


async def received_part(server: PartitionServer, stored: bytes | memoryview, clock: Callable[[], int]) -> BatchesPart:
    """Return batches that another node has sent, as it got them from `BatchesPart.sent`. ValueError."""
    is_short = len(stored) <= DECODED_IN_LOOP
    rows = _received(stored) if is_short else await asyncio.to_thread(_received, stored)
    return BatchesPart(Share(server, rows.batches, rows.weights), rows.fence, clock)


def _received(stored: bytes | memoryview) -> PreparedBatches:
    rows = PreparedBatches.decode(bytes(stored))
    if any(header.producer_id >= 0 for _, header in rows.batches):
        raise ValueError("a batch of a producer is no part of a commit")
    return rows


def under_way(partition: PartitionServer) -> TransactionId | None:
    """Return the transaction that is not over in a partition: its rows are prepared, or it was decided in the partition
    and other participants have not written their rows. None: all are over."""
    known = partition.known_transactions
    return None if known is None else known.under_way


async def await_transactions(partitions: Iterable[PartitionServer]) -> str | None:
    """Wait until no transaction is under way in the partitions. Return what is under way after `WAIT_S`, for people;
    None: nothing is."""
    waited: PartitionServer | None = None
    try:
        async with asyncio.timeout(WAIT_S):
            for waited in partitions:
                await _await_end(waited)
    except TimeoutError:
        assert waited is not None
        return why_under_way(waited)
    return None


async def _await_end(partition: PartitionServer) -> None:
    while under_way(partition) is not None:
        await partition.transactions.change()


def why_under_way(partition: PartitionServer) -> str:
    """Return what is under way in a partition, for people."""
    return f"partition {partition.index}: {partition.transactions.why_held}"
