"""Transactions over several tablets in one partition: rows that are prepared, and decisions of which it is the home.

    free      take_prepared                          held       writes and jobs wait for the decision
    held      finish: durable                        free       rows are in the log, or gone
    held      finish: refused                        in doubt   what comes is refused, so that clients try again
    held      restart of tablet, cell or process     in doubt
    in doubt  finish: durable                        free
    in doubt  finish: refused                        in doubt

The partition's queue is held by the writer (`Writer.keep_out`). Reads are served all the time.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from pqbroker.pq.log.keys import outcome_key, prepared_key
from pqbroker.pq.log.partition import Partition
from pqbroker.pq.log.prepared_batches import PreparedBatches
from pqbroker.pq.log.staged_cycles import plan_drop
from pqbroker.pq.log.start_state import StoredTransactions
from pqbroker.pq.log.transacted_cycles import plan_finish
from pqbroker.pq.log.write_cycle import Cycle
from pqbroker.pq.serving.store_refusals import RECORDS, not_leader
from pqbroker.pq.serving.writer import Writer
from pqbroker.pq.serving.writer_states import HOLDING, LOSING
from pqbroker.pq.transactions.stored_forms import (
    CommitDecision,
    ParticipantId,
    PreparedHead,
    PreparedRows,
    TransactionId,
)
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.engine import BlobCorrupt, BlobMissing, CommitRefused, ShardLost
from pqbroker.storage.kv.commands import INLINE, Command, DeleteRange, KeyMissing, Write
from pqbroker.storage.kv.tablet import KeyValueTablet
from pqbroker.storage.outcome import Outcome
from pqbroker.storage.tablets.tablet import TabletStorage

DECODED_IN_LOOP: Final = 1 << 20
"""More bytes of prepared rows get or lose their stored form in a thread."""


class PartitionTransactions:
    """A `Participant`; made for a partition with the first transaction that comes to it."""

    __slots__ = (
        "_changes", "_clock", "_finishing", "_kv", "_partition", "_reading", "_writer", "decisions", "is_in_doubt",
        "name", "prepared", "waits_for",
    )  # fmt: skip

    def __init__(
        self, partition: Partition, kv: KeyValueTablet, writer: Writer, clock: Callable[[], int]
    ) -> None:
        self._partition = partition
        self._kv = kv
        self._writer = writer
        self._clock = clock
        self.name = f"partition {partition.index}"
        self.prepared: dict[TransactionId, PreparedHead] = {}
        """One at most: nothing else is prepared meanwhile."""
        self.decisions: dict[TransactionId, CommitDecision] = {}
        self.is_in_doubt = False
        """True while writes are refused because of prepared rows."""
        self.waits_for = "its decision"
        """Text for people: the thing that prepared rows wait for."""
        self._finishing: Outcome[None] | None = None
        self._reading: asyncio.Task[None] | None = None
        self._changes: list[Outcome[None]] = []

    def take_stored(self, stored: StoredTransactions) -> None:
        """Take what a start has found: prepared rows are in doubt."""
        self.decisions.update((decision.transaction, decision) for decision in stored.decisions)
        if stored.prepared is not None:
            self.prepared[stored.prepared.transaction] = stored.prepared
            self._keep_in_doubt()

    @property
    def participant_id(self) -> ParticipantId:
        return ParticipantId(self._kv.storage.tablet_id, self._partition.index)

    @property
    def kv(self) -> KeyValueTablet:
        return self._kv

    @property
    def storage(self) -> TabletStorage:
        return self.kv.storage

    @property
    def is_lost(self) -> bool:
        return self.kv.lost is not None

    @property
    def is_known(self) -> bool:
        return self._writer.state < LOSING

    @property
    def under_way(self) -> TransactionId | None:
        """Return the transaction that is not over here: its rows are prepared, or it is committed and others have not
        written theirs."""
        for transaction in self.prepared:
            return transaction
        return next((decision.transaction for decision in self.decisions.values() if decision.participants), None)

    @property
    def why_held(self) -> str:
        """Return why the transaction that is `under_way` is not over, for people."""
        transaction = self.under_way
        if transaction is None:
            return "no transaction is under way"
        if transaction in self.prepared:
            return f"rows of transaction {transaction.hex()} are prepared here and wait for {self.waits_for}"
        missing = len(self.decisions[transaction].participants)
        return f"transaction {transaction.hex()} is committed, and {missing} of its tablets have not written their rows"

    def prepared_bytes(self, transaction: TransactionId) -> int:
        entry = self._kv.entry(prepared_key(self._partition.index, transaction))
        return 0 if entry is None else entry.size

    def take_prepared(self, head: PreparedHead) -> None:
        """Rows are durable: hold the queue before anything else of it begins."""
        assert not self.prepared, "one transaction is prepared in a partition at a time"
        self.prepared[head.transaction] = head
        self._writer.keep_out()

    def deciding(self, transaction: TransactionId, timestamp: int) -> None:
        """Do nothing: who reads rows of a partition sees those that are in its log."""

    def finish(self, transaction: TransactionId, timestamp: int | None) -> Outcome[None]:
        """Finish as `Participant` does. While it is under way, a second call has the outcome of the first."""
        if self._writer.state >= HOLDING:
            return Outcome.failed(not_leader())
        if transaction not in self.prepared:
            done: Outcome[None] = Outcome()
            done.set_result(None)
            return done
        if self._finishing is None:
            self._finishing = finishing = Outcome[None]()
            if timestamp is None:
                keys = [prepared_key(self._partition.index, transaction)]
                self._decide(transaction, lambda: plan_drop(self._partition, keys, self._clock()), 0, finishing)
            else:
                reading = self._read(transaction, timestamp, finishing)
                self._reading = asyncio.get_running_loop().create_task(reading)
        return self._finishing

    def decision_command(self, decision: CommitDecision) -> Command:
        stored = decision.encode()
        return Write(outcome_key(self._partition.index, decision.transaction), (stored,), len(stored), INLINE)

    def take_decision(self, decision: CommitDecision) -> None:
        self.decisions[decision.transaction] = decision
        self._tell_change()

    def drop_decisions(self, transactions: Sequence[TransactionId]) -> Outcome[None]:
        """Remove decisions beside the partition's queue, which may be held by another transaction."""
        keys = [outcome_key(self._partition.index, transaction) for transaction in transactions]
        dropped = self._kv.execute([DeleteRange(key, True, key, True) for key in keys])
        dropped.add_done_callback(partial(self._forget, transactions))
        return dropped

    def change(self) -> Outcome[None]:
        """Return what is done when something here has changed: rows were finished, a decision came or went."""
        changed: Outcome[None] = Outcome()
        self._changes.append(changed)
        return changed

    def stop(self) -> None:
        """The partition's instance writes nothing more: a later one has to finish what is prepared."""
        finishing, self._finishing = self._finishing, None
        if finishing is not None and not finishing.done():
            finishing.set_exception(not_leader())

    async def _read(self, transaction: TransactionId, timestamp: int, finishing: Outcome[None]) -> None:
        """Read the rows, then have them written."""
        key = prepared_key(self._partition.index, transaction)
        try:
            (buffers,) = await self._kv.read([(key, 0, 0)])
            stored = b"".join(buffers)
            if len(stored) > DECODED_IN_LOOP:
                rows = await asyncio.to_thread(_decode, stored)
            else:
                rows = _decode(stored)
        except (BlobCorrupt, BlobMissing, KeyMissing, OSError, ValueError) as damage:
            text = f"rows of transaction {transaction.hex()} cannot be read: {damage}"
            self._end(transaction, finishing, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, text))
        except ShardLost:
            self._end(transaction, finishing, not_leader())
        else:
            size = sum([len(batch) for batch, _ in rows.batches])
            self._decide(transaction, partial(self._plan, rows, transaction, timestamp), size, finishing)

    def _plan(self, rows: PreparedBatches, transaction: TransactionId, timestamp: int) -> Cycle:
        return plan_finish(self._partition, rows, transaction, timestamp, self._clock())

    def _decide(
        self, transaction: TransactionId, plan: Callable[[], Cycle], size: int, finishing: Outcome[None]
    ) -> None:
        """Have the writer put the rows into the log, or drop them."""
        if finishing.done():
            return
        self._writer.decide(plan, size).add_done_callback(
            lambda written: self._end(transaction, finishing, _as_refusal(written.exception()))
        )

    def _end(self, transaction: TransactionId, finishing: Outcome[None], error: BaseException | None) -> None:
        """The rows are in the log, or gone; or they stay, and their decision has to come again."""
        if self._finishing is finishing:
            self._finishing = None
        if error is None:
            del self.prepared[transaction]
            self.is_in_doubt = False
            self._tell_change()
        else:
            self._keep_in_doubt()
        if not finishing.done():
            finishing.settle(error)

    def _keep_in_doubt(self) -> None:
        self.is_in_doubt = True
        self._writer.keep_out(self._doubt)

    def _doubt(self) -> KafkaError:
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.why_held}: retry")

    def _forget(self, transactions: Sequence[TransactionId], dropped: Outcome[None]) -> None:
        if dropped.exception() is None:
            for transaction in transactions:
                self.decisions.pop(transaction, None)
            self._tell_change()

    def _tell_change(self) -> None:
        changes, self._changes = self._changes, []
        for changed in changes:
            changed.set_result(None)


def _decode(stored: bytes) -> PreparedBatches:
    """ValueError."""
    return PreparedBatches.decode(PreparedRows.decode(stored).rows)


def _as_refusal(error: BaseException | None) -> BaseException | None:
    """Return what the store said, where nothing was written: committed rows are refused by nothing else."""
    if isinstance(error, KafkaError) and error.code == RECORDS.refused:
        return CommitRefused(error.message)
    return error
