"""The KV tablet: ordered keys to values, all of its index in memory; a request is applied whole or not at all (B.1).

    request:   waiting --no key of it in flight--> in flight --durable--> applied
                                                             --refused--> gone without a trace
                                                             --lost-----> gone, and so is everything that waits

Requests wait in order. One that changes reference counts waits until nothing is in flight, since a count that is
planned on another that is then refused would delete what is held, or keep what is not. A request of several tablets
(joint_request.py) waits in the queue of each, and is admitted by all of them in one turn.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from time import perf_counter
from typing import NamedTuple, Protocol

from pqbroker.storage.counters import KeyValueCounters
from pqbroker.storage.engine import Batch, BlobKey, ShardLost
from pqbroker.storage.kv.commands import MAIN, Command, KeyRange, KeyValueError
from pqbroker.storage.kv.key_ranges import GENERATION_KEY, keys_within, touches
from pqbroker.storage.kv.ordered_entries import OrderedEntries
from pqbroker.storage.kv.owned_keys import Changes, OwnedKeys, Put, as_commands
from pqbroker.storage.kv.plan import Plan, Planner
from pqbroker.storage.kv.rows import Entry
from pqbroker.storage.kv.start import read_rows
from pqbroker.storage.kv.value_parts import ValueReader
from pqbroker.storage.outcome import Outcome, Told
from pqbroker.storage.pool_status import Colour
from pqbroker.storage.tablets.tablet import USER_CHANNEL, TabletStorage
from pqbroker.storage.unreadable import StoredUnreadable


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
        self._entries = OrderedEntries()
        self._references: dict[BlobKey, int] = {}
        """Holders of each blob that has more than one."""
        self._waiting: deque[_Request | JointRequest] = deque()
        self._busy: set[bytes] = set()
        self._in_flight = 0
        self._lost: ShardLost | None = None
        self._planner = Planner(storage, self._entries, self._references, inline_bytes_max, user_generation=0)
        self._owned = OwnedKeys(storage, self._entries.by_key, inline_bytes_max)
        self._stores: list[Changes] = []
        """Changes of `store` that are not durable yet."""
        reader = ValueReader(storage, self._entries.by_key, self._counters)
        self.read, self.verify = reader.read, reader.verify

    async def start(self) -> None:
        """Read the tablet's rows. Raises StoredUnreadable, and then holds none of them; ShardLost."""
        try:
            rows = await read_rows(self._storage)
        except StoredUnreadable as unreadable:
            self._storage.found(unreadable)
            raise
        generation = rows.pop(GENERATION_KEY, None)
        self._entries.apply(rows)
        if self._storage.is_limited:
            self._storage.holds_inline(USER_CHANNEL, sum(entry.size for entry in rows.values() if entry.is_inline))
        holders = Counter(blob for entry in rows.values() if entry.is_shared for blob in entry.blobs())
        self._references.update((blob, count) for blob, count in holders.items() if count > 1)
        if generation is not None:
            self._planner.user_generation = int.from_bytes(generation.value, "big")

    def __len__(self) -> int:
        return len(self._entries)

    def entry(self, key: bytes) -> Entry | None:
        """Return what is durable under the key."""
        return self._entries.get(key)

    def keys(self, lo: bytes = b"", hi: bytes | None = None) -> Iterator[tuple[bytes, Entry]]:
        """Durable keys with lo <= key < hi in order. To be used up before anything is awaited."""
        for key in self._entries.irange(lo, hi, (True, False)):
            yield key, self._entries[key]

    def execute(self, commands: Sequence[Command]) -> Outcome[None]:
        """Apply the commands together or not at all; durable and visible here when the outcome comes.

        Fails with KeyValueError (nothing of it can be), CommitRefused (nothing was stored) or ShardLost.
        """
        return Outcome.of(partial(self.submit, commands))

    def submit(self, commands: Sequence[Command], told: Told) -> None:
        """Execute as `execute` does, and report to `told` by one call, which is never within this one."""
        if self._lost is not None:
            asyncio.get_running_loop().call_soon(told, self._lost)
            return
        request = _Request(commands, told)
        if self._waiting or not self._admit(request):
            self._waiting.append(request)

    def store(self, puts: Sequence[Put], gone: Sequence[bytes], told: Told) -> None:
        """Set keys and delete others, together or not at all; `told` as `Shard.submit` has it, or with KeyValueError.

        They have one owner, of whose requests none about the same keys is on its way. So the usual request is planned
        without commands, conflicts and counts; one that needs these becomes a request as others.
        """
        batch = Batch()
        changes: Changes | None = None
        if self._lost is None and not self._waiting and not self._in_flight:
            try:
                changes = self._owned.plan(batch, puts, gone, self._clock())
            except ShardLost as refusal:
                asyncio.get_running_loop().call_soon(told, refusal)
                return
            except BaseException as defect:
                self.give_up(defect)
                raise
        if changes is None:
            self.submit(as_commands(puts, gone), told)
            return
        self._stores.append(changes)
        self._storage.submit(batch, partial(self._stored, batch, changes, told, perf_counter()))

    def keys_within(self, within: KeyRange | None) -> Iterator[tuple[bytes, Entry]]:
        """Durable keys of the range (None: all) in order. To be used up before anything is awaited. KeyValueError."""
        for key in self._entries if within is None else keys_within(self._entries, within):
            yield key, self._entries[key]

    def status(self, channel: int = MAIN) -> Colour:
        """Return how full the place is that values of the channel go to (GetStatus). Raises KeyValueError for no such
        channel."""
        return self._planner.status(channel)

    @property
    def user_generation(self) -> int:
        """Return how often the tablet's users were told to lock out earlier ones (IncrementGeneration). Durable."""
        return self._planner.user_generation

    @property
    def storage(self) -> TabletStorage:
        return self._storage

    @property
    def lost(self) -> ShardLost | None:
        """Return why everything fails from now on; None while the tablet runs."""
        return self._lost

    def is_next(self, request: JointRequest) -> bool:
        """Return True if the request may be planned now: it stands first, or would if it were queued."""
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
        if _is_touched(self, commands):
            return None
        plan = self._planner.plan(commands, self._clock())
        return None if plan.recounts and (self._in_flight or self._stores) else plan

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
            if plan.user_generation is None:
                plan.apply(self._entries, self._references)
            else:
                self._planner.user_generation = plan.user_generation
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
            while tablet._waiting:
                admitted = _admit_first(tablet)
                if admitted is None:
                    break
                due += admitted

    def _admit(self, request: "_Request") -> bool:
        """Commit the request, unless something in flight stands before it."""
        if _is_touched(self, request.commands):
            return False
        try:
            plan = self._planner.plan(request.commands, self._clock())
        except (KeyValueError, ShardLost) as refusal:
            asyncio.get_running_loop().call_soon(request.told, refusal)
            return True
        except BaseException as defect:
            self.give_up(defect)
            raise
        if plan.recounts and (self._in_flight or self._stores):
            return False
        self.begin(plan)
        self._storage.submit(plan.batch, partial(self._settle, plan, request.told))
        return True

    def _settle(self, plan: Plan, told: Told, error: BaseException | None) -> None:
        self.end(plan, error)
        try:
            told(error)
        finally:
            if self._waiting:
                self.advance()

    def _stored(
        self, batch: Batch, changes: Changes, told: Told, begun_s: float, error: BaseException | None
    ) -> None:
        self._stores.remove(changes)
        counters = self._counters
        if error is None:
            self._entries.apply(changes)
            counters.requests.observe(perf_counter() - begun_s)
            counters.commands += len(changes)
            counters.written_bytes += batch.bytes
        else:
            counters.failed += 1
            if isinstance(error, ShardLost):
                self._fail(error)
        try:
            told(error)
        finally:
            if self._waiting:
                self.advance()

    def give_up(self, defect: BaseException) -> None:
        """A request could not be planned, a defect of ours: all that waits fails, and the tablet is restarted."""
        self._storage.wear_out()
        self._fail(ShardLost(f"tablet {self._storage.tablet_id} could not plan a request: {defect!r}"))

    def _fail(self, lost: ShardLost) -> None:
        self._lost = lost
        waiting, self._waiting = self._waiting, deque()
        for request in waiting:
            if isinstance(request, _Request):
                request.told(lost)
            else:
                request.finish(lost)
        for request in waiting:
            if not isinstance(request, _Request):
                for tablet in request.tablets:
                    tablet.advance()


def _is_touched(tablet: KeyValueTablet, commands: Sequence[Command]) -> bool:
    """Return True if something in flight changes what the commands change or read."""
    busy = tablet._busy.union(*tablet._stores) if tablet._stores else tablet._busy
    return bool(busy) and touches(commands, busy)


def _admit_first(tablet: KeyValueTablet) -> "Sequence[KeyValueTablet] | None":
    """Admit what waits first: tablets that have room by it; None when it has to wait on."""
    first = tablet._waiting[0]
    if not isinstance(first, _Request):
        return first.tablets if first.admit() else None
    if not tablet._admit(first):
        return None
    tablet._waiting.popleft()
    return ()


class _Request(NamedTuple):
    """A request that waits."""

    commands: Sequence[Command]
    told: Told
