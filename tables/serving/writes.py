"""Writes to sorted tablets: gathered while a commit is on its way, committed together, applied once they are durable.

    write:   waiting --its tablet has no commit on its way--> in flight --durable--> in the store, acknowledged
                                                                       --refused--> gone without a trace
                                                                       --lost-----> nobody knows; a start reads it

What waits is taken in the order of arrival, so a write waits for an earlier one of its rows, and none fails for
another. A write to several tablets of a cell stands in the queue of each; it is taken when it is the first in all of
them and no commit of theirs is on its way, as one commit with one timestamp.

    place:   waiting --first, no commit on its way--> holding: it is the commit in flight --applied, or left--> ended

A place stands for a part of a commit that others perform (`transacted_rows`), or for the end of one, which goes first.

    write of locked keys:  waiting --first in all its queues--> aside --no lock, no earlier claim--> waiting, the last
                                                                      --lock_wait_s--> refused, ROW_LOCK_CONFLICT

A write that was aside keeps its claims of its keys until it is taken, so that no later one of them overtakes it.

A tablet with a change feed commits its writes in the order of their timestamps: while rows are prepared in it, nothing
else of it begins, and writes that wait longer than `lock_wait_s` are refused. Its commits hold until the feed's
partition is ready for their changes (`change_feed`).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, repeat
from typing import Final, NamedTuple, Protocol

from pqbroker.pq.log.commit_timestamps import TIMESTAMP_MAX
from pqbroker.pq.serving.timestamps import NodeTime
from pqbroker.storage.engine import CommitRefused
from pqbroker.storage.kv.commands import Command
from pqbroker.storage.kv.joint_request import TabletCommands, execute_together
from pqbroker.storage.kv.tablet import KeyValueTablet
from pqbroker.storage.outcome import Outcome
from pqbroker.storage.tablets.tablet import TabletStorage
from pqbroker.tables.refusals import TableError
from pqbroker.tables.serving.change_feed import ChangeFeed, TabletIsHeld
from pqbroker.tables.serving.feed_progress import FeedMove, FeedProgress
from pqbroker.tables.serving.row_locks import LockedRows, RowLocks
from pqbroker.tables.sorted.change_records import CommittedRows
from pqbroker.tables.sorted.log_entries import NewRow, encode_entry

COMMIT_BYTES: Final = 4 << 20
"""Bytes of rows that writes are gathered to; one write may have more."""
COMMIT_ROWS: Final = 20_000
"""Rows of a write behind which none is gathered: their bytes need not be counted then."""
ROWS_OF_TURN: Final = 5_000
"""Rows that a commit encodes, or applies, in one turn of the loop. A thread encodes a larger commit, which is applied
in slices of this size."""
_NO_TIMESTAMPS = "commit timestamps are not reserved yet; try again"

Stamped = tuple[int, Sequence[NewRow]]
"""A write with the timestamp of its commit."""


class MovedApart(TableError):
    """Tablets of one write came to live in different cells while it waited; nothing of it was written."""

    def __init__(self) -> None:
        text = "tablets of the rows came to live in different cells while the write waited"
        super().__init__("SEVERAL_CELLS", text, "Send the rows again; …/tablets shows pivots and cells.")


class Planned(Protocol):
    """The plan of one tablet's part of a commit."""

    @property
    def commands(self) -> Sequence[Command]: ...


class WriteTarget(Protocol):
    """A tablet, as its writes see it."""

    @property
    def kv(self) -> KeyValueTablet: ...
    @property
    def progress(self) -> FeedProgress: ...

    @property
    def value_columns(self) -> int:
        """Return how many value columns rows have now."""

    def plan(self, entry: bytes, writes: Sequence[Stamped]) -> Planned:
        """Plan a commit of writes, given their log entry (empty: they have no row); one at a time."""

    def durable(self, planned: Planned) -> None:
        """The plan is durable: the keys of the log have changed."""

    def apply(self, planned: Planned) -> Iterator[int]:
        """Apply the rows of the plan, some with each item, which is their count. Lookups do not see a part of it."""

    def applied(self, planned: Planned) -> None:
        """All of the plan is applied."""

    @property
    def feed(self) -> ChangeFeed | None:
        """Return the change feed of the tablet; None: it has none."""

    @property
    def lock_wait_s(self) -> float:
        """Return the seconds that a write waits for a locked key."""

    def lock_conflict(self, key: bytes, holder: LockedRows | None) -> TableError:
        """Return the refusal of a write whose key stays locked."""


class _Write:
    """A write that waits: its rows by queue, and the progress that the first one's tablet makes with them."""

    __slots__ = ("aside", "end", "move", "parts")

    def __init__(
        self, parts: "Sequence[tuple[TabletWrites, Sequence[NewRow]]]", move: FeedMove | None = None
    ) -> None:
        self.parts = parts
        self.move = move
        self.end: Outcome[int] = Outcome()
        self.aside: _Aside | None = None
        """Set from the time when a locked key has kept the write from being taken."""

    @property
    def is_of_one_cell(self) -> bool:
        """Return True unless some of its tablets have moved since it was sent."""
        if len(self.parts) == 1:
            return True
        first, *others = [queue.storage for queue, _ in self.parts]
        return all(storage.shares_cell(first) for storage in others)

    @property
    def size(self) -> int:
        """Return the bytes of a simple write; COMMIT_BYTES for one of COMMIT_ROWS: counting would keep the loop."""
        ((_, rows),) = self.parts
        return COMMIT_BYTES if len(rows) >= COMMIT_ROWS else sum(map(len, chain.from_iterable(rows)))

    @property
    def is_simple(self) -> bool:
        """Return True if it may share a commit."""
        return len(self.parts) == 1 and self.move is None

    def set_aside(self, queue: "TabletWrites", key: bytes) -> None:
        """Wait for a key that is locked, or claimed by an earlier write; the queues do not have the write any more."""
        loop = asyncio.get_running_loop()
        holder = queue.locks.by_key.get(key)
        if holder is None:
            earlier = queue.locks.first_claims([NewRow(key, b"")])[0].aside
            holder = None if earlier is None else earlier.holder
        is_first = self.aside is None
        deadline_s = loop.time() + queue._target.lock_wait_s if self.aside is None else self.aside.deadline_s
        self.aside = _Aside(queue, key, holder, deadline_s, loop.call_at(deadline_s, self._give_up))
        for own, rows in self.parts:
            if is_first:
                own.locks.claim(rows, self)
            own._aside[self] = None

    def end_claims(self) -> None:
        """The write begins, or has failed: later ones of its keys may pass."""
        if self.aside is None:
            return
        self.aside.timer.cancel()
        self.aside = None
        for queue, rows in self.parts:
            queue._aside.pop(self, None)
            queue.locks.drop_claims(rows, self)
        for queue, rows in self.parts:
            queue._look_at_claims(rows)

    def fail(self, error: BaseException) -> None:
        """Report a failure, unless it is known already."""
        if not self.end.done():
            self.end.set_exception(error)
        self.end_claims()

    def _give_up(self) -> None:
        aside = self.aside
        assert aside is not None
        self.fail(aside.queue._target.lock_conflict(aside.key, aside.holder))


class _Aside(NamedTuple):
    """Facts of a write that waits, or has waited, for a locked key."""

    queue: "TabletWrites"
    key: bytes
    holder: LockedRows | None
    """None: an earlier write claims the key, and nothing is locked any more."""
    deadline_s: float
    timer: asyncio.TimerHandle


class InFlight(NamedTuple):
    """A commit on its way: the least timestamp in it, and its end. TIMESTAMP_MAX: none is given yet, or locks of its
    rows stand for it."""

    least_timestamp: int
    end: Outcome[None]


class TabletWrites:
    """Writes of one tablet over all its generations."""

    __slots__ = (
        "_aside", "_closed", "_in_flight", "_is_held", "_refusing", "_target", "_time", "_urgent", "_waiting", "_wakes",
        "locks",
    )  # fmt: skip

    def __init__(self, target: WriteTarget, time: NodeTime) -> None:
        self._target = target
        self._time = time
        self._waiting: deque[_Write | QueuePlace] = deque()
        self._urgent: deque[QueuePlace] = deque()
        """Places that go before all that waits."""
        self._aside: dict[_Write, None] = {}
        """Writes that wait for locked keys, in the order of their arrival."""
        self.locks: RowLocks[_Write] = RowLocks()
        self._in_flight: InFlight | None = None
        self._is_held = True
        self._closed: BaseException | None = None
        self._wakes = False
        """True while a turn of the loop is asked for, or a reservation of timestamps is on its way."""
        self._refusing: asyncio.TimerHandle | None = None
        """Set while writes wait for prepared rows of a tablet with a change feed: refuses them."""

    @property
    def storage(self) -> TabletStorage:
        """Return the storage that commits go to."""
        return self._target.kv.storage

    @property
    def in_flight(self) -> InFlight | None:
        return self._in_flight

    @property
    def waiting_count(self) -> int:
        """Return how many writes wait."""
        return len(self._waiting) + len(self._urgent) + len(self._aside)

    @property
    def is_held(self) -> bool:
        """Return True if no commit begins until the next `start`."""
        return self._is_held

    def start(self) -> None:
        """Take writes, and what waited since `hold`."""
        self._is_held, self._closed = False, None
        self._wake()

    async def hold(self) -> None:
        """Begin no commit until the next `start`; return when none is on its way."""
        self._is_held = True
        while self._in_flight is not None:
            await self._in_flight.end.wait()

    async def drained(self) -> None:
        """Return when no write waits, and none is on its way; more may come meanwhile."""
        lasts = (one.end for one in (*reversed(self._waiting), *reversed(self._urgent)) if not one.end.done())
        last = next(lasts, None)
        if last is not None:
            await last.wait()
        elif self._in_flight is not None:
            await self._in_flight.end.wait()
        elif self._aside:
            await next(reversed(self._aside)).end.wait()
        elif self._waiting:  # it has failed in another queue, and leaves this one in its next turn
            self._wake()
            await asyncio.sleep(0)

    def close(self, cause: BaseException) -> None:
        """Fail what waits and what comes until the next `start`."""
        self._is_held, self._closed = True, cause
        while self._urgent:
            self._urgent.popleft().fail(cause)
        while self._waiting or self._aside:  # what fails ends its claims: others wait then that were aside
            one = self._waiting.popleft() if self._waiting else next(iter(self._aside))
            one.fail(cause)

    def unlock(self, rows: LockedRows) -> None:
        """End the locks of prepared rows; writes that they kept aside wait again."""
        if self.locks.unlock(rows):
            self._look_at_claims(rows.rows)
            if self._refusing is not None:
                self._refusing.cancel()
                self._refusing = None

    def _look_at_claims(self, rows: Sequence[NewRow]) -> None:
        """Have the writes wait again that nothing keeps from these keys any more, nor from their others. They stand
        last: to enter several queues at other places could have two commits wait for each other."""
        if not self.locks.is_contended:
            return
        for first in self.locks.first_claims(rows):
            if first in self._aside and _blocked(first) is None:
                assert first.aside is not None
                first.aside.timer.cancel()
                for queue, _ in first.parts:
                    del queue._aside[first]
                    queue._waiting.append(first)
                    queue._wake()

    def _wake(self) -> None:
        """Commit in the loop's next turn, with what comes until then."""
        if not self._wakes:
            self._wakes = True
            asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self, *, is_prepared: bool = False) -> None:
        """Commit what waits first. `is_prepared`: a reservation of timestamps was tried, well or not."""
        self._wakes = False
        if not self._is_ready:
            return
        if self._urgent:
            self._urgent.popleft().hold()
            return
        if not self._waiting:
            return
        if self._awaits_prepared:
            if self._refusing is None:
                loop = asyncio.get_running_loop()
                self._refusing = loop.call_later(self._target.lock_wait_s, self._refuse_waiting)
            return
        first = self._waiting[0]
        if isinstance(first, QueuePlace):
            self._waiting.popleft()
            first.hold()
        elif first.end.done():  # another queue of it was closed
            self._waiting.popleft()
            self._wake()
        elif all(queue._is_free_for(first) for queue, _ in first.parts):
            self._begin_write(first, is_prepared=is_prepared)

    def _is_free_for(self, one: _Write) -> bool:
        return self._is_ready and bool(self._waiting) and self._waiting[0] is one and not self._awaits_prepared

    @property
    def _awaits_prepared(self) -> bool:
        """Return True if rows are prepared in a tablet whose commits are in the order of their timestamps."""
        return bool(self.locks.by_transaction) and self._target.feed is not None

    def _refuse_waiting(self) -> None:
        """Refuse writes that wait for prepared rows, which wait themselves; places have limits of their own."""
        self._refusing = None
        holder = next(iter(self.locks.by_transaction.values()), None)
        if holder is None:
            return
        writes = [one for one in self._waiting if not isinstance(one, QueuePlace)]
        self._waiting = deque(one for one in self._waiting if isinstance(one, QueuePlace))
        for one in writes:
            one.fail(self._target.lock_conflict(holder.rows[0].key, holder))

    def _begin_write(self, first: _Write, *, is_prepared: bool) -> None:
        """Commit a write that is the first in all its queues, and what may share its commit."""
        if (blocked := _blocked(first)) is not None:
            self._take_first(first)
            first.set_aside(*blocked)
            for queue, _ in first.parts:
                queue._wake()
            return
        if not first.is_of_one_cell:
            self._refuse_first(first, MovedApart())
            return
        if (refusal := _refusal_of(first)) is not None:
            self._refuse_first(first, refusal)
            return
        now_ms = self._time.clock()
        reservation = None if is_prepared else self._time.timestamps.prepare(now_ms)
        if reservation is not None:
            self._wakes = True
            reservation.add_done_callback(lambda _: self._begin(is_prepared=True))
            return
        if not self._time.timestamps.rule.can_give:
            self._refuse_first(first, CommitRefused(_NO_TIMESTAMPS))
            return
        if first.is_simple:
            writes = self._take_simple()
        else:
            self._take_first(first)
            writes = [first]
        if self.locks.is_contended:
            for one in writes:
                one.end_claims()
        _Commit(writes, [self._time.timestamps.rule.give(now_ms) for _ in writes]).begin()

    def _take_simple(self) -> list[_Write]:
        """Take writes that may share a commit, the first at least."""
        writes: list[_Write] = []
        size = 0
        while self._waiting and (not writes or size < COMMIT_BYTES):
            one = self._waiting[0]
            if isinstance(one, QueuePlace) or not one.is_simple:
                break
            self._waiting.popleft()
            if self.locks.is_contended and (blocked := _blocked(one)) is not None:
                one.set_aside(*blocked)
                continue
            writes.append(one)
            if self._waiting:
                size += one.size
        return writes

    def _take_first(self, first: _Write) -> None:
        for queue, _ in first.parts:
            queue._waiting.popleft()

    def _refuse_first(self, first: _Write, refusal: BaseException) -> None:
        self._take_first(first)
        first.fail(refusal)
        for queue, _ in first.parts:
            queue._wake()

    @property
    def _is_ready(self) -> bool:
        return self._in_flight is None and not self._is_held

    def _done(self, planned: Planned | None, move: FeedMove | None) -> None:
        """A commit has ended. `planned`: what of it is applied; None: it is refused, or lost."""
        self._in_flight = None
        if planned is not None:
            self._target.applied(planned)
            if move is not None:
                self._target.progress.apply(move)
        if self._waiting or self._urgent:
            self._wake()

    def _put_back(self, writes: "Sequence[_Write]") -> None:
        """Have writes wait first again: their commit did not begin."""
        self._waiting.extendleft(reversed(writes))

    def _commands(self, planned: Planned, move: FeedMove | None) -> TabletCommands:
        moved = () if move is None else self._target.progress.commands(move)
        return self._target.kv, [*planned.commands, *moved]


def write(
    parts: Sequence[tuple[TabletWrites, Sequence[NewRow]]], move: FeedMove | None = None
) -> Outcome[int]:
    """Write rows of tablets of one cell: all of them or none; the timestamp of their commit, when they are durable and
    lookups find them. `move`: the progress that the first part's tablet makes with them. CommitRefused, ShardLost;
    TableError FEED_MOVED."""
    wanted = _Write(parts, move)
    for queue, _ in parts:
        if queue._closed is not None:
            wanted.end.set_exception(queue._closed)
            return wanted.end
    for queue, _ in parts:
        queue._waiting.append(wanted)
    for queue, _ in parts:
        queue._wake()
    return wanted.end


class QueuePlace:
    """The place of a commit that others perform, in the queue of one tablet. `turn` is called once: None, it holds, and
    no write of the tablet begins until it ends; or the reason why it never will."""

    __slots__ = ("_has_ended", "_turn", "end", "holds", "queue")

    def __init__(self, queue: TabletWrites, turn: Callable[[BaseException | None], None]) -> None:
        self.queue = queue
        self._turn = turn
        self._has_ended = False
        self.holds = False
        self.end: Outcome[None] = Outcome()

    def enter(self, *, is_urgent: bool = False) -> None:
        """Hold within this call where nothing is before it, else wait; `is_urgent`: before all that waits already."""
        queue = self.queue
        if queue._closed is not None:
            asyncio.get_running_loop().call_soon(self.fail, queue._closed)
            return
        is_free = is_urgent or not queue._awaits_prepared
        if queue._is_ready and not queue._waiting and not queue._urgent and is_free:
            self.hold()
            return
        (queue._urgent if is_urgent else queue._waiting).append(self)
        queue._wake()

    def hold(self) -> None:
        """The place is the first one, and no commit is on its way."""
        self.holds = True
        self.queue._in_flight = InFlight(TIMESTAMP_MAX, self.end)
        self._turn(None)

    def fail(self, cause: BaseException) -> None:
        """The queue was closed."""
        if not self._has_ended:
            self._end()
            self._turn(cause)

    def given(self, timestamp: int) -> None:
        """The commit of the place, which holds, has this timestamp."""
        assert self.holds
        self.queue._in_flight = InFlight(timestamp, self.end)

    def leave(self) -> None:
        """Give the place up; twice does nothing."""
        if self._has_ended:
            return
        if self.holds:
            self.queue._done(None, None)
        elif self in self.queue._waiting:
            self.queue._waiting.remove(self)
        self._end()

    def apply(self, planned: Planned, applied: Callable[[], None]) -> None:
        """Apply a plan that is durable, some rows in each turn of the loop, and end; then call `applied`."""

        def end() -> None:
            self.queue._done(planned, None)
            self._end()
            applied()

        self.queue._target.durable(planned)
        _apply_on(_in_turns(self.queue._target.apply(planned)), end)

    def _end(self) -> None:
        self._has_ended = True
        self.end.set_result(None)


def _blocked(one: _Write) -> tuple[TabletWrites, bytes] | None:
    """Return a queue in which a write has to wait for a locked key, and the key; None: it passes."""
    for queue, rows in one.parts:
        if queue.locks.is_contended and (key := queue.locks.blocking(rows, one)) is not None:
            return queue, key
    return None


def _in_turns(counts: Iterator[int]) -> Iterator[None]:
    """Yield whenever as many rows were applied as one turn of the loop applies."""
    applied = 0
    for count in counts:
        applied += count
        if applied >= ROWS_OF_TURN:
            yield
            applied = 0


def _apply_on(slices: Iterator[None], end: Callable[[], None]) -> None:
    """Apply a slice, and the next in another turn of the loop; then call `end`."""
    try:
        next(slices)
    except StopIteration:
        end()
    else:
        asyncio.get_running_loop().call_soon(_apply_on, slices, end)


class _Part:
    """One tablet's part of a commit."""

    __slots__ = ("changes", "columns", "kv", "planned", "queue", "writes")

    def __init__(self, queue: TabletWrites, writes: Sequence[Stamped]) -> None:
        self.queue = queue
        self.writes = writes
        self.kv = queue._target.kv
        self.columns = queue._target.value_columns
        self.planned: Planned | None = None
        feed = queue._target.feed
        self.changes = None if feed is None or not self.has_rows else feed.commit(_without_names(writes))
        """Records of its changes; None: the tablet has no change feed."""

    @property
    def has_rows(self) -> bool:
        return any(rows for _, rows in self.writes)

    @property
    def is_current(self) -> bool:
        """Return True unless the tablet was lost, or started again, since the commit began."""
        return self.queue._closed is None and self.queue._target.kv is self.kv

    def encode(self) -> bytes:
        """Return the log entry, in any thread."""
        return encode_entry(self.columns, self.writes) if self.has_rows else b""


class _Commit:
    """One commit of writes of the same tablets."""

    __slots__ = ("_end", "_feeding", "_parts", "_timestamps", "_writes")

    def __init__(self, writes: Sequence[_Write], timestamps: Sequence[int]) -> None:
        self._writes = writes
        self._timestamps = timestamps
        self._end: Outcome[None] = Outcome()
        self._parts = [
            _Part(queue, [(stamp, one.parts[number][1]) for one, stamp in zip(writes, timestamps, strict=True)])
            for number, (queue, _) in enumerate(writes[0].parts)
        ]
        self._feeding: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Have the tablets' parts on their way, encoded here or, where there are many rows, in a thread."""
        for part in self._parts:
            part.queue._in_flight = InFlight(self._timestamps[0], self._end)
        if any(part.changes is not None for part in self._parts):
            self._feeding = asyncio.get_running_loop().create_task(self._feed())
            self._feeding.add_done_callback(self._fed)
        else:
            self._encode_all()

    async def _feed(self) -> None:
        """Have the partitions of change feeds hold for the commit."""
        for part in self._parts:
            if part.changes is not None:
                await part.changes.hold()

    def _fed(self, feeding: "asyncio.Task[None]") -> None:
        error = asyncio.CancelledError() if feeding.cancelled() else feeding.exception()
        if error is None:
            self._encode_all()
        elif isinstance(error, TabletIsHeld) and all(part.is_current for part in self._parts):
            self._withdraw()
        else:
            self._finish(error)

    def _withdraw(self) -> None:
        """Have the writes wait again: a tablet of theirs is held before the commit was sent."""
        for part in self._parts:
            if part.changes is not None:
                part.changes.leave()
            part.queue._put_back(self._writes)
            part.queue._done(None, None)
        self._end.set_result(None)

    def _encode_all(self) -> None:
        if sum(len(rows) for part in self._parts for _, rows in part.writes) <= ROWS_OF_TURN:
            self._send([part.encode() for part in self._parts])
            return
        encoding = asyncio.get_running_loop().run_in_executor(None, self._encode)
        encoding.add_done_callback(self._encoded)

    def _encode(self) -> list[bytes]:
        return [part.encode() for part in self._parts]

    def _encoded(self, encoding: "asyncio.Future[list[bytes]]") -> None:
        if encoding.cancelled() or not all(part.is_current for part in self._parts):
            self._finish(CommitRefused("the tablet was lost while rows were encoded; nothing of them was written"))
        elif (error := encoding.exception()) is not None:
            self._finish(error)
        else:
            self._send(encoding.result())

    def _send(self, entries: Sequence[bytes]) -> None:
        commands: list[TabletCommands] = []
        refusal = self._feed_refusal()
        if refusal is not None:
            self._finish(refusal)
            return
        for part, entry, move in zip(self._parts, entries, _moves(self._writes), strict=False):
            part.planned = part.queue._target.plan(entry, part.writes)
            commands.append(part.queue._commands(part.planned, move))
        commands += [part.changes.commands() for part in self._parts if part.changes is not None]
        execute_together(commands).add_done_callback(self._told)

    def _feed_refusal(self) -> BaseException | None:
        """Return why change feeds that were ready are not so any more."""
        if self._feeding is None:
            return None
        if not all(part.is_current for part in self._parts):
            return CommitRefused("the tablet was lost while its change feed was made ready; nothing was written")
        refusals = (part.changes.refusal() for part in self._parts if part.changes is not None)
        return next((refusal for refusal in refusals if refusal is not None), None)

    def _told(self, request: Outcome[None]) -> None:
        error = request.exception()
        for part in self._parts:
            if part.changes is not None:
                part.changes.told(error)
        if error is not None:
            self._finish(error)
            return
        for part in self._parts:
            if part.planned is not None:
                part.queue._target.durable(part.planned)
        _apply_on(_in_turns(self._applying()), partial(self._finish, None))

    def _applying(self) -> Iterator[int]:
        """Apply the rows, some with each item, which is their count."""
        for part in self._parts:
            if part.planned is not None:
                yield from part.queue._target.apply(part.planned)

    def _finish(self, error: BaseException | None) -> None:
        for part, move in zip(self._parts, _moves(self._writes), strict=False):
            if part.changes is not None:
                part.changes.leave()
            part.queue._done(part.planned if error is None else None, move)
        self._end.set_result(None)
        for one, timestamp in zip(self._writes, self._timestamps, strict=True):
            if error is None:
                one.end.set_result(timestamp)
            else:
                one.fail(error)


def _without_names(writes: Sequence[Stamped]) -> Sequence[CommittedRows]:
    return [CommittedRows(timestamp, None, rows) for timestamp, rows in writes]


def _moves(writes: Sequence[_Write]) -> Iterator[FeedMove | None]:
    """Yield the move of each part of a commit: one alone has any, and its first part makes it."""
    yield writes[0].move
    yield from repeat(None)


def _refusal_of(one: _Write) -> TableError | None:
    """Return why a write is not taken: rows of a topic that were read before its progress moved."""
    if one.move is None:
        return None
    try:
        one.parts[0][0]._target.progress.check(one.move)
    except TableError as refusal:
        return refusal
    return None
