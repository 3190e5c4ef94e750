"""A sorted tablet as a participant of transactions: what is prepared in it, and the decisions of which it is the home.

    unknown --its start has read them--> known --lose--> unknown
    prepared rows: locked in memory (`row_locks`) --finish--> in the log and the active store, or gone
"""

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from pqbroker.pq.log.commit_timestamps import TIMESTAMP_MAX
from pqbroker.pq.transactions.stored_forms import CommitDecision, ParticipantId, PreparedHead, TransactionId
from pqbroker.storage.engine import CommitRefused, StoreFailed
from pqbroker.storage.ids import TabletId
from pqbroker.storage.kv.commands import INLINE, Command, DeleteRange, Write
from pqbroker.storage.kv.joint_request import TabletCommands, execute_together
from pqbroker.storage.kv.tablet import KeyValueTablet
from pqbroker.storage.outcome import Outcome
from pqbroker.storage.tablets.tablet import TabletStorage
from pqbroker.tables.refusals import TableError
from pqbroker.tables.serving.change_feed import FeedCommit
from pqbroker.tables.serving.row_locks import LockedRows
from pqbroker.tables.serving.stored_keys import decision_key, prepared_key
from pqbroker.tables.serving.writes import ROWS_OF_TURN, QueuePlace
from pqbroker.tables.sorted.change_records import CommittedRows
from pqbroker.tables.sorted.log_entries import NewRow, encode_entry
from pqbroker.tables.sorted.packed_rows import KIND_AT, RowForm
from pqbroker.tables.sorted.rows import show_key

if TYPE_CHECKING:
    from pqbroker.tables.serving.tablet import SortedTablet

LOCK_CURE: Final = "Try again: locks of rows end with their transaction."
_NO_TIMESTAMP: Final = bytes(KIND_AT)
"""Stands where a version has the timestamp of its commit."""


class RowTransactions:
    """The `Participant` of a sorted tablet, over all its generations."""

    def __init__(self, tablet: "SortedTablet") -> None:
        self._tablet = tablet
        self._locks = tablet.writes.locks
        self._decisions: dict[TransactionId, CommitDecision] = {}
        self._drops: set[Outcome[None]] = set()
        """Requests on their way that remove decisions."""
        self._changed = asyncio.Event()
        """Set when a decision has changed: those who wait for one look again."""
        self.is_known = False
        self.holding: QueuePlace | None = None
        """The place of the part that holds, if one does."""
        self.decided: TransactionId | None = None
        """The commit of the part that holds, once its timestamp is given."""
        self.waits_for = ""
        """Names what has the decision about prepared rows, where that is not open; empty: nobody waits for it."""

    @property
    def participant_id(self) -> ParticipantId:
        return ParticipantId(TabletId(self._tablet.config.tablet_id))

    @property
    def name(self) -> str:
        return self._tablet.name

    @property
    def kv(self) -> KeyValueTablet:
        return self._tablet.kv

    @property
    def storage(self) -> TabletStorage:
        return self.kv.storage

    @property
    def is_lost(self) -> bool:
        return self.kv.lost is not None

    @property
    def prepared(self) -> Mapping[TransactionId, PreparedHead]:
        """Return the heads of what is prepared."""
        return {transaction: rows.head for transaction, rows in self._locks.by_transaction.items()}

    def prepared_bytes(self, transaction: TransactionId) -> int:
        entry = self.kv.entry(prepared_key(transaction))
        return 0 if entry is None else entry.size

    @property
    def decisions(self) -> Mapping[TransactionId, CommitDecision]:
        return self._decisions

    @property
    def locked_count(self) -> int:
        """Return how many keys are locked."""
        return len(self._locks.by_key)

    @property
    def least_timestamp(self) -> int:
        """Return a timestamp that the commits of all prepared rows are above."""
        least = self._locks.least_timestamp
        return TIMESTAMP_MAX if least is None else least

    def take(self, prepared: Iterable[LockedRows], decisions: Iterable[CommitDecision]) -> None:
        """Take what a start has read."""
        self.forget()
        for rows in prepared:
            self._locks.lock(rows)
        self._decisions = {decision.transaction: decision for decision in decisions}
        self.is_known = True
        if self._decisions or self._locks.by_key:
            self._tablet.share.unfinished.add(self.participant_id)

    def forget(self) -> None:
        """The tablet is lost, or unreadable."""
        self.is_known = False
        self._decisions = {}
        self._locks.forget()
        self._note_change()

    def lock(self, rows: LockedRows) -> None:
        """Lock rows that are prepared and durable now."""
        self._locks.lock(rows)

    def deciding(self, transaction: TransactionId, timestamp: int) -> None:
        """Note the timestamp of a commit as `Participant` says."""
        rows = self._locks.by_transaction.get(transaction)
        if rows is not None:
            rows.timestamp = timestamp
        elif self.holding is not None:
            self.holding.given(timestamp)
            self.decided = transaction

    def finish(self, transaction: TransactionId, timestamp: int | None) -> Outcome[None]:
        """Write prepared rows, or drop them, before all writes that wait. It passes limits, blocks of writes and a
        frozen state. CommitRefused: the tablet is unmounted, or reads its log; ShardLost."""
        if not self.is_known:
            return Outcome.failed(StoreFailed(f"{self.name} is not open"))
        rows = self._locks.by_transaction.get(transaction)
        if rows is None:
            return _done()
        if rows.finishing is not None:
            return rows.finishing
        if not self._tablet.is_serving:
            state = "starting" if self._tablet.is_mounted else "unmounted; mount it to have transactions end in it"
            return Outcome.failed(CommitRefused(f"{self.name} is {state}"))
        if timestamp is not None:
            rows.timestamp = timestamp
        outcome: Outcome[None] = Outcome()
        rows.finishing = outcome
        _Finish(self._tablet, rows, timestamp, outcome).begin()
        return outcome

    def decision_command(self, decision: CommitDecision) -> Command:
        """Return what stores a decision."""
        value = decision.encode()
        return Write(decision_key(decision.transaction), [value], len(value), INLINE)

    def take_decision(self, decision: CommitDecision) -> None:
        """A decision is durable."""
        self._decisions[decision.transaction] = decision
        self._note_change()

    def drop_decisions(self, transactions: Sequence[TransactionId]) -> Outcome[None]:
        """Remove decisions that nobody asks for any more. CommitRefused, ShardLost."""
        if not self.is_known or not self._tablet.has_started:
            return Outcome.failed(CommitRefused(f"{self.name} is being moved, or is not open"))
        keys = [decision_key(transaction) for transaction in transactions if transaction in self._decisions]
        if not keys:
            return _done()
        outcome = self.kv.execute([DeleteRange(key, True, key, True) for key in keys])
        self._drops.add(outcome)

        def dropped(request: Outcome[None]) -> None:
            self._drops.discard(request)
            if request.exception() is None:
                for transaction in transactions:
                    self._decisions.pop(transaction, None)
                self._note_change()

        outcome.add_done_callback(dropped)
        return outcome

    async def hold(self) -> None:
        """Return when no request of its own is on its way."""
        while self._drops:
            await next(iter(self._drops)).wait()

    async def settled(self, timestamp: int, keys: Iterable[bytes] | None) -> bool:
        """Return when no prepared rows may be committed at or below a timestamp that are not visible yet; `keys`: rows
        that are read; None: any. True: that took a while. TableError ROW_LOCKED."""
        if self._blocking(timestamp, keys) is None:
            return False
        until_s = self._limit_s()
        while (found := self._blocking(timestamp, keys)) is not None:
            key, rows = found
            await _wait_until(until_s, rows.end, self._row_locked(key, rows))
        return True

    def _blocking(self, timestamp: int, keys: Iterable[bytes] | None) -> tuple[bytes, LockedRows] | None:
        if keys is None:
            for rows in self._locks.by_transaction.values():
                if rows.may_be_seen(timestamp):
                    return rows.rows[0].key, rows
            return None
        locked = self._locks.by_key
        for key in keys:
            if key in locked and locked[key].may_be_seen(timestamp):
                return key, locked[key]
        return None

    def under_way(self, *, with_decisions: bool = False) -> TableError | None:
        """Return the refusal of what has to wait for transactions: for prepared rows, and `with_decisions` for those
        of other participants that wait for a decision here."""
        if (transaction := next(iter(self._locks.by_transaction), None)) is not None:
            return self._under_way(transaction, f"has rows that wait for {self.waits_for or 'its decision'}")
        for decision in self._decisions.values() if with_decisions else ():
            if decision.participants:
                what = f"is committed, and {len(decision.participants)} other participants have not written its rows"
                return self._under_way(decision.transaction, what)
        return None

    async def ended(self, deadline_s: float | None = None, *, with_decisions: bool = False) -> None:
        """Return when nothing is under way. TableError TRANSACTION_UNDER_WAY at the deadline, a time of the loop; None:
        `lock_wait_s` from now."""
        until_s = self._limit_s() if deadline_s is None else deadline_s
        while (refusal := self.under_way(with_decisions=with_decisions)) is not None:
            rows = next(iter(self._locks.by_transaction.values()), None)
            self._changed.clear()
            await _wait_until(until_s, self._changed if rows is None else rows.end, refusal)

    def _limit_s(self) -> float:
        return asyncio.get_running_loop().time() + self._tablet.lock_wait_s

    def shown(self, key: bytes) -> str:
        """Return a key as texts for people have it."""
        return json.dumps(show_key(self._tablet.config.schema, key))

    def lock_conflict(self, key: bytes, holder: LockedRows | None) -> TableError:
        """Return the refusal of a write whose key is locked."""
        who = "earlier writes wait for it" if holder is None else f"transaction {holder.head.transaction.hex()} has it"
        text = f"Row lock conflict: row {self.shown(key)} of {self.name} is locked, {who}"
        return TableError("ROW_LOCK_CONFLICT", text, LOCK_CURE)

    def _row_locked(self, key: bytes, rows: LockedRows) -> TableError:
        text = f"Timed out waiting on blocked row {self.shown(key)} of {self.name}: transaction"
        waits = f", which waits for {self.waits_for}" if self.waits_for else ""
        return TableError("ROW_LOCKED", f"{text} {rows.head.transaction.hex()} has it{waits}", LOCK_CURE)

    def _under_way(self, transaction: TransactionId, what: str) -> TableError:
        text = f"transaction {transaction.hex()} {what}, in {self.name}"
        cure = "Try again; if that does not help see that all cells are open: `pqbroker cell list`."
        return TableError("TRANSACTION_UNDER_WAY", text, cure)

    def _note_change(self) -> None:
        self._changed.set()


def _done() -> Outcome[None]:
    outcome: Outcome[None] = Outcome()
    outcome.set_result(None)
    return outcome


async def _wait_until(deadline_s: float, end: Outcome[None] | asyncio.Event, refusal: TableError) -> None:
    """Return when something has ended; raise the refusal at the deadline."""
    try:
        async with asyncio.timeout_at(deadline_s):
            await end.wait()
    except TimeoutError:
        raise refusal from None


class _Finish:
    """The end of prepared rows: one commit that writes or drops them."""

    __slots__ = ("_changes", "_feeding", "_kv", "_outcome", "_place", "_rows", "_tablet", "_timestamp")

    def __init__(
        self, tablet: "SortedTablet", rows: LockedRows, timestamp: int | None, outcome: Outcome[None]
    ) -> None:
        self._tablet = tablet
        self._rows = rows
        self._timestamp = timestamp
        self._outcome = outcome
        self._kv = tablet.kv
        self._changes: FeedCommit | None = None
        """Records of the rows' changes; None: the tablet has no change feed, or the rows are dropped."""
        self._feeding: asyncio.Task[None] | None = None
        self._place = QueuePlace(tablet.writes, self._turn)

    def begin(self) -> None:
        self._place.enter(is_urgent=True)

    def _turn(self, error: BaseException | None) -> None:
        if error is not None:
            self._fail(error)
            return
        self._kv = self._tablet.kv  # what waits while the tablet is held goes to its next generation
        if len(self._rows.rows) <= ROWS_OF_TURN:
            self._send(self._encode())
            return
        encoding = asyncio.get_running_loop().run_in_executor(None, self._encode)
        encoding.add_done_callback(self._encoded)

    def _encode(self) -> tuple[bytes, Sequence[NewRow]]:
        """Return the log entry, and the rows with the value columns of now; in any thread."""
        if self._timestamp is None:
            return b"", ()
        rows = widened(self._tablet.config.schema.form, self._rows, self._tablet.value_columns)
        return encode_entry(self._tablet.value_columns, [(self._timestamp, rows)]), rows

    def _encoded(self, encoding: "asyncio.Future[tuple[bytes, Sequence[NewRow]]]") -> None:
        if encoding.cancelled():
            self._fail(CommitRefused(f"{self._tablet.name} was stopped while rows were encoded"))
        elif (error := encoding.exception()) is not None:
            self._fail(error)
        else:
            self._send(encoding.result())

    def _send(self, encoded: tuple[bytes, Sequence[NewRow]]) -> None:
        entry, rows = encoded
        tablet = self._tablet
        feed = tablet.feed
        if feed is None or self._timestamp is None:
            self._execute(entry, rows)
            return
        name = self._rows.head.transaction.hex()
        self._changes = feed.commit([CommittedRows(self._timestamp, name, rows)], is_decided=True)
        self._feeding = asyncio.get_running_loop().create_task(self._changes.hold())
        self._feeding.add_done_callback(lambda feeding: self._fed(feeding, entry, rows))

    def _fed(self, feeding: "asyncio.Task[None]", entry: bytes, rows: Sequence[NewRow]) -> None:
        assert self._changes is not None, "its changes were to be made ready"
        error = asyncio.CancelledError() if feeding.cancelled() else feeding.exception() or self._changes.refusal()
        if error is not None:
            self._fail(error)
        else:
            self._execute(entry, rows)

    def _execute(self, entry: bytes, rows: Sequence[NewRow]) -> None:
        """Write the rows, their changes with them, and remove what was prepared."""
        tablet = self._tablet
        if not tablet.runs(self._kv):
            self._fail(CommitRefused(f"{tablet.name} was lost while rows were encoded"))
            return
        planned = tablet.plan(entry, [(self._timestamp or 0, rows)])
        key = prepared_key(self._rows.head.transaction)
        own: TabletCommands = (self._kv, [*planned.commands, DeleteRange(key, True, key, True)])

        def told(request: Outcome[None]) -> None:
            error = request.exception()
            if self._changes is not None:
                self._changes.told(error)
            if error is not None:
                self._fail(error)
            else:
                self._place.apply(planned, self._done)

        beside = () if self._changes is None else (self._changes.commands(),)
        execute_together([own, *beside]).add_done_callback(told)

    def _done(self) -> None:
        self._tablet.writes.unlock(self._rows)
        self._outcome.set_result(None)

    def _fail(self, error: BaseException) -> None:
        if self._changes is not None:
            self._changes.leave()
        self._place.leave()
        self._rows.finishing = None
        self._outcome.set_exception(error)


def widened(form: RowForm, rows: LockedRows, columns: int) -> Sequence[NewRow]:
    """Return prepared rows with the value columns that the table has by now: it may have got some. ValueError."""
    if rows.columns == columns:
        return rows.rows
    return [NewRow(key, form.widened(_NO_TIMESTAMP + body, rows.columns)[KIND_AT:]) for key, body in rows.rows]
