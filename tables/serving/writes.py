"""Writes to sorted tablets: gathered while a commit is on its way, committed together, applied once they are durable.

    write:   waiting --its tablet has no commit on its way--> in flight --durable--> in the store, acknowledged
                                                                       --refused--> gone without a trace
                                                                       --lost-----> nobody knows; a start reads it

What waits is taken in the order of arrival, so a write waits for an earlier one of its rows, and none fails for
another. A write to several tablets of a cell stands in the queue of each; it is taken when it is the first in all of
them and no commit of theirs is on its way, as one commit with one timestamp.
"""

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Final, NamedTuple, Protocol

from pqbroker.pq.serving.timestamps import NodeTime
from pqbroker.storage.engine import CommitRefused
from pqbroker.storage.kv.commands import Command
from pqbroker.storage.kv.joint_request import TabletCommands, execute_together
from pqbroker.storage.kv.tablet import KeyValueTablet
from pqbroker.storage.outcome import Outcome
from pqbroker.storage.tablets.tablet import TabletStorage
from pqbroker.tables.refusals import TableError
from pqbroker.tables.serving.feed_progress import FeedMove, FeedProgress
from pqbroker.tables.sorted.log_entries import NewRow, encode_entry

COMMIT_BYTES: Final = 4 << 20
"""Bytes of rows that writes are gathered to; one write may have more."""
ROWS_OF_TURN: Final = 5_000
"""Rows that a commit encodes, or applies, in one turn of the loop. A thread encodes a larger commit, which is applied
in slices of this size."""
_MOVED_APART = "tablets of the rows came to live in different cells while the write waited"
_SEND_APART = "Send the rows of each cell's tablets in a request of their own; …/tablets shows pivots and cells."
_NO_TIMESTAMPS = "commit timestamps are not reserved yet; try again"

Stamped = tuple[int, Sequence[NewRow]]
"""A write with the timestamp of its commit."""


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


class _Write:
    """A write that waits: its rows by queue, and the progress that the first one's tablet makes with them."""

    __slots__ = ("move", "outcome", "parts", "size")

    def __init__(
        self, parts: "Sequence[tuple[TabletWrites, Sequence[NewRow]]]", move: FeedMove | None = None
    ) -> None:
        self.parts = parts
        self.move = move
        self.size = sum(len(row.key) + len(row.body) for _, rows in parts for row in rows)
        self.outcome: Outcome[int] = Outcome()

    @property
    def is_of_one_cell(self) -> bool:
        """Return True unless some of its tablets have moved since it was sent."""
        if len(self.parts) == 1:
            return True
        first, *others = [queue.storage for queue, _ in self.parts]
        return all(storage.shares_cell(first) for storage in others)

    @property
    def is_simple(self) -> bool:
        """Return True if it may share a commit."""
        return len(self.parts) == 1 and self.move is None


class InFlight(NamedTuple):
    """A commit on its way: the least timestamp in it, and its end."""

    least_timestamp: int
    end: Outcome[None]


class TabletWrites:
    """Writes of one tablet over all its generations."""

    __slots__ = ("_closed", "_in_flight", "_is_held", "_target", "_time", "_waiting", "_wakes")

    def __init__(self, target: WriteTarget, time: NodeTime) -> None:
        self._target = target
        self._time = time
        self._waiting: deque[_Write] = deque()
        self._in_flight: InFlight | None = None
        self._is_held = True
        self._closed: BaseException | None = None
        self._wakes = False
        """True while a turn of the loop is asked for, or a reservation of timestamps is on its way."""

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
        return len(self._waiting)

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
        if self._waiting:
            await self._waiting[-1].outcome.wait()
        elif self._in_flight is not None:
            await self._in_flight.end.wait()

    def close(self, cause: BaseException) -> None:
        """Fail what waits and what comes until the next `start`."""
        self._is_held, self._closed = True, cause
        waiting, self._waiting = self._waiting, deque()
        for write in waiting:
            _settle(write, cause)

    def _wake(self) -> None:
        """Commit in the loop's next turn, with what comes until then."""
        if not self._wakes:
            self._wakes = True
            asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self, *, is_prepared: bool = False) -> None:
        """Commit what waits first. `is_prepared`: a reservation of timestamps was tried, well or not."""
        self._wakes = False
        if not self._is_ready or not self._waiting:
            return
        first = self._waiting[0]
        if first.outcome.done():  # another queue of it was closed
            self._waiting.popleft()
            self._wake()
            return
        if not all(queue._is_ready and queue._waiting and queue._waiting[0] is first for queue, _ in first.parts):
            return
        if not first.is_of_one_cell:
            self._refuse_first(first, TableError("SEVERAL_CELLS", _MOVED_APART, _SEND_APART))
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
        if len(first.parts) > 1 or first.move is not None:
            self._take_first(first)
            _Commit([first], [self._time.timestamps.rule.give(now_ms)]).begin()
            return
        writes: list[_Write] = []
        size = 0
        while self._waiting and self._waiting[0].is_simple and (not writes or size < COMMIT_BYTES):
            writes.append(self._waiting.popleft())
            size += writes[-1].size
        _Commit(writes, [self._time.timestamps.rule.give(now_ms) for _ in writes]).begin()

    def _take_first(self, first: _Write) -> None:
        for queue, _ in first.parts:
            queue._waiting.popleft()

    def _refuse_first(self, first: _Write, refusal: BaseException) -> None:
        self._take_first(first)
        _settle(first, refusal)
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
        if self._waiting:
            self._wake()

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
            wanted.outcome.set_exception(queue._closed)
            return wanted.outcome
    for queue, _ in parts:
        queue._waiting.append(wanted)
    for queue, _ in parts:
        queue._wake()
    return wanted.outcome


class _Part:
    """One tablet's part of a commit."""

    __slots__ = ("columns", "kv", "planned", "queue", "writes")

    def __init__(self, queue: TabletWrites, writes: Sequence[Stamped]) -> None:
        self.queue = queue
        self.writes = writes
        self.kv = queue._target.kv
        self.columns = queue._target.value_columns
        self.planned: Planned | None = None

    @property
    def is_current(self) -> bool:
        """Return True unless the tablet was lost, or started again, since the commit began."""
        return self.queue._closed is None and self.queue._target.kv is self.kv

    def encode(self) -> bytes:
        """Return the log entry, in any thread."""
        return encode_entry(self.columns, self.writes) if any(rows for _, rows in self.writes) else b""


class _Commit:
    """One commit of writes of the same tablets."""

    __slots__ = ("_end", "_parts", "_timestamps", "_writes")

    def __init__(self, writes: Sequence[_Write], timestamps: Sequence[int]) -> None:
        self._writes = writes
        self._timestamps = timestamps
        self._end: Outcome[None] = Outcome()
        self._parts = [
            _Part(queue, [(stamp, one.parts[number][1]) for one, stamp in zip(writes, timestamps, strict=True)])
            for number, (queue, _) in enumerate(writes[0].parts)
        ]

    def begin(self) -> None:
        """Have the tablets' parts on their way, encoded here or, where there are many rows, in a thread."""
        for part in self._parts:
            part.queue._in_flight = InFlight(self._timestamps[0], self._end)
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
        for part, entry, move in zip(self._parts, entries, _moves(self._writes), strict=False):
            part.planned = part.queue._target.plan(entry, part.writes)
            commands.append(part.queue._commands(part.planned, move))
        execute_together(commands).add_done_callback(self._told)

    def _told(self, request: Outcome[None]) -> None:
        error = request.exception()
        if error is not None:
            self._finish(error)
            return
        for part in self._parts:
            if part.planned is not None:
                part.queue._target.durable(part.planned)
        self._apply_on(self._slices())

    def _slices(self) -> Iterator[None]:
        """Apply the rows, as many with each item as a turn of the loop applies."""
        count = 0
        for part in self._parts:
            for rows in () if part.planned is None else part.queue._target.apply(part.planned):
                count += rows
                if count >= ROWS_OF_TURN:
                    yield
                    count = 0

    def _apply_on(self, slices: Iterator[None]) -> None:
        """Apply a slice, and the next in another turn of the loop."""
        try:
            next(slices)
        except StopIteration:
            self._finish(None)
        else:
            asyncio.get_running_loop().call_soon(self._apply_on, slices)

    def _finish(self, error: BaseException | None) -> None:
        for part, move in zip(self._parts, _moves(self._writes), strict=False):
            part.queue._done(part.planned if error is None else None, move)
        self._end.set_result(None)
        for one, timestamp in zip(self._writes, self._timestamps, strict=True):
            if error is None:
                one.outcome.set_result(timestamp)
            else:
                _settle(one, error)


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


def _settle(one: _Write, error: BaseException) -> None:
    if not one.outcome.done():
        one.outcome.set_exception(error)


