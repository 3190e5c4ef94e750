"""Rows of one sorted tablet in a commit over several tablets: a `CommitPart`.

    entered, holding   as a place in the queue of the tablet's writes (`writes.QueuePlace`)
    beside the home    --commands(T), durable--> applied
    elsewhere          --commands(None), durable--> prepared: keys are locked, the queue is free (`row_transactions`)

A part of a transaction that began at S is refused where a version of one of its keys is newer than S. Chunks are looked
at before the part enters, since they are read from disk; one that a flush has made meanwhile has it looked at again.
"""

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from pqbroker.pq.log.commit_timestamps import TIMESTAMP_MAX
from pqbroker.pq.transactions.participants import LookAgain, OnTurn, SentRows
from pqbroker.pq.transactions.stored_forms import PreparedHead
from pqbroker.storage.engine import CommitRefused
from pqbroker.storage.kv.commands import Command, Write
from pqbroker.storage.kv.joint_request import TabletCommands
from pqbroker.storage.kv.tablet import KeyValueTablet
from pqbroker.storage.outcome import Outcome
from pqbroker.tables.refusals import TableError
from pqbroker.tables.serving.change_feed import FeedCommit
from pqbroker.tables.serving.feed_progress import FeedMove
from pqbroker.tables.serving.lookups import ChunkReplaced
from pqbroker.tables.serving.open_chunk import OpenChunk
from pqbroker.tables.serving.row_locks import LockedRows
from pqbroker.tables.serving.stored_keys import prepared_key
from pqbroker.tables.serving.tablet import PlannedCommit, SortedTablet
from pqbroker.tables.serving.writes import ROWS_OF_TURN, QueuePlace
from pqbroker.tables.sorted.change_records import CommittedRows
from pqbroker.tables.sorted.log_entries import NewRow, decode_entries, encode_entry
from pqbroker.tables.sorted.packed_rows import KIND_AT, timestamp_of
from pqbroker.tables.sorted.store import RowStore

CHECKS_MAX: Final = 10
"""Tries of a look at chunks that are merged meanwhile."""
_KEYS_OF_LOOKUP: Final = 100
"""Keys that one lookup finds in a chunk: it keeps the blocks that it has read."""
_READ_IN_LOOP: Final = 64 << 10
"""Bytes of rows that another node has sent, of which more are read in a thread."""
_BEGIN_AGAIN = "Begin another transaction: read again, and write by what it finds."


class RowsPart:
    """Rows of one tablet. `start`: timestamp at which their transaction began to read; None: no version is too new.
    `check`: raises TableError where the table takes no rows now, asked once the part holds. `move`: progress of a feed,
    which is committed beside the home alone, and needs no rows."""

    def __init__(
        self, tablet: SortedTablet, rows: Sequence[NewRow], start: int | None, check: Callable[[], None] | None = None,
        move: FeedMove | None = None,
    ) -> None:
        assert rows or move is not None, "a part has rows, or the progress of a feed"
        self._tablet = tablet
        self.participant = tablet.transactions
        self._rows = rows
        self._start = start
        self._move = move
        self._is_received = False
        """True if another node decides: readers here do not hear when the timestamp is given."""
        self._check = tablet.check_writable if check is None else check
        self._place: QueuePlace | None = None
        self._kv: KeyValueTablet | None = None
        """Keys of the instance in which the part holds."""
        self._head: PreparedHead | None = None
        self._columns = 0
        self._entry = b""
        self._planned: PlannedCommit | None = None
        self._changes: FeedCommit | None = None
        """Records of the rows' changes, beside the home; None: the tablet has no change feed."""
        self._seen_up_to = 0 if start is None else start
        """Timestamp up to which no version of the keys is too new."""
        self._found: BaseException | None = None
        """The conflict that was found since the part holds; nothing of the tablet changes meanwhile."""
        self._is_examined = False
        self._keys: Sequence[bytes] = ()
        """Keys in order, once a chunk was looked at."""

    @property
    def row_count(self) -> int:
        return len(self._rows)

    @property
    def position(self) -> int:
        """Return 0: rows are found by their keys."""
        return 0

    async def sent(self) -> SentRows:
        """Return the rows for the node that runs the tablet."""
        assert self._move is None, "the progress of a feed is committed beside the decision"
        writes = [(0, self._rows)]
        if len(self._rows) <= ROWS_OF_TURN:
            stored = encode_entry(self._tablet.value_columns, writes)
        else:
            stored = await asyncio.to_thread(encode_entry, self._tablet.value_columns, writes)
        return SentRows(self.participant.participant_id, self._start, stored)

    def note_received(self) -> None:
        """Have readers wait for the decision of another node, whatever its timestamp will be."""
        self._is_received = True

    def taken(self, position: int) -> None:
        """Do nothing: rows are found by their keys."""

    def prepares(self, head: PreparedHead) -> None:
        """Say that the decision is made elsewhere."""
        assert self._move is None, "the progress of a feed is committed beside the decision"
        self._head = head

    def enter(self, turn: OnTurn) -> None:
        """Take a place in the queue, as `CommitPart` says."""
        try:
            self._tablet.check()
        except TableError as refusal:
            asyncio.get_running_loop().call_soon(turn, refusal)
            return

        def taken(error: BaseException | None) -> None:
            if error is None:
                self._kv = self._tablet.kv
                self._tablet.transactions.holding = self._place
                self._found, self._is_examined = None, False
            turn(error)

        self._place = QueuePlace(self._tablet.writes, taken)
        self._place.enter()

    async def examine(self) -> None:
        """Look for conflicts of many rows, once the part holds: nothing of the tablet changes meanwhile."""
        for begin in range(0, len(self._rows), ROWS_OF_TURN) if len(self._rows) > ROWS_OF_TURN else ():
            self._found = self._found or self._conflict(self._rows[begin : begin + ROWS_OF_TURN])
            self._is_examined = True
            await asyncio.sleep(0)

    def refusal(self) -> BaseException | None:
        """Return why the rows cannot be written: the tablet is lost or held, takes no rows, a key is locked or newer.
        CommitRefused; TableError ROW_LOCK_CONFLICT, TIMESTAMP_TOO_OLD, others; LookAgain."""
        tablet = self._tablet
        if not self._is_current or tablet.writes.is_held:
            return CommitRefused(f"{tablet.name} was lost, or is moved or restarted")
        try:
            self._check()
            if self._move is not None:
                tablet.progress.check(self._move)
            if self._start is not None:
                tablet.check_timestamp(self._start)
        except TableError as refusal:
            return refusal
        refusal_of_feed = self._feed_refusal()
        if refusal_of_feed is not None:
            return refusal_of_feed
        if not self._is_examined:
            self._found, self._is_examined = self._conflict(self._rows), True
        return self._found

    def _feed_refusal(self) -> BaseException | None:
        """Return why the change feed cannot take the rows' changes. Beside the home they are made ready first; prepared
        rows are refused now or never."""
        if self._changes is not None:
            return self._changes.refusal()
        feed = None if self._head is None else self._tablet.feed
        return None if feed is None else feed.refusal()

    def _conflict(self, rows: Sequence[NewRow]) -> BaseException | None:
        """Return the refusal of a key that is locked or has a newer version, or of chunks that may have one."""
        locked = self._tablet.writes.locks.by_key
        for key, _ in rows if locked else ():
            if key in locked:
                return self._tablet.transactions.lock_conflict(key, locked[key])
        if self._start is None:
            return None
        for store in self._tablet.stores:
            found = self._newer_in_store(store, rows)
            if found is not None:
                return found
        chunks = [chunk for chunk in self._tablet.structure.chunks.values() if self._may_have_newer(chunk)]
        if chunks:
            first, last = min(key for key, _ in rows), max(key for key, _ in rows)
            if any(chunk.first_key <= last and first <= chunk.last_key for chunk in chunks):
                return LookAgain("a chunk that was not looked at may have newer versions")
        return None

    async def look_ahead(self) -> None:
        """Look for newer versions in chunks, and in the stores that become chunks; before `enter`. TableError
        ROW_LOCK_CONFLICT, TIMESTAMP_TOO_OLD, CHUNK_DAMAGED, TABLET_BUSY, those of `SortedTablet.check`; ShardLost."""
        tablet = self._tablet
        if self._start is None:
            return
        for _ in range(CHECKS_MAX):
            tablet.check()
            tablet.check_timestamp(self._start)
            verified = tablet.barrier - 1  # what is committed up to here is in these stores and chunks
            stores, chunks = tuple(tablet.stores), tuple(tablet.structure.chunks.values())
            try:
                await self._look_in_stores(stores)
                await self._look_in_chunks(chunks)
            except ChunkReplaced:
                continue
            self._seen_up_to = max(self._seen_up_to, verified)
            return
        raise TableError("TABLET_BUSY", f"chunks of {tablet.name} are replaced again and again", "Try again.")

    async def _look_in_stores(self, stores: Sequence[RowStore]) -> None:
        for store in stores:
            for begin in range(0, len(self._rows), ROWS_OF_TURN):
                found = self._newer_in_store(store, self._rows[begin : begin + ROWS_OF_TURN])
                if found is not None:
                    raise found
                if begin:
                    await asyncio.sleep(0)

    async def _look_in_chunks(self, chunks: Sequence[OpenChunk]) -> None:
        """TableError; ChunkReplaced, ShardLost."""
        for chunk in chunks:
            if not self._may_have_newer(chunk):
                continue
            if not self._keys:
                self._keys = await asyncio.to_thread(sorted, {key for key, _ in self._rows})
            begin, end = bisect_left(self._keys, chunk.first_key), bisect_right(self._keys, chunk.last_key)
            for at in range(begin, end, _KEYS_OF_LOOKUP):
                await self._look_in_chunk(chunk, self._keys[at : min(at + _KEYS_OF_LOOKUP, end)])
                await asyncio.sleep(0)

    async def _look_in_chunk(self, chunk: OpenChunk, keys: Sequence[bytes]) -> None:
        lookup = self._tablet.lookup(TIMESTAMP_MAX)
        for key in keys:
            newest = await lookup.newest_in(chunk, key)
            if newest > self._seen_up_to:
                raise self._too_new(key, newest)

    def _may_have_newer(self, chunk: OpenChunk) -> bool:
        return chunk.record.greatest_timestamp > self._seen_up_to

    def _newer_in_store(self, store: RowStore, rows: Sequence[NewRow]) -> TableError | None:
        if store.greatest_timestamp <= self._seen_up_to:
            return None
        for key, _ in rows:
            versions = store.versions(key)
            if versions and (newest := timestamp_of(versions[-1])) > self._seen_up_to:
                return self._too_new(key, newest)
        return None

    def _too_new(self, key: bytes, timestamp: int) -> TableError:
        shown = self._tablet.transactions.shown(key)
        text = f"Row lock conflict: row {shown} of {self._tablet.name} was written at timestamp {timestamp}"
        return TableError("ROW_LOCK_CONFLICT", f"{text}, after the transaction began at {self._start}", _BEGIN_AGAIN)

    async def encode(self, timestamp: int | None) -> None:
        """Encode the rows for `commands`, many in a thread."""
        columns = self._columns = self._tablet.value_columns
        writes = [(timestamp or 0, self._rows)]
        if len(self._rows) <= ROWS_OF_TURN:
            self._entry = encode_entry(columns, writes) if self._rows else b""
        else:
            self._entry = await asyncio.to_thread(encode_entry, columns, writes)
        feed = self._tablet.feed if self._rows else None
        if feed is not None and timestamp is not None:
            transaction = self._tablet.transactions.decided
            name = None if transaction is None else transaction.hex()
            self._changes = feed.commit([CommittedRows(timestamp, name, self._rows)])
            await self._changes.hold()

    def commands(self, timestamp: int | None) -> Sequence[Command]:
        """Return what `encode` made ready. CommitRefused: the tablet was lost since the part's turn."""
        if not self._is_current:
            raise CommitRefused(f"{self._tablet.name} was lost while rows were encoded")
        if timestamp is None:
            head = self._head
            assert head is not None, "prepares says where the decision is made"
            value = [head.encode(), self._entry]
            return [Write(prepared_key(head.transaction), value, sum(map(len, value)))]
        self._planned = self._tablet.plan(self._entry, [(timestamp, self._rows)])
        if self._move is None:
            return self._planned.commands
        return [*self._planned.commands, *self._tablet.progress.commands(self._move)]

    def beside(self) -> Sequence[TabletCommands]:
        """Return what writes the rows' changes to the tablet's change feed."""
        return () if self._changes is None else (self._changes.commands(),)

    def told(self, error: BaseException | None) -> Outcome[None]:
        """Apply what is durable; done when rows are visible, or prepared and locked."""
        if self._changes is not None:
            self._changes.told(error)
        outcome: Outcome[None] = Outcome()
        place, planned = self._place, self._planned
        assert place is not None
        if error is not None:
            self.leave()
            outcome.set_exception(error)
        elif planned is not None:
            if self._move is not None:
                self._tablet.progress.apply(self._move)
            self._hold_no_more()
            place.apply(planned, lambda: outcome.set_result(None))
        else:
            assert self._head is not None
            if self._is_current:
                is_in_doubt, size = self._is_received, len(self._entry)
                rows = LockedRows(self._head, self._columns, self._rows, size, is_in_doubt=is_in_doubt)
                self._tablet.transactions.lock(rows)
            self.leave()
            outcome.set_result(None)
        return outcome

    def leave(self) -> None:
        """Give the place up."""
        if self._changes is not None:
            self._changes.leave()
        self._hold_no_more()
        if self._place is not None:
            self._place.leave()

    def _hold_no_more(self) -> None:
        transactions = self._tablet.transactions
        if transactions.holding is self._place:
            transactions.holding = None

    @property
    def _is_current(self) -> bool:
        """Return True unless the tablet was lost, or started again, since the part's turn."""
        return self._kv is not None and self._tablet.runs(self._kv)


async def received_part(tablet: SortedTablet, sent: SentRows) -> RowsPart:
    """Return rows that another node has sent, as it got them from `RowsPart.sent`. ValueError; TableError
    TABLE_CHANGED."""
    is_short = len(sent.stored) <= _READ_IN_LOOP
    columns = tablet.value_columns
    rows = _received(sent.stored, columns) if is_short else await asyncio.to_thread(_received, sent.stored, columns)
    if not rows:
        raise ValueError("a part without rows was sent")
    part = RowsPart(tablet, rows, sent.start, partial(tablet.share.check_takes_rows, tablet))
    part.note_received()
    return part


def _received(stored: bytes | memoryview, columns: int) -> Sequence[NewRow]:
    rows = list(decode_entries(bytes(stored)))
    if any(row.columns != columns for row in rows):
        raise TableError("TABLE_CHANGED", "the table was altered before its rows were committed", "Send them again.")
    return [NewRow(row.key, row.version[KIND_AT:]) for row in rows]
