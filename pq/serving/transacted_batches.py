"""Batches for one partition as a part of a commit over several tablets, and what of such commits is under way.

    entered   plan: checked, its request is ready   holding    `turn(None)`; the partition's writer waits
    entered   plan: refused; held, lost, left       gone       `turn(error)`, unless it left
    holding   held, lost, left                      gone       the plan is taken back; `refusal` says why
    holding   commands                              sent       too late to leave
    sent      told                                  gone       applied, prepared, or taken back

Beside the decision the commands write the rows; elsewhere they store a key with them, and the partition's queue stays
held until its `Participant.finish`.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence

from pqbroker.pq.log.batch_admission import why_closed
from pqbroker.pq.log.prepared_batches import PreparedBatches
from pqbroker.pq.log.row_facts import RowFacts
from pqbroker.pq.log.sessions import Fence
from pqbroker.pq.log.transacted_cycles import fill_prepared, plan_beside, plan_prepared
from pqbroker.pq.log.write_cycle import Cycle
from pqbroker.pq.serving.joint_write import Share
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.partition_transactions import DECODED_IN_LOOP, PartitionTransactions
from pqbroker.pq.serving.store_refusals import not_leader
from pqbroker.pq.transactions.participants import OnTurn
from pqbroker.pq.transactions.stored_forms import PreparedHead, TransactionId
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.engine import CommitRefused, ShardLost
from pqbroker.storage.kv.commands import Command
from pqbroker.storage.kv.joint_request import TabletCommands
from pqbroker.storage.kv.tablet import KeyValueTablet
from pqbroker.storage.outcome import Outcome, Told

WAIT_S = 5.0
"""Seconds that a change of a topic waits for the end of transactions."""


class BatchesPart:
    """A `CommitPart`, and the `JointCommit` of its cycle."""

    __slots__ = (
        "_clock", "_cycle", "_head", "_is_left", "_is_sent", "_job", "_kv", "_refusal", "_rows", "_server", "_size",
        "_told", "_turn", "first_offset", "row_count",
    )  # fmt: skip

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
        self._clock = clock
        self._head: PreparedHead | None = None
        self._turn: OnTurn | None = None
        self._job: Outcome[None] = Outcome()
        self._kv: KeyValueTablet | None = None
        self._cycle: Cycle | None = None
        self._told: Told | None = None
        """Called with the outcome of the request; None before the part holds, and when it holds no more."""
        self._refusal: BaseException | None = None
        self._is_left = False
        self._is_sent = False

    @property
    def participant(self) -> PartitionTransactions:
        return self._server.transactions

    def prepares(self, head: PreparedHead) -> None:
        self._head = head

    async def look_ahead(self) -> None:
        """Look at nothing: a partition has no conflicts."""

    async def examine(self) -> None:
        """Look at nothing: its turn has checked the batches."""

    def enter(self, turn: OnTurn) -> None:
        self._turn = turn
        self._job = self._server.writer.perform(self._plan, self._size)
        self._job.add_done_callback(self._ended)

    def refusal(self) -> BaseException | None:
        if self._refusal is not None:
            return self._refusal
        if self._told is None or not self._server.is_loaded:
            return not_leader()
        if self._server.writer.is_disk_full:
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self._server.writer.disk_full)
        return why_closed(self._server.state)

    async def encode(self, timestamp: int | None) -> None:
        if self._head is None:
            return
        encode = self._rows.encode
        rows = await asyncio.to_thread(encode) if self._size > DECODED_IN_LOOP else encode()
        if self._cycle is not None:
            fill_prepared(self._cycle, self._head, rows)

    def commands(self, timestamp: int | None) -> Sequence[Command]:
        assert self._cycle is not None, "the part holds"
        assert (timestamp is None) == (self._head is not None), "rows are prepared without a timestamp"
        self._is_sent = True
        if timestamp is not None:
            self._server.state.stamp(self._cycle, timestamp)
        return self._cycle.as_commands()

    def beside(self) -> Sequence[TabletCommands]:
        return ()

    def told(self, error: BaseException | None) -> Outcome[None]:
        told, self._told, self._cycle = self._told, None, None
        assert told is not None, "the part holds"
        if error is None and self._head is not None:
            self.participant.take_prepared(self._head)
        if isinstance(error, ShardLost) and self._kv is not None and self._kv.lost is None:
            error = CommitRefused(str(error))  # another tablet's instance is over, this one continues
        told(error)
        return self._job

    def leave(self) -> None:
        self._is_left = True
        self._turn = None
        if not self._is_sent:
            self._take_back("the commit was given up")

    def commit(self, kv: KeyValueTablet, cycle: Cycle, told: Told) -> None:
        """Hold, as the `JointCommit` of the cycle: it is ready, and the parts of its large batches are durable."""
        self._kv, self._cycle, self._told = kv, cycle, told
        if self._is_left or self._refusal is not None:
            self._take_back(str(self._refusal))
        else:
            self._tell_turn(None)

    def give_up(self, why: KafkaError) -> None:
        """Give up as `JointCommit` does; too late when the request is on its way."""
        if self._is_sent or self._refusal is not None:
            return
        self._refusal = why
        self._take_back(str(why))
        self._tell_turn(why)

    def _plan(self) -> Cycle:
        partition, now_ms = self._server.state, self._clock()
        self.first_offset = partition.end_offset  # nothing else comes before the rows, or they never come
        if self._is_left:
            return partition.no_change(now_ms)
        if self._head is None:
            planned = plan_beside(partition, self._rows, now_ms)
        else:
            planned = plan_prepared(partition, self._rows, self._head.transaction, now_ms)
        if isinstance(planned, KafkaError):
            self._refusal = planned
            self._tell_turn(planned)
            return partition.no_change(now_ms)
        planned.joint = self
        return planned

    def _ended(self, job: Outcome[None]) -> None:
        """The place in the queue is over."""
        error = job.exception()
        if error is not None:
            self._refusal = self._refusal or error
            self._tell_turn(error)

    def _tell_turn(self, error: BaseException | None) -> None:
        turn, self._turn = self._turn, None
        if turn is not None:
            turn(error)

    def _take_back(self, why: str) -> None:
        """Have the writer take the plan back, if it waits for this part."""
        told, self._told, self._cycle = self._told, None, None
        if told is not None:
            asyncio.get_running_loop().call_soon(told, CommitRefused(why))


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
