"""One coordinator tablet and its residents, kind by kind: what is stored of them, and their timers.

    made --start--> open --close--> closed --start--> open, in the next generation of the tablet
                                           '-> refused, when what is stored is unreadable

Closed, it answers NOT_COORDINATOR, and no timer is left; what was stored stays.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple

from pqbroker.broker.services.coordination.residents import ResidentKind
from pqbroker.pq.transactions.participants import Participant
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.kept_errors import raised_again
from pqbroker.storage.tablets.base_tablet import BaseTablet, HeldTablet
from pqbroker.storage.tablets.hosting import TabletPage, TabletSample
from pqbroker.storage.tablets.row_sets import RowChanges
from pqbroker.storage.tablets.tablet import TabletStorage
from pqbroker.storage.uninterrupted import Uninterrupted
from pqbroker.storage.unreadable import StoredUnreadable

log = logging.getLogger(__name__)

_RESTARTING = KafkaError(ErrorCode.NOT_COORDINATOR, "the coordinator is being restarted: retry")


class _Timer(NamedTuple):
    """uvloop gives a handle without a time for one that is due at once: `at_s` is the loop's time."""

    kind: ResidentKind
    at_s: float
    handle: asyncio.Handle


class Coordinator:
    """The tablet, over all its generations. Sessions go by the loop's clock, which jumps only where tests move it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._kinds: list[ResidentKind] = []
        self._stores: set[asyncio.Task[None]] = set()
        self._timers: dict[Hashable, _Timer] = {}
        """Timers by resident, at most one each."""
        self._ahead_ms = 0
        self._refusal: KafkaError | None = _RESTARTING
        self.is_closed = True
        self.participant_of_commits: Participant | None = None
        """The tablet as the home of decisions; None: it is none's."""

    _tablet: BaseTablet
    _storage: TabletStorage

    def admit(self, kind: ResidentKind) -> None:
        """Host residents of a kind, from the next start on."""
        self._kinds.append(kind)

    def participant(self, partition: int) -> Participant | None:
        """Return the tablet as a participant of commits, as `TransactedTablet` says."""
        return None if partition else self.participant_of_commits

    async def start(self, storage: TabletStorage) -> None:
        """Load every resident; sessions have their whole time from now. ShardLost.

        What is unreadable costs all residents of the tablet: they stay as they are, and it refuses to serve any.
        """
        self._storage, self._tablet = storage, BaseTablet(storage)
        stored: list[Sequence[Any]] = [()] * len(self._kinds)
        refusal = None
        try:
            await self._tablet.start()
            stored = [self._read(kind) for kind in self._kinds]
        except StoredUnreadable as unreadable:
            log.error("the groups and transactional ids of a coordinator are not served: %s", unreadable)
            told = f"the coordinator is not served: {unreadable}"
            refusal = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, told)
        self.is_closed = False
        self._refusal = refusal
        for kind, loaded in zip(self._kinds, stored, strict=True):
            kind.load(loaded)

    def check(self) -> None:
        """Check that residents are served: KafkaError NOT_COORDINATOR while it restarts, COORDINATOR_NOT_AVAILABLE."""
        if self._refusal is not None:
            raise raised_again(self._refusal)

    def close(self) -> None:
        """Answer every request that waits, and stop the timers."""
        if not self.is_closed:
            self.is_closed = True
            for timer in self._timers.values():
                timer.handle.cancel()
            self._timers.clear()
            for kind in self._kinds:
                kind.close()

    async def hold(self) -> None:
        """Answer what waits; callers from now on have to come again. Return when everything is stored."""
        self._refusal = _RESTARTING
        await self.stop()

    async def stop(self) -> None:
        self.close()
        if self._stores:
            await asyncio.wait(self._stores)
        await self._tablet.stop()

    def describe(self) -> TabletPage:
        return TabletPage(row_sets={name: len(rows) for name, rows in self._tablet.row_sets.items()})

    def samples(self) -> Iterable[TabletSample]:
        return [TabletSample("residents", len(kind), (kind.rows.name,)) for kind in self._kinds]

    @property
    def generation(self) -> int:
        """Return the generation of the tablet that runs: later instances have greater ones."""
        return self._storage.generation

    def now_ms(self) -> int:
        """The time that residents go by."""
        return int(self._loop.time() * 1000) + self._ahead_ms

    def advance(self, by_ms: int) -> None:
        """Let time pass at once, and wake every resident that waits for a time: too early does no harm."""
        self._ahead_ms += by_ms
        waiting, self._timers = self._timers, {}
        for resident, timer in waiting.items():
            timer.handle.cancel()
            timer.kind.wake(resident)

    def store(
        self, plan: Callable[[RowChanges], None], done: Callable[[BaseException | None], None]
    ) -> Awaitable[None]:
        """Change what is stored, in the order of these calls. `done` is called when that is durable, or why it is not.

        Awaited it raises what failed: CommitRefused, ShardLost. A caller that is cancelled does not undo it.
        """
        task = self._loop.create_task(self._tablet.change(plan))
        self._stores.add(task)
        task.add_done_callback(lambda ended: done(ended.exception()))
        task.add_done_callback(self._stores.discard)
        return Uninterrupted(task)

    @property
    def storage(self) -> TabletStorage:
        """Return the storage of the tablet that runs."""
        return self._storage

    async def hold_changes(self, *, may_store_snapshot: bool) -> HeldTablet:
        """Let nothing else be stored before a change that a commit of several tablets makes; `settle` has to follow.
        `may_store_snapshot` as in `BaseTablet.hold`. KafkaError as `check`; CommitRefused, ShardLost."""
        self.check()
        tablet = self._tablet
        held = await tablet.hold(may_store_snapshot=may_store_snapshot)
        if self.is_closed or self._tablet is not tablet:
            held.settle(_RESTARTING)
            raise raised_again(_RESTARTING)
        return held

    def wake_at(self, kind: ResidentKind, resident: Hashable, at_ms: int | None) -> None:
        """Wake a resident at a time, or not at all. One timer at most; one that is early wakes it in vain."""
        timer = self._timers.get(resident)
        at_s = None if at_ms is None or self.is_closed else (at_ms - self._ahead_ms) / 1000
        if timer is not None:
            if at_s is not None and timer.at_s <= at_s:
                return
            timer.handle.cancel()
            del self._timers[resident]
        if at_s is not None:
            self._timers[resident] = _Timer(kind, at_s, self._loop.call_at(at_s, self._wake, kind, resident))

    def _wake(self, kind: ResidentKind, resident: Hashable) -> None:
        del self._timers[resident]
        kind.wake(resident)

    def _read(self, kind: ResidentKind) -> list[Any]:
        """Return what is stored of a kind's residents, and behind them of their parts. Raise StoredUnreadable."""
        found = []
        for rows in (kind.rows, *kind.rows.parts):
            for key, row in self._tablet.row_sets.get(rows.row_set, ()):
                try:
                    found.append(rows.read(*key, row))
                except (LookupError, TypeError, ValueError) as bad:
                    place = f"{rows.name} {key[0]!r} of tablet {self._storage.tablet_id}"
                    unreadable = StoredUnreadable(place, f"{type(bad).__name__}: {bad}")
                    self._storage.found(unreadable)
                    raise unreadable from bad
        return found
