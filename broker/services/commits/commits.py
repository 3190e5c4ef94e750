"""Commits over several tablets in one opening of the node's cells.

One at a time for each row is what the tablets see to; here is what all commits have in common, and the pause that a
backup asks for: while it lasts no commit of several cells begins, and none stands between its first prepared row and
its last finished one.
"""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, NamedTuple

from pqbroker.broker.services.commits.away import NEVER, AwayNodes, AwayParts, HomeState, HomeWord, away_parts
from pqbroker.broker.services.commits.commit import NO_TIMESTAMPS, Commit, CommitRequest, CommitUnknown
from pqbroker.broker.services.commits.coordinator_home import CoordinatorHome
from pqbroker.broker.services.commits.finishing import Finishing
from pqbroker.broker.services.commits.ids_part import IdsPart
from pqbroker.broker.services.commits.in_doubt import UnfinishedKind, UnfinishedPart, unfinished_in
from pqbroker.broker.services.commits.moments import Moments
from pqbroker.broker.services.commits.open_transactions import (
    OpenTransaction,
    OpenTransactions,
    StartedBy,
    TransactionLimits,
    TransactionState,
    why_over,
)
from pqbroker.broker.services.commits.resolutions import Resolution, Resolutions
from pqbroker.broker.services.coordination.coordinators import COORDINATOR_IDS
from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.shares import reserve_of
from pqbroker.pq.serving.timestamps import NodeTime
from pqbroker.pq.transactions.participants import (
    BesidePart,
    CommitPart,
    Participant,
    ReceivedPart,
    ReceivingTablet,
    SentRows,
    TransactedTablet,
)
from pqbroker.pq.transactions.stored_forms import (
    TRANSACTION_BYTES,
    CommitDecision,
    ParticipantId,
    TransactionId,
)
from pqbroker.pq.transactions.unfinished import Unfinished
from pqbroker.storage.bundles.open_cells import OpenCells
from pqbroker.storage.engine import CommitRefused, ShardLost
from pqbroker.storage.ids import SYSTEM_CELL, TabletId
from pqbroker.storage.outcome import Outcome
from pqbroker.storage.tablets.scheme import Scheme
from pqbroker.storage.tablets.scheme_objects import TOPIC
from pqbroker.storage.uninterrupted import uninterrupted
from pqbroker.tables.refusals import TableError
from pqbroker.tables.serving.open_reads import OpenReads

EXPIRY_S: Final = 0.1
"""Seconds behind its time that a transaction is aborted at most, while its client is silent."""
PAUSE_S_MAX: Final = 10.0
"""Seconds that a pause waits for commits under way to end."""
TRACES_MAX: Final = 10_000
"""Commits that were not finished everywhere, and of which the process remembers what it knows."""
QUIET_LOOK_S: Final = 0.01
"""Seconds between looks whether what was left of commits has ended, in a pause."""
_log = logging.getLogger(__name__)


class CommitCounters:
    """Counters of commits since the start."""

    __slots__ = ("aborted", "committed", "over_cells", "over_nodes", "started", "timed_out")

    def __init__(self) -> None:
        self.started = 0
        """Transactions that clients have started."""
        self.committed = 0
        self.aborted = 0
        """Commits that were refused, and transactions that clients or their timeouts aborted."""
        self.timed_out = 0
        self.over_cells = 0
        """Commits of several cells, those of insertions included."""
        self.over_nodes = 0
        """Commits that other nodes have a part in."""


class CommitTrace(NamedTuple):
    """Memory of a commit whose decision was not carried out everywhere. Not `is_committed`: nobody knows whether it is,
    and if so, then at this timestamp."""

    timestamp: int
    is_committed: bool


class CommitSurroundings(NamedTuple):
    """Things of an opening that its commits share with tables, and counters of all openings."""

    time: NodeTime
    unfinished: Unfinished
    reads: OpenReads
    counters: CommitCounters
    away: AwayNodes | None = None
    """The other nodes of the broker; None: there is none."""


class Commits:
    """Performs commits, and looks after what they leave."""

    def __init__(
        self, cells: OpenCells, scheme: Scheme, around: CommitSurroundings, settings: BrokerSettings
    ) -> None:
        self._cells = cells
        self._scheme = scheme
        self._time, unfinished, self._reads, self.counters, self.away = around
        self._unfinished = unfinished
        self._limit_s = settings.transaction_prepare_ms_max / 1000
        self._under_way: dict[TransactionId, Commit] = {}
        self.resolutions = Resolutions(scheme)
        """Transactions that operators have resolved."""
        self._traces: dict[TransactionId, CommitTrace] = {}
        self._finishing = Finishing(
            self, unfinished, self.resolutions, self._time.clock, settings.transaction_kept_ms
        )
        self._limits = TransactionLimits(
            settings.transactions_max, settings.transaction_timeout_ms_max, settings.transaction_age_ms_max,
            settings.transaction_kept_ms,
        )  # fmt: skip
        self._pause: asyncio.Event | None = None
        """Set when the pause is over; None: there is none."""
        self._unwritten: dict[TransactionId, Outcome[None]] = {}
        """Commits of several cells that are not written everywhere, each with what is done when it is."""
        self._task: asyncio.Task[None] | None = None
        self.moments = Moments(self._limit_s)
        """Moments at which tables and topics are read together."""
        self._open = OpenTransactions()
        self.aborted: Callable[[OpenTransaction], None] = _nobody_listens
        """Called with each transaction that is aborted, whatever the cause."""
        self._expiry: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Look after what earlier commits have left."""
        self._task = asyncio.get_running_loop().create_task(self._finishing.run())
        self._task.add_done_callback(_log_defect)

    async def stop(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._finishing.stop()

    @property
    def limits(self) -> TransactionLimits:
        return self._limits

    @property
    def open_count(self) -> int:
        """Return how many transactions are open."""
        return self._open.open_count

    def known(self) -> list[OpenTransaction]:
        """Return the transactions that are open or kept."""
        self._expire()
        return self._open.known()

    def get(self, number: TransactionId) -> OpenTransaction | None:
        """Return a transaction that is open or kept."""
        found = self._open.get(number)
        if found is not None and (found.is_ended or why_over(found, self._time.clock(), self._limits)):
            self._expire()
            found = self._open.get(number)
        return found

    def now_ms(self) -> int:
        """Return the time, milliseconds since 1970."""
        return self._time.clock()

    async def begin(self, client: StartedBy, timeout_ms: int) -> OpenTransaction:
        """Begin a transaction: versions that it can read are kept until `end`. TableError TOO_MANY_TRANSACTIONS;
        CommitRefused."""
        if self._open.open_count >= reserve_of(self._limits.transactions_max):
            self._expire()
        await self._reserve()
        self._open.check_room(client, self._limits)
        now_ms = self._time.clock()
        begun = self._open.start(client, self._time.timestamps.rule.give(now_ms), timeout_ms, now_ms)
        self._reads.open(begun.start_timestamp)
        self.counters.started += 1
        self._expire_later()
        return begun

    def end(self, one: OpenTransaction, state: TransactionState, cause: str = "") -> None:
        """Note the end of a transaction. `cause`: that of its abort."""
        self._open.end(one, state, self._time.clock(), cause)
        self._reads.close(one.start_timestamp)
        if state is TransactionState.COMMITTED:
            self.counters.committed += 1
        else:
            self.counters.aborted += 1
            self.aborted(one)

    def forget(self, one: OpenTransaction) -> None:
        """Forget a transaction of which nobody knows whether it is committed."""
        self._open.forget(one)
        self._reads.close(one.start_timestamp)

    def _expire(self) -> None:
        """Abort transactions whose time is over."""
        for one in self._open.expire(self._time.clock(), self._limits):
            self._reads.close(one.start_timestamp)
            self.counters.timed_out += 1
            self.counters.aborted += 1
            self.aborted(one)

    def _expire_later(self) -> None:
        """Have `_expire` called when the next transaction's time is over."""
        if self._expiry is None and (next_ms := self._open.next_expiry_ms(self._limits)) is not None:
            wait_s = max(next_ms - self._time.clock(), 0) / 1000 + EXPIRY_S
            self._expiry = asyncio.get_running_loop().call_later(wait_s, self._on_expiry)

    def _on_expiry(self) -> None:
        self._expiry = None
        self._expire()
        self._expire_later()

    async def _reserve(self) -> None:
        """Return when a timestamp can be given. CommitRefused."""
        reservation = self._time.timestamps.prepare(self._time.clock())
        if reservation is not None:
            await asyncio.wait([reservation])
        if not self._time.timestamps.rule.can_give:
            raise CommitRefused(NO_TIMESTAMPS)

    @property
    def unfinished_count(self) -> int:
        """Return how many participants have something unfinished."""
        return len(self._unfinished.participants)

    def unfinished(self) -> Iterator[UnfinishedPart]:
        """Yield what is unfinished in participants that run, in their order; others may have their turns meanwhile."""
        return unfinished_in(self, sorted(self._unfinished.participants), self._finishing.refusals)

    def why_needed(self, tablets: Collection[TabletId]) -> str:
        """Return which rows in doubt wait for tablets that are not open, and may have the decision; empty: none that is
        known of."""
        for one in self.unfinished() if self._unfinished.participants else ():
            if one.kind is UnfinishedKind.PREPARED and not one.is_home_open and one.home.tablet_id in tablets:
                return self.why_waiting(one)
        return ""

    def why_waiting(self, rows: UnfinishedPart) -> str:
        """Return what rows in doubt are, and what they wait for, for people."""
        what = self.describe(rows.participant)
        return f"{what} has rows of transaction {rows.transaction.hex()} that wait for {rows.waits_for}"

    def not_open(self, tablets: Collection[TabletId]) -> frozenset[TabletId]:
        """Return those of an object's tablets that no node is known to have open."""
        return frozenset(one for one in tablets if not self._is_open(one))

    def _is_open(self, tablet_id: TabletId) -> bool:
        tablet = self._cells.host_of(tablet_id).tablet(tablet_id)
        if not isinstance(tablet, TransactedTablet):
            return self.is_elsewhere(tablet_id)
        participant = tablet.participant(0)
        return participant is None or not participant.is_lost

    @property
    def under_way(self) -> Sequence[Commit]:
        """Return the commits that are undecided or unfinished."""
        return list(self._under_way.values())

    @property
    def is_busy(self) -> bool:
        """Return True if a commit is under way, or rows of one are not written everywhere."""
        return bool(self._under_way or self._unwritten or self._unfinished.participants)

    async def write(self, parts: Sequence[CommitPart], *, is_first_home: bool = False) -> CommitDecision:
        """Commit parts that nobody sends again under the same name, as `commit` does; return when their rows are
        written everywhere, or after the time that a reader waits for them. Raises as `commit`, and ShardLost where
        that raises CommitUnknown."""
        transaction = TransactionId(secrets.token_bytes(TRANSACTION_BYTES))
        request = CommitRequest(transaction, parts, is_first_home=is_first_home)
        try:
            decision = await uninterrupted(self.commit(request))
        except CommitUnknown as unknown:
            raise ShardLost(str(unknown)) from unknown
        written = self.written(transaction)
        if written is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._limit_s):
                    await written.wait()
        return decision

    def written(self, transaction: TransactionId) -> Outcome[None] | None:
        """Return what is done when the rows of a commit of this process are written in all cells, or left to
        `Finishing`; None: they are."""
        return self._unwritten.get(transaction)

    async def end_together(
        self, parts: Sequence[CommitPart], beside: Sequence[BesidePart], limit_s: float
    ) -> None:
        """Commit parts without rows and changes of one cell, with no stored decision. Raises as `commit`."""
        transaction = TransactionId(secrets.token_bytes(TRANSACTION_BYTES))
        await self.commit(CommitRequest(transaction, parts, beside=beside, limit_s=limit_s, is_timed=False))

    async def commit(self, request: CommitRequest) -> CommitDecision:
        """Commit parts, one a participant; return when it is decided. Its caller is not cancelled meanwhile. Nothing is
        written otherwise: CommitRefused, KafkaError, TableError; after CommitUnknown and ShardLost nobody knows."""
        away = None if self.away is None else away_parts(self.away, request.parts, self.is_elsewhere)
        if away is not None:
            request = self._with_home(request, away)
        for part in request.parts if away is None else away.without(request.parts):
            await part.look_ahead()
        commit = Commit(request, self._time, self._limit_s, self._leave, away)
        if not commit.is_over_cells:
            return await self._run(commit)
        if self._pause is not None:
            await self._paused()
        transaction = request.transaction
        self._unwritten[transaction] = Outcome()
        self.counters.over_cells += 1
        self.counters.over_nodes += away is not None
        try:
            decision = await self._run(commit)
        except BaseException:
            self._unwritten.pop(transaction).set_result(None)
            raise
        uninterrupted(self._finish(commit, decision))
        return decision

    def is_elsewhere(self, tablet_id: TabletId) -> bool:
        """Return True as `Surroundings` does."""
        return self._cells.elsewhere_of(tablet_id) is not None

    def _with_home(self, request: CommitRequest, away: AwayParts) -> CommitRequest:
        """Return a commit over nodes with a home at this one: a coordinator tablet where no part has a place here.
        TableError TABLETS_OF_OTHER_NODES where the home is to be a part of another node."""
        here = away.without(request.parts)
        if request.is_first_home and request.parts[0] not in here:
            text = f"{request.parts[0].participant.name}, which is written first, is run by another node of the broker"
            raise TableError("TABLETS_OF_OTHER_NODES", text, "Nothing was written. Serve it with --nodes 1.")
        if here or request.home is not None:
            return request
        number = int.from_bytes(request.transaction[:4]) % len(COORDINATOR_IDS)
        home = self.find(ParticipantId(COORDINATOR_IDS[number]))
        if not isinstance(home, CoordinatorHome) or not home.is_known:
            raise CommitRefused("the coordinator tablet for the decision is starting; try again")
        return request._replace(home=home, beside=[IdsPart(home.coordinator, [], may_store_snapshot=True)])

    async def _finish(self, commit: Commit, decision: CommitDecision) -> None:
        try:
            if not await self._finishing.finish(decision, commit.home, commit.elsewhere, commit.away):
                self._leave_trace(decision.transaction, CommitTrace(decision.timestamp, is_committed=True))
        finally:
            self._unwritten.pop(decision.transaction).set_result(None)

    async def _run(self, commit: Commit) -> CommitDecision:
        transaction = commit.request.transaction
        self._under_way[transaction] = commit
        try:
            decision = await commit.run()
        except CommitUnknown:
            assert commit.timestamp is not None, "a commit is unknown behind its timestamp alone"
            self._leave_trace(transaction, CommitTrace(commit.timestamp, is_committed=False))
            raise
        finally:
            del self._under_way[transaction]
        if commit.request.is_kept and not commit.is_over_cells:
            self._finishing.keep(commit.home.participant_id)
        return decision

    def _leave_trace(self, transaction: TransactionId, trace: CommitTrace) -> None:
        self._traces[transaction] = trace
        if len(self._traces) > TRACES_MAX:
            del self._traces[next(iter(self._traces))]

    def trace_of(self, transaction: TransactionId) -> CommitTrace | None:
        """Return what this process knows of a commit that was not finished everywhere."""
        return self._traces.get(transaction)

    async def resolve(self, resolution: Resolution) -> None:
        """Keep a resolution, and end prepared rows by it; return when none is left in participants that run, or after
        the time that a reader waits for them. TableError TOO_MANY_RESOLUTIONS; CommitRefused, ShardLost."""
        await self.resolutions.add(resolution)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limit_s):
                await self._resolved(resolution.transaction)

    async def _resolved(self, transaction: TransactionId) -> None:
        while any(one.transaction == transaction and one.kind is UnfinishedKind.PREPARED for one in self.unfinished()):
            await self._finishing.look()
            await asyncio.sleep(QUIET_LOOK_S)

    @property
    def last_timestamp(self) -> int:
        """Return the last timestamp that was given."""
        return self._time.timestamps.rule.last

    def _leave(self, participant: Participant) -> None:
        self.look_after(participant.participant_id)

    def look_after(self, participant: ParticipantId) -> None:
        """See that prepared rows and decisions of a participant end."""
        self._unfinished.add(participant)

    async def _paused(self) -> None:
        """Return when there is no pause. TableError TRANSACTIONS_PAUSED."""
        try:
            async with asyncio.timeout(self._limit_s):
                while self._pause is not None:
                    await self._pause.wait()
        except TimeoutError:
            text = f"commits of several cells wait for a backup, this one for {self._limit_s:g} s"
            raise TableError("TRANSACTIONS_PAUSED", text, "Try again when the backup has ended.") from None

    @asynccontextmanager
    async def pause(self) -> AsyncIterator[bool]:
        """Hold commits of several cells back. False: after PAUSE_S_MAX seconds some are not finished everywhere."""
        while self._pause is not None:
            await self._pause.wait()
        over = self._pause = asyncio.Event()
        try:
            yield await self._is_quiet()
        finally:
            self._pause = None
            over.set()

    async def _is_quiet(self) -> bool:
        try:
            async with asyncio.timeout(PAUSE_S_MAX):
                await self._quiet()
        except TimeoutError:
            return False
        return True

    async def _quiet(self) -> None:
        """Return when no commit of several cells is under way, or unfinished anywhere."""
        while self._unwritten:
            await next(iter(self._unwritten.values())).wait()
        while not self._finishing.is_idle:
            await self._finishing.look()
            await asyncio.sleep(QUIET_LOOK_S)

    def find(self, participant: ParticipantId) -> Participant | None:
        """Return a participant as `Surroundings` does."""
        tablet = self._cells.host_of(participant.tablet_id).tablet(participant.tablet_id)
        return tablet.participant(participant.partition) if isinstance(tablet, TransactedTablet) else None

    def has(self, participant: ParticipantId) -> bool:
        """Return True as `Surroundings` does."""
        if participant.tablet_id in COORDINATOR_IDS:
            return True
        if self.away is not None and not self.away.is_first:
            return True  # this copy of the scheme may be behind: the first node says what is gone
        return any(owned.tablet_id == participant.tablet_id for owned in self._scheme.owned_tablets())

    def word_of(self, home: ParticipantId, transaction: TransactionId) -> HomeWord:
        """Return what is known of a transaction's home at this node."""
        if self.is_under_way(transaction):
            return HomeWord(HomeState.UNDECIDED)
        participant = self.find(home)
        if participant is None or not participant.is_known or participant.is_lost:
            is_gone = participant is None and not self.has(home)
            return HomeWord(HomeState.NEVER if is_gone else HomeState.UNKNOWN)
        decision = participant.decisions.get(transaction)
        return HomeWord(HomeState.NEVER if decision is None else HomeState.COMMITTED, decision)

    async def word_elsewhere(self, participants: Sequence[ParticipantId], transaction: TransactionId) -> HomeWord:
        """Return what participants say that other nodes run, of which one may be the home."""
        if self.away is None or not participants:
            return NEVER
        try:
            return await self.away.word_of(participants, transaction)
        except CommitRefused:
            return HomeWord(HomeState.UNKNOWN)

    async def received(self, sent: SentRows) -> ReceivedPart:
        """Return rows that another node has sent as a part. ValueError, CommitRefused, TableError."""
        tablet_id = sent.participant.tablet_id
        tablet = self._cells.host_of(tablet_id).tablet(tablet_id)
        if not isinstance(tablet, ReceivingTablet):
            raise CommitRefused(f"{self.describe(sent.participant)} is not open at this node; try again")
        return await tablet.part_of(sent)

    def describe(self, participant: ParticipantId) -> str:
        """Describe a participant as `Surroundings` does."""
        if participant.tablet_id in COORDINATOR_IDS:
            return f"coordinator {COORDINATOR_IDS.index(participant.tablet_id)} in cell {SYSTEM_CELL}"
        for owned in self._scheme.owned_tablets():
            if owned.tablet_id == participant.tablet_id:
                row: Any = self._scheme.rows(owned.kind.row_set)[(owned.object_id,)]
                number = row["tablets"].index(owned.tablet_id)
                what = f"partition {participant.partition}" if owned.kind.name == TOPIC else f"tablet {number}"
                return f"{what} of {row['name']} in cell {owned.cell}"
        return f"tablet {participant.tablet_id}, which is deleted"

    def is_under_way(self, transaction: TransactionId) -> bool:
        """Return True as `Surroundings` does."""
        commit = self._under_way.get(transaction)
        return commit is not None and commit.is_undecided


def _nobody_listens(_one: OpenTransaction) -> None: ...


def _log_defect(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (defect := task.exception()) is not None:
        _log.critical("commits are not looked after any more; this is a defect", exc_info=defect)
