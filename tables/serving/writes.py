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
from functools import partial
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
from pqbroker.tables.sorted.log_entries import NewRow

COMMIT_BYTES: Final = 4 << 20
"""Bytes of rows that writes are gathered to; one write may have more."""
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

    def plan(self, writes: Sequence[Stamped]) -> Planned:
        """Plan a commit of writes; one at a time."""

    def apply(self, planned: Planned) -> None:
        """The plan is durable."""


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
            _commit([first], [self._time.timestamps.rule.give(now_ms)])
            return
        writes: list[_Write] = []
        size = 0
        while self._waiting and self._waiting[0].is_simple and (not writes or size < COMMIT_BYTES):
            writes.append(self._waiting.popleft())
            size += writes[-1].size
        _commit(writes, [self._time.timestamps.rule.give(now_ms) for _ in writes])

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

    def _begun(self, writes: Sequence[Stamped], end: Outcome[None]) -> Planned:
        """Plan writes, which are on their way then."""
        planned = self._target.plan(writes)
        self._in_flight = InFlight(writes[0][0], end)
        return planned

    def _done(self, planned: Planned, move: FeedMove | None, error: BaseException | None) -> None:
        self._in_flight = None
        if error is None:
            self._target.apply(planned)
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


def _commit(writes: Sequence[_Write], timestamps: Sequence[int]) -> None:
    """Commit writes of the same tablets."""
    end: Outcome[None] = Outcome()
    begun: list[tuple[TabletWrites, Planned]] = []
    for number, (queue, _) in enumerate(writes[0].parts):
        stamped = [(stamp, one.parts[number][1]) for one, stamp in zip(writes, timestamps, strict=True)]
        begun.append((queue, queue._begun(stamped, end)))
    told = partial(_told, writes, timestamps, begun, end)
    parts = [queue._commands(planned, move) for (queue, planned), move in zip(begun, _moves(writes), strict=False)]
    execute_together(parts).add_done_callback(told)


def _told(
    writes: Sequence[_Write], timestamps: Sequence[int], begun: Sequence[tuple[TabletWrites, Planned]],
    end: Outcome[None], request: Outcome[None],
) -> None:
    error = request.exception()
    for (queue, planned), move in zip(begun, _moves(writes), strict=False):
        queue._done(planned, move, error)
    end.set_result(None)
    for one, timestamp in zip(writes, timestamps, strict=True):
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


