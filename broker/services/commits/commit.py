"""One commit over several tablets, performed: see pq/transactions/commit_states.py for its states.

The home is the first part of the cell that has most parts, or the very first one where the request says so. Parts of
its cell are written by the request that makes the decision durable; parts elsewhere are prepared before, and written
behind it. So are parts that other nodes run (`away.py`), which are never the home.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from pqbroker.broker.services.commits import joint_parts
from pqbroker.broker.services.commits.away import AwayParts
from pqbroker.broker.services.commits.joint_parts import by_cell, commands_of
from pqbroker.pq.serving.timestamps import NodeTime
from pqbroker.pq.transactions import commit_states as states
from pqbroker.pq.transactions.commit_states import CommitChanges, CommitState
from pqbroker.pq.transactions.participants import BesidePart, CommitPart, Participant
from pqbroker.pq.transactions.stored_forms import CommitDecision, ParticipantId, PreparedHead, TransactionId
from pqbroker.storage.engine import CommitRefused, ShardLost
from pqbroker.storage.kv.joint_request import BatchBeside, execute_together
from pqbroker.storage.outcome import Outcome
from pqbroker.storage.tablets.tablet import TabletStorage
from pqbroker.tables.refusals import TableError

NO_TIMESTAMPS: Final = "commit timestamps are not reserved yet; try again"


class CommitRequest(NamedTuple):
    """The thing to commit. `digest`: of what the client sent; empty: nobody sends it again. `is_first_home`: the first
    part is to be written beside the decision, however many others share a cell. `beside`: changes of the decision's own
    request, whose cell is the home's then; `home`: the first of their tablets, if the decision is to be stored there.
    `limit_s`: see `Commit`; None: as the node has it. Not `is_timed`: no row of it is read at a timestamp, so that it
    takes none of its own."""

    transaction: TransactionId
    parts: Sequence[CommitPart]
    digest: bytes = b""
    is_first_home: bool = False
    beside: Sequence[BesidePart] = ()
    home: Participant | None = None
    limit_s: float | None = None
    is_timed: bool = True

    @property
    def is_kept(self) -> bool:
        """Return True if the decision stays for a client that sends the commit again."""
        return bool(self.digest)


class CommitUnknown(Exception):
    """The home's cell was lost while the decision was on its way: its next start knows whether it is durable."""


class Commit:
    """One commit, from the places of its parts in the queues to the decision."""

    def __init__(
        self, request: CommitRequest, time: NodeTime, limit_s: float, leave: Callable[[Participant], None],
        away: AwayParts | None = None,
    ) -> None:
        """`limit_s`: seconds that it may keep other writes waiting before the decision. `leave`: called with each
        participant in which something may be prepared that the commit does not look after any more. `away`: parts that
        other nodes run."""
        self.request = request
        self.state = CommitState.ENTERING
        self._time = time
        self._limit_s = request.limit_s or limit_s
        self._leave = leave
        self._away = away
        self._parts = request.parts if away is None else away.without(request.parts)
        """Parts that this node runs."""
        self._beside, self._elsewhere = _grouped(request, self._parts)
        self._home = request.home
        if self._home is None and self._beside:
            self._home = self._beside[0].participant
        self._head: PreparedHead | None = None
        """Head of what is prepared before the decision."""
        self.timestamp: int | None = None
        """Timestamp that was given, whether it is committed or not; None: none was."""
        self._holding: list[CommitPart] = []
        """Parts that have entered, and whose commands were not sent."""
        self._holding_beside: list[BesidePart] = []

    @property
    def elsewhere(self) -> Sequence[Participant]:
        """Return the participants in other cells than the home's."""
        return [part.participant for part in self._elsewhere]

    @property
    def away(self) -> Sequence[ParticipantId]:
        """Return the participants that other nodes run."""
        return () if self._away is None else self._away.participants

    @property
    def is_over_cells(self) -> bool:
        """Return True if something is prepared before the decision."""
        return bool(self._elsewhere) or self._away is not None

    @property
    def home(self) -> Participant:
        """Return the participant that has the decision, if it is stored: there are parts then, or a `request.home`."""
        assert self._home is not None, "a commit without parts has no home, and stores no decision"
        return self._home

    @property
    def _storage(self) -> TabletStorage:
        """Return the storage of a tablet of the home's cell."""
        return self.request.beside[0].storage if self.request.beside else self.home.storage

    @property
    def is_undecided(self) -> bool:
        """Return True if the commit itself will say what becomes of prepared rows."""
        return self.state in states.UNDECIDED

    async def run(self) -> CommitDecision:
        """Return the decision once it is durable, and the rows beside it are visible. Otherwise nothing will be
        written: CommitRefused, ShardLost, KafkaError, TableError; but after CommitUnknown nobody knows."""
        try:
            async with asyncio.timeout(self._limit_s) as limit:
                await self._enter()
                self._advance(states.ON_HELD)
                if self._elsewhere:
                    await self._prepare()
                if self._away is not None:
                    joint_parts.check(self._holding)
                    await self._away.prepare(self._head, limit.when() or 0.0)
                self._advance(states.ON_PREPARED)
                if self.request.is_timed:
                    await self._await_timestamps()
                await self._hold_beside()
        except TimeoutError:
            self._give_up()
            raise self._too_slow() from None
        except BaseException:
            self._give_up()
            raise
        return await self._decide()

    async def _enter(self) -> None:
        if self.is_over_cells:
            self._head = await self._new_head()
            for part in self._elsewhere:
                part.prepares(self._head)
        await joint_parts.enter(self._parts, self._holding)

    async def _new_head(self) -> PreparedHead:
        """Return what rows are prepared with. Of rows that other nodes prepare no other try of the commit has the same
        least timestamp: a late word about one of them names it."""
        rule = self._time.timestamps.rule
        if self._away is not None:
            await self._await_timestamps()
            rule.give(self._time.clock())
        return PreparedHead(self.request.transaction, self.home.participant_id, rule.last, self._time.clock())

    async def _hold_beside(self) -> None:
        for each in self.request.beside:
            await each.hold()
            self._holding_beside.append(each)

    def _check(self) -> None:
        """Raise why a part that holds cannot be written."""
        home = self._storage
        for part in self._beside:
            if not part.participant.storage.shares_cell(home):  # it waited while its tablet was moved
                raise CommitRefused("tablets came to live in different cells while the commit waited; try again")
        joint_parts.check([*self._holding, *self._holding_beside])

    async def _prepare(self) -> None:
        """Make the rows of the other cells durable, each cell's in one request."""
        await joint_parts.encode(self._elsewhere, None)
        self._check()
        requests: list[Outcome[None]] = []
        for parts in by_cell(self._elsewhere):
            commands = list(commands_of(parts, None).items())
            for part in parts:
                self._holding.remove(part)
            request = joint_parts.told(parts, execute_together(commands))
            request.add_done_callback(partial(self._prepared, parts))
            requests.append(request)
        for request in requests:
            await request.wait()
        for request in requests:
            request.result()

    def _prepared(self, parts: Sequence[CommitPart], _: Outcome[None]) -> None:
        """Rows are prepared, or not; too late where the commit was given up meanwhile."""
        if not self.is_undecided:
            for part in parts:
                self._leave(part.participant)

    async def _await_timestamps(self) -> None:
        reservation = self._time.timestamps.prepare(self._time.clock())
        if reservation is not None:
            await asyncio.wait([reservation])
        if not self._time.timestamps.rule.can_give:
            raise CommitRefused(NO_TIMESTAMPS)

    async def _decide(self) -> CommitDecision:
        now_ms, request = self._time.clock(), self.request
        rule = self._time.timestamps.rule
        timestamp = self.timestamp = rule.give(now_ms) if request.is_timed else rule.last
        for part in self._parts:
            part.participant.deciding(request.transaction, timestamp)
        participants = (*(part.participant.participant_id for part in self._elsewhere), *self.away)
        rows = sum(part.row_count for part in request.parts)
        decision = CommitDecision(request.transaction, timestamp, now_ms, request.digest, rows, participants)
        is_stored = request.is_kept or bool(participants)
        try:
            await joint_parts.encode(self._beside, timestamp)
            self._check()
            if self._away is not None:
                self._away.check()
            stored = self._send(timestamp, decision if is_stored else None)
        except BaseException:
            self._give_up()
            raise
        stored.add_done_callback(partial(self._decided, decision if is_stored else None))
        try:
            await joint_parts.told(self._beside, stored, self.request.beside)
        except ShardLost as loss:
            self._advance(states.ON_HOME_LOST)
            for participant in (self.home, *self.elsewhere) if is_stored else ():
                self._leave(participant)
            raise CommitUnknown(str(loss)) from loss
        except BaseException:
            self._give_up()
            raise
        return decision

    def _send(self, timestamp: int, decision: CommitDecision | None) -> Outcome[None]:
        """Send the request with the decision, if it is stored."""
        batches: list[BatchBeside] = []
        kept = decision if self.request.home is not None else None
        for each in self.request.beside:
            batches += each.batches(kept)
            kept = None
        commands = commands_of(self._beside, timestamp)
        for each in self.request.beside:
            for tablet, some in each.commands():
                commands[tablet] += some
        if decision is not None and self.request.home is None:
            home = self._beside[0].participant
            commands[home.kv].append(home.decision_command(decision))
        self._holding, self._holding_beside = [], []
        return execute_together(list(commands.items()), batches)

    def _decided(self, decision: CommitDecision | None, stored: Outcome[None]) -> None:
        """The request with the decision has ended: nobody finds the rows durable and the decision unknown."""
        if stored.exception() is None:
            self._advance(states.ON_DECIDED)
            if decision is not None:
                self.home.take_decision(decision)

    def _give_up(self) -> None:
        """Leave the queues. What is prepared, or will be, is dropped by who looks after it."""
        self._advance(states.ON_REFUSAL)
        holding, self._holding = self._holding, []
        for part in holding:
            part.leave()
        beside, self._holding_beside = self._holding_beside, []
        for each in beside:
            each.told(CommitRefused("the commit was given up"))
        for part in self._elsewhere:
            self._leave(part.participant)
        if self._away is not None:
            self._away.drop()

    def _advance(self, changes: CommitChanges) -> None:
        self.state = changes[self.state]

    def _too_slow(self) -> TableError:
        text = f"the commit took more than {self._limit_s:g} s until its decision, and was aborted"
        cure = "Try again; pqbroker.transaction.prepare.ms.max is the limit, GET /v1/cells shows cells that are slow."
        return TableError("COMMIT_TOO_SLOW", text, cure)


def _grouped(
    request: CommitRequest, parts: Sequence[CommitPart]
) -> tuple[Sequence[CommitPart], Sequence[CommitPart]]:
    """Return the parts of the home's cell, and the others: of the cell of what is beside the decision, of the first
    part's, or of the one that has most of them."""
    cells = by_cell(parts)
    if request.beside:
        storage = request.beside[0].storage
        beside = next((cell for cell in cells if cell[0].participant.storage.shares_cell(storage)), [])
    else:
        beside = cells[0] if request.is_first_home else max(cells, key=len)
    return beside, [part for cell in cells if cell is not beside for part in cell]
