"""Ends what commits leave behind: prepared rows whose commit was given up or lost, decisions that were not carried out
everywhere, and outcomes that nobody asks for any more.

    prepared rows    home known?   decided?   under way?   what becomes of them
                     no            -          -            they wait: what they wait for is said, its node is asked
                     yes           yes        -            written at the decision's timestamp
                     yes           no         yes          left to the commit
                     yes           no         no           dropped
                     any           -          no           as an operator has resolved it (`resolutions.py`)

A participant with anything unfinished tells so at its start (`Unfinished`), a commit when it is over.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final, Protocol

from pqbroker.broker.services.commits.away import AwayNodes, HomeState, PreparedEnds
from pqbroker.broker.services.commits.away_questions import AwayQuestions
from pqbroker.broker.services.commits.resolutions import Resolution, Resolutions
from pqbroker.pq.transactions.commit_states import PreparedEnd, end_of_prepared
from pqbroker.pq.transactions.participants import Participant
from pqbroker.pq.transactions.stored_forms import CommitDecision, ParticipantId, PreparedHead, TransactionId
from pqbroker.pq.transactions.unfinished import Unfinished
from pqbroker.protocol.errors import KafkaError
from pqbroker.storage.engine import CommitRefused, ShardLost
from pqbroker.storage.ids import TabletId
from pqbroker.tables.refusals import TableError

UNFINISHED_LOOK_S: Final = 0.5
"""Seconds between looks while something is unfinished."""
DROP_S: Final = 0.1
"""Seconds until decisions that nobody asks for are removed, together."""
IN_DOUBT_MS: Final = 5_000
"""Milliseconds after which what waits for a participant that does not run is reported."""
DROPPED_AT_ONCE: Final = 1000
DECISIONS_MAX: Final = 50_000
"""Outcomes that one tablet keeps; more, and the oldest go earlier."""
_RESOLVED: Final = "an operator has resolved it"
_REFUSALS = (CommitRefused, ShardLost, KafkaError, TableError)
_log = logging.getLogger(__name__)


class Surroundings(Protocol):
    """The node around the participants."""

    def find(self, participant: ParticipantId) -> Participant | None:
        """Return a participant that runs; None: its cell is not open, or it is gone."""

    def has(self, participant: ParticipantId) -> bool:
        """Return True unless the participant's object is gone."""

    def describe(self, participant: ParticipantId) -> str:
        """Return what texts call a participant, its cell included, whether it runs or not."""

    def is_under_way(self, transaction: TransactionId) -> bool:
        """Return True if a commit is undecided, in this process."""

    def is_elsewhere(self, tablet_id: TabletId) -> bool:
        """Return True if another node is known to run a tablet."""

    @property
    def away(self) -> AwayNodes | None:
        """Return the other nodes of the broker; None: there is none."""


class Finishing:
    """Looks after unfinished participants of one opening of the cells."""

    def __init__(
        self, around: Surroundings, unfinished: Unfinished, resolutions: Resolutions, clock: Callable[[], int],
        kept_ms: int,
    ) -> None:
        self._around = around
        self._resolutions = resolutions
        self._unfinished = unfinished
        self._clock = clock
        self._kept_ms = kept_ms
        self._wanted = asyncio.Event()
        self._dropped: defaultdict[ParticipantId, list[TransactionId]] = defaultdict(list)
        """Decisions that have ended, and that nobody asks for, by their home."""
        self._next_drop_ms = 0
        self._homes: set[ParticipantId] = set()
        """Participants with outcomes that are kept for repeated commits."""
        self.refusals: dict[tuple[ParticipantId, TransactionId], str] = {}
        """Reasons why prepared rows whose outcome is known could not be ended, for people."""
        self._reported: set[tuple[ParticipantId, TransactionId]] = set()
        """Prepared rows that were reported to be in doubt."""
        self._questions = AwayQuestions(around.away, self._wanted.set)
        unfinished.listener = self._wanted.set

    def stop(self) -> None:
        """Ask other nodes nothing more."""
        self._questions.stop()

    @property
    def is_idle(self) -> bool:
        """Return True if nothing is unfinished that can be ended now."""
        return not self._unfinished.participants

    def keep(self, home: ParticipantId) -> None:
        """An outcome is kept in a participant."""
        if not self._homes:
            self._wanted.set()
        self._homes.add(home)

    async def run(self) -> None:
        """Look whenever there is something to do, until the task is cancelled."""
        while True:
            self._wanted.clear()
            await self.look()
            kept_s = self._kept_ms / 10_000 if self._homes else None
            with suppress(TimeoutError):
                is_busy = bool(self._unfinished.participants or self._resolutions.waiting())
                async with asyncio.timeout(UNFINISHED_LOOK_S if is_busy else kept_s):
                    await self._wanted.wait()
            if self._dropped:
                await asyncio.sleep(DROP_S)  # more will have come by then

    async def look(self) -> None:
        """End what can be ended now."""
        homes = {resolution.home for resolution in self._resolutions.waiting()}
        for number in sorted(self._unfinished.participants | homes):
            await self._look_at(number)
        for number in list(self._dropped):
            await self._drop(number)
        if self._clock() >= self._next_drop_ms:
            self._next_drop_ms = self._clock() + self._kept_ms // 10
            for number in list(self._homes):
                await self._drop_old(number)

    async def finish(
        self, decision: CommitDecision, home: Participant, elsewhere: Sequence[Participant],
        away: Sequence[ParticipantId] = (),
    ) -> bool:
        """Write the rows of a decision in the participants elsewhere, `away` at other nodes; True: all have, and it is
        an outcome by now."""
        done = [participant.finish(decision.transaction, decision.timestamp) for participant in elsewhere]
        left = await self._finish_away(decision, away)
        for participant, outcome in zip(elsewhere, done, strict=True):
            await outcome.wait()
            if (error := outcome.exception()) is not None:
                _log.warning("%s writes rows of a transaction later: %s", participant.name, error)
                self._unfinished.add(home.participant_id)
                self._unfinished.add(participant.participant_id)
        if left:
            self._unfinished.add(home.participant_id)
        if left or any(outcome.exception() is not None for outcome in done):
            return False
        self._end(home, decision)
        return True

    async def _finish_away(self, decision: CommitDecision, away: Sequence[ParticipantId]) -> bool:
        """Have other nodes write their rows of a decision; True: some are left."""
        nodes = self._around.away
        if nodes is None or not away:
            return bool(away)
        left = await nodes.finish(_ends(decision, away))
        for number, why in left.items():
            _log.warning("%s writes rows of a transaction later: %s", self._around.describe(number), why)
        return bool(left)

    async def _look_at(self, number: ParticipantId) -> None:
        participant = self._around.find(number)
        if participant is None or not participant.is_known or participant.is_lost:
            if not self._around.has(number):
                self._unfinished.participants.discard(number)
                await self._compare(number, None)
            elif self._around.is_elsewhere(number.tablet_id):
                self._unfinished.participants.discard(number)  # the node that runs it looks after it
            return
        if not await self._compare(number, participant):
            return
        is_done = True
        for transaction, head in list(participant.prepared.items()):
            is_done &= await self._settle(participant, transaction, head)
        for decision in list(participant.decisions.values()):
            if decision.participants:
                is_done &= await self._carry_out(participant, decision)
        if participant.decisions:
            self._homes.add(number)
        if is_done and participant.is_known:
            self._unfinished.participants.discard(number)

    async def _settle(self, participant: Participant, transaction: TransactionId, head: PreparedHead) -> bool:
        """Write or drop prepared rows; False: later."""
        home = self._around.find(head.home)
        is_known = home is not None and home.is_known and not home.is_lost
        decision = home.decisions.get(transaction) if home is not None and is_known else None
        is_gone = home is None and not self._around.has(head.home)
        if not is_known and not is_gone and not self._around.is_under_way(transaction):
            word = self._questions.word_of(head)
            decision, is_known = word.decision, word.state in (HomeState.COMMITTED, HomeState.NEVER)
        found = end_of_prepared(
            is_home_known=is_known or is_gone, is_decided=decision is not None,
            is_under_way=self._around.is_under_way(transaction),
        )  # fmt: skip
        resolution = self._resolutions.get(transaction)
        if resolution is not None and not self._around.is_under_way(transaction):
            return await self._write(participant, transaction, resolution.timestamp, _RESOLVED)
        if found is PreparedEnd.WAIT:
            participant.waits_for = self._around.describe(head.home)
            self._report(participant, head)
            return False
        if decision is None:
            return await self._write(participant, transaction, None, "it was never committed")
        return await self._write(participant, transaction, decision.timestamp, "it is committed")

    async def _write(
        self, participant: Participant, transaction: TransactionId, timestamp: int | None, why: str
    ) -> bool:
        """Write prepared rows at a timestamp, or drop them where it is None; False: later."""
        key = participant.participant_id, transaction
        try:
            await participant.finish(transaction, timestamp)
        except _REFUSALS as refusal:
            if self.refusals.get(key) != str(refusal):
                _log.warning("%s ends a transaction later: %s", participant.name, refusal)
            self.refusals[key] = str(refusal)
            return False
        self.refusals.pop(key, None)
        what = "dropped" if timestamp is None else f"written at timestamp {timestamp}"
        _log.info("rows of transaction %s in %s were %s: %s", transaction.hex(), participant.name, what, why)
        self._reported.discard(key)
        return True

    async def _compare(self, number: ParticipantId, home: Participant | None) -> bool:
        """Compare resolutions with what their home has, before its decisions end; None: it is deleted. False: the
        outcome is not noted yet. The first node alone compares."""
        if self._around.away is not None and not self._around.away.is_first:
            return True
        for resolution in self._resolutions.waiting():
            if resolution.home != number:
                continue
            if home is None:
                home_says = "it is deleted"
            else:
                home_says = resolution.contradicted_by(home.decisions.get(resolution.transaction))
            try:
                if home_says:
                    await self._resolutions.note(resolution, home_says)
                else:
                    await self._resolutions.forget(resolution)
            except _REFUSALS as refusal:
                _log.warning("a resolution is compared with its home later: %s", refusal)
                return False
            if home is not None:
                _log_compared(home.name, resolution, home_says)
        return True

    def _report(self, participant: Participant, head: PreparedHead) -> None:
        """Log once that prepared rows have waited for long."""
        key = participant.participant_id, head.transaction
        if key not in self._reported and head.prepared_ms + IN_DOUBT_MS <= self._clock():
            self._reported.add(key)
            _log.warning(
                "rows of transaction %s in %s are in doubt: the decision about them lies in %s, which is not open",
                head.transaction.hex(), participant.name, participant.waits_for,
            )  # fmt: skip

    async def _carry_out(self, home: Participant, decision: CommitDecision) -> bool:
        """See that all participants of a decision have written their rows; False: some have not."""
        away = []
        for number in decision.participants:
            participant = self._around.find(number)
            if participant is None or not participant.is_known:
                if self._around.has(number):
                    away.append(number)
                continue
            head = participant.prepared.get(decision.transaction)
            if head is not None and not await self._settle(participant, decision.transaction, head):
                return False
        if away and not self._questions.are_ended(_ends(decision, away)):
            return False
        self._end(home, decision)
        return True

    def _end(self, home: Participant, decision: CommitDecision) -> None:
        """Every participant has written: the decision becomes an outcome, or goes soon. Stored it stays as it was: a
        start that finds it asks the participants once more."""
        home.take_decision(decision.finished)
        if decision.digest:
            self.keep(home.participant_id)
        else:
            self._dropped[home.participant_id].append(decision.transaction)
            self._wanted.set()

    async def _drop(self, number: ParticipantId) -> None:
        """Remove decisions of which nobody asks for the outcome."""
        home, some = self._around.find(number), self._dropped[number][:DROPPED_AT_ONCE]
        if home is not None and home.is_known:
            try:
                await home.drop_decisions(some)
            except _REFUSALS:
                return
        self._dropped[number] = self._dropped[number][len(some) :]  # not known: its next start tells of them
        if not self._dropped[number]:
            del self._dropped[number]

    async def _drop_old(self, number: ParticipantId) -> None:
        """Remove outcomes that were kept long enough."""
        home = self._around.find(number)
        if home is None or not home.is_known:
            self._homes.discard(number)  # its next start tells of it
            return
        with suppress(*_REFUSALS):
            while old := self._old(home):
                await home.drop_decisions(old)
        if not home.decisions:
            self._homes.discard(number)

    def _old(self, home: Participant) -> list[TransactionId]:
        """Return some outcomes that were kept long enough, or are more than a home keeps; the oldest are the first."""
        before_ms, surplus = self._clock() - self._kept_ms, len(home.decisions) - DECISIONS_MAX
        old = []
        for number, decision in enumerate(islice(home.decisions.values(), DROPPED_AT_ONCE)):
            if decision.decided_ms > before_ms and number >= surplus:
                break
            if not decision.participants:
                old.append(decision.transaction)
        return old


def _ends(decision: CommitDecision, participants: Sequence[ParticipantId]) -> PreparedEnds:
    return PreparedEnds(decision.transaction, decision.timestamp, 0, tuple(participants))


def _log_compared(home: str, resolution: Resolution, home_says: str) -> None:
    name = resolution.transaction.hex()
    was = "aborted" if resolution.timestamp is None else f"committed at timestamp {resolution.timestamp}"
    if home_says:
        _log.error(
            "transaction %s is torn: as an operator resolved it, it was %s in other tablets than %s, and %s; "
            "see GET /v1/transactions/resolved, and mend its rows by hand", name, was, home, home_says,
        )  # fmt: skip
    else:
        _log.info("%s agrees that transaction %s is %s, as an operator resolved it", home, name, was)
