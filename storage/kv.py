"""The KV tablet: ordered keys to values, all of its index in memory; one request is one transaction (spec B.1).

    request:   waiting --no key of it in flight--> in flight --durable--> applied
                                                             --refused--> gone without a trace
                                                             --lost-----> gone, and so is everything that waits

Requests wait in order. One that changes reference counts waits until nothing is in flight, since a count that is
planned on another that is then refused would delete what is held, or keep what is not. A request of several tablets
(together.py) waits in the queue of each, and is admitted by all of them in one turn.
"""

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from time import perf_counter
from typing import Protocol

from sortedcontainers import SortedDict

from pqbroker.storage.counters import KeyValueCounters
from pqbroker.storage.engine import BlobKey, BlobMissing, Buffer, FileRange, ShardLost
from pqbroker.storage.kv_commands import (
    MAIN,
    Command,
    KeyMissing,
    KeyRange,
    KeyValueError,
    Patch,
    ValueChanged,
)
from pqbroker.storage.kv_patch import Patching
from pqbroker.storage.kv_plan import GENERATION_KEY, Plan, Planner, keys_within, touches
from pqbroker.storage.kv_rows import Entry
from pqbroker.storage.kv_start import read_rows
from pqbroker.storage.outcome import Outcome
from pqbroker.storage.status import Colour
from pqbroker.storage.tablet import USER_CHANNEL, TabletStorage
from pqbroker.storage.unreadable import StoredUnreadable

SENT_PIECE_BYTES = 32_768
"""Least mean size of pieces that are sent from their files: each one takes a system call."""
PATCH_ATTEMPTS_MAX = 10
"""How often a request with patches is made, until nothing changes the originals meanwhile."""

Range = tuple[bytes, int, int]
"""Key, offset, size in bytes; size 0 means to the end (spec B.1)."""


class JointRequest(Protocol):
    """A request of several tablets, which waits in the queue of each."""

    @property
    def tablets(self) -> "Sequence[KeyValueTablet]": ...

    def admit(self) -> bool:
        """Commit it, unless it must wait in some tablet. When it need not it has left every queue."""

    def finish(self, error: BaseException | None) -> None: ...


class KeyValueTablet:
    """One tablet's keys. `inline_bytes_max`: smaller values stay in the index. `clock`: milliseconds since 1970.
    `counters` may be those of several tablets."""

    def __init__(
        self,
        storage: TabletStorage,
        *,
        inline_bytes_max: int,
        clock: Callable[[], int],
        counters: KeyValueCounters | None = None,
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._counters = counters or KeyValueCounters()
        self._inline_bytes_max = inline_bytes_max
        self._entries: SortedDict[bytes, Entry] = SortedDict()
        self._references: dict[BlobKey, int] = {}
        """Holders of each blob that has more than one."""
        self._waiting: deque[_Request | JointRequest] = deque()
        self._busy: set[bytes] = set()
        self._in_flight = 0
        self._lost: ShardLost | None = None
        self._planner = self._new_planner(user_generation=0)
        self._chained: Entry | None = None
        self._chain_of: tuple[list[int], list[BlobKey]] = [0], []
        """The chain of the value `_chained`, which was read last."""

    async def start(self) -> None:
        """Read the tablet's rows. Raises StoredUnreadable, and then holds none of them; ShardLost."""
        try:
            rows = await read_rows(self._storage)
        except StoredUnreadable as unreadable:
            self._storage.found(unreadable)
            raise
        generation = rows.pop(GENERATION_KEY, None)
        self._entries = SortedDict(rows)
        if self._storage.is_limited:
            self._storage.holds_inline(USER_CHANNEL, sum(entry.size for entry in rows.values() if entry.is_inline))
        holders = Counter(blob for entry in rows.values() if entry.is_shared for blob in entry.blobs())
        self._references = {blob: count for blob, count in holders.items() if count > 1}
        self._planner = self._new_planner(0 if generation is None else int.from_bytes(generation.value, "big"))

    def __len__(self) -> int:
        return len(self._entries)

    def entry(self, key: bytes) -> Entry | None:
        """What is durable under the key."""
        entry: Entry | None = self._entries.get(key)
        return entry

    def keys(self, lo: bytes = b"", hi: bytes | None = None) -> Iterator[tuple[bytes, Entry]]:
        """Durable keys with lo <= key < hi in order. To be used up before anything is awaited."""
        for key in self._entries.irange(lo, hi, (True, False)):
            yield key, self._entries[key]

    def execute(self, commands: Sequence[Command]) -> Outcome[None]:
        """Apply the commands together or not at all; durable and visible here when the outcome is there.

        Fails with KeyValueError (nothing of it can be), CommitRefused (nothing was stored) or ShardLost.
        """
        if self._lost is not None:
            return Outcome.failed(self._lost)
        request = _Request(commands)
        if self._waiting or not self._admit(request):
            self._waiting.append(request)
        return request.outcome

    async def execute_patching(self, commands: Sequence[Command | Patch]) -> None:
        """As `execute`, with patches among the commands, for which the originals are read before.

        What changes meanwhile is read again. Raises KeyValueError (ValueChanged when an original was changed
        `PATCH_ATTEMPTS_MAX` times), CommitRefused, BlobCorrupt, ShardLost.
        """
        attempts = 1
        while True:
            patching = Patching(commands, self.entry)
            try:
                contents = await self.read_unchanged(patching.originals(), patching.ranges())
                return await self.execute(patching.request(contents))
            except ValueChanged:
                if attempts == PATCH_ATTEMPTS_MAX:
                    raise
                attempts += 1

    def keys_within(self, within: KeyRange | None) -> Iterator[tuple[bytes, Entry]]:
        """Durable keys of the range (None: all) in order. To be used up before anything is awaited. KeyValueError."""
        for key in self._entries if within is None else keys_within(self._entries, within):
            yield key, self._entries[key]

    def status(self, channel: int = MAIN) -> Colour:
        """How full the place is that values of the channel go to (GetStatus). KeyValueError for no such channel."""
        return self._planner.status(channel)

    @property
    def user_generation(self) -> int:
        """How often the tablet's users were told to lock out earlier ones (IncrementGeneration). Durable."""
        return self._planner.user_generation

    @property
    def storage(self) -> TabletStorage:
        return self._storage

    @property
    def lost(self) -> ShardLost | None:
        """Why everything fails from now on; None while the tablet runs."""
        return self._lost

    def is_next(self, request: JointRequest) -> bool:
        """Whether the request may be planned now: it stands first, or would if it were queued."""
        return not self._waiting or self._waiting[0] is request

    def enqueue(self, request: JointRequest) -> None:
        self._waiting.append(request)

    def leave(self, request: JointRequest) -> None:
        """Take the request out of the queue, if it waits there."""
        if self._waiting and self._waiting[0] is request:
            self._waiting.popleft()
        elif request in self._waiting:
            self._waiting.remove(request)

    def plan_part(self, commands: Sequence[Command]) -> Plan | None:
        """A part of a joint request as a plan; None: it must wait. Raises KeyValueError, ShardLost."""
        if self._in_flight and touches(commands, self._busy):
            return None
        plan = self._planner.plan(commands, self._clock())
        return None if plan.recounts and self._in_flight else plan

    def begin(self, plan: Plan) -> None:
        """The plan is on its way to the store: its keys are in flight."""
        plan.begun_s = perf_counter()
        self._in_flight += 1
        self._busy.update(plan.changes)

    def end(self, plan: Plan, error: BaseException | None) -> None:
        """The plan's commit is done: apply it, or forget it. `advance` has to follow."""
        self._in_flight -= 1
        self._busy.difference_update(plan.changes)
        counters = self._counters
        if error is None:
            self._apply(plan)
            counters.requests.observe(perf_counter() - plan.begun_s)
            counters.commands += plan.commands
            counters.written_bytes += plan.batch.bytes
        else:
            counters.failed += 1
        if isinstance(error, ShardLost):
            self._fail(error)

    def advance(self) -> None:
        """Admit what need not wait any more, here and wherever that makes room."""
        due = [self]
        while due:
            tablet = due.pop()
            waiting = tablet._waiting
            while waiting:
                first = waiting[0]
                if isinstance(first, _Request):
                    if not tablet._admit(first):
                        break
                    waiting.popleft()
                elif first.admit():
                    due += first.tablets
                else:
                    break

    async def read(self, ranges: Sequence[Range]) -> list[list[Buffer]]:
        """The bytes of each range of a durable value as buffers in order, read together. Short at a value's end.

        Raises KeyMissing, BlobCorrupt, ShardLost; BlobMissing when a value is deleted while it is read.
        """
        self._counters.reads += len(ranges)
        parts: list[list[tuple[BlobKey, int, int] | Buffer]] = [self._locate(*item) for item in ranges]
        stored = [part for found in parts for part in found if isinstance(part, tuple)]
        data = iter(await self._storage.read(stored) if stored else ())
        return [[next(data) if isinstance(part, tuple) else part for part in found] for found in parts]

    async def verify(self, item: Range) -> list[Buffer | FileRange] | None:
        """As `read` of one range, for bytes that are only to be sent; None when their pieces are too small for that."""
        parts = self._locate(*item)
        stored = [part for part in parts if isinstance(part, tuple)]
        if len(parts) * SENT_PIECE_BYTES > item[2]:
            return None
        self._counters.reads += 1
        data = iter(await self._storage.verify(stored) if stored else ())
        return [next(data) if isinstance(part, tuple) else part for part in parts]

    async def read_unchanged(
        self, entries: Sequence[tuple[bytes, Entry]], ranges: Sequence[Range]
    ) -> list[list[Buffer]]:
        """As `read`, of the values that these entries are; ValueChanged when a request deletes blobs of them."""
        try:
            return await self.read(ranges)
        except BlobMissing:
            await self.execute(())  # behind this, the request that deleted them shows
            for key, entry in entries:
                if self.entry(key) is not entry:
                    raise ValueChanged(key) from None
            raise

    def _locate(self, key: bytes, offset: int, size: int) -> list[tuple[BlobKey, int, int] | Buffer]:
        """The parts of a range: what to read of each blob, or the bytes themselves."""
        entry: Entry | None = self._entries.get(key)
        if entry is None:
            raise KeyMissing(key)
        end = min(offset + size, entry.size) if size else entry.size
        if entry.is_inline:
            return [entry.value[offset:end]] if offset < end else []
        found: list[tuple[BlobKey, int, int] | Buffer] = []
        starts, blobs = self._chain(entry)
        index = bisect_right(starts, offset) - 1
        while offset < end:
            stop = min(end, starts[index + 1])
            found.append((blobs[index], offset - starts[index], stop - offset))
            offset = stop
            index += 1
        return found

    def _chain(self, entry: Entry) -> tuple[list[int], list[BlobKey]]:
        """Where the blobs of a value begin, and where the last one ends; the blobs. Neighbours are read one by one."""
        if self._chained is not entry:
            self._chained = entry
            self._chain_of = list(accumulate(entry.pieces, initial=0)), list(entry.blobs())
        return self._chain_of

    def _admit(self, request: "_Request") -> bool:
        """Commit the request, unless something in flight stands before it."""
        if self._in_flight and touches(request.commands, self._busy):
            return False
        try:
            plan = self._planner.plan(request.commands, self._clock())
        except (KeyValueError, ShardLost) as refusal:
            request.finish(refusal)
            return True
        except BaseException as defect:
            self.give_up(defect)
            raise
        if plan.recounts and self._in_flight:
            return False
        request.plan = plan
        self.begin(plan)
        self._storage.commit(plan.batch).add_done_callback(partial(self._settle, request))
        return True

    def _settle(self, request: "_Request", committed: Outcome[None]) -> None:
        plan = request.plan
        assert plan is not None
        error = committed.exception()
        self.end(plan, error)
        try:
            request.finish(error)
        finally:
            if self._waiting:
                self.advance()

    def _apply(self, plan: Plan) -> None:
        if plan.user_generation is not None:
            self._planner.user_generation = plan.user_generation
            return
        entries = self._entries
        for key, entry in plan.changes.items():
            if entry is None:
                entries.pop(key, None)
            else:
                entries[key] = entry
        for blob, count in plan.recounts.items():
            if count > 1:
                self._references[blob] = count
            else:
                self._references.pop(blob, None)

    def give_up(self, defect: BaseException) -> None:
        """A request could not be planned, a defect of ours: all that waits fails, and the tablet is started anew."""
        self._storage.wear_out()
        self._fail(ShardLost(f"tablet {self._storage.tablet_id} could not plan a request: {defect!r}"))

    def _fail(self, lost: ShardLost) -> None:
        self._lost = lost
        waiting, self._waiting = self._waiting, deque()
        for request in waiting:
            request.finish(lost)
        for request in waiting:
            if not isinstance(request, _Request):
                for tablet in request.tablets:
                    tablet.advance()

    def _new_planner(self, user_generation: int) -> Planner:
        return Planner(self._storage, self._entries, self._references, self._inline_bytes_max, user_generation)


class _Request:
    """A request between its call and its outcome."""

    __slots__ = ("commands", "outcome", "plan")

    def __init__(self, commands: Sequence[Command]) -> None:
        self.commands = commands
        self.outcome: Outcome[None] = Outcome()
        self.plan: Plan | None = None

    def finish(self, error: BaseException | None) -> None:
        """Tell the caller."""
        if error is None:
            self.outcome.set_result(None)
        else:
            self.outcome.set_exception(error)
