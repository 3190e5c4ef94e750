"""Unfinished parts of commits over several tablets, for people: rows that wait for a decision, and decisions that
were not carried out everywhere. Nothing is changed here; `finishing.py` does that."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from functools import cache
from typing import Final, NamedTuple

from pqbroker.broker.services.commits.finishing import IN_DOUBT_MS, Surroundings
from pqbroker.pq.transactions.participants import Participant
from pqbroker.pq.transactions.stored_forms import ParticipantId, TransactionId

IN_DOUBT_CURE: Final = "Open the cell, or end the rows that wait: `pqbroker transaction resolve`."
WAITS_SHOWN: Final = 10
"""Participants that are named of those that a decision waits for."""

_Describe = Callable[[ParticipantId], str]


class UnfinishedKind(StrEnum):
    """Kinds of things that are unfinished in a participant."""

    DECIDED = "decided"
    PREPARED = "prepared"


Position = tuple[ParticipantId, UnfinishedKind, TransactionId]
"""The place of one among all that is unfinished, in the order of a list."""


class UnfinishedPart(NamedTuple):
    """One transaction in one participant that is not over there."""

    participant: ParticipantId
    kind: UnfinishedKind
    transaction: TransactionId
    home: ParticipantId
    """The participant that has the decision, if there is one."""
    since_ms: int
    waits_for: str
    """Names what it waits for; empty: for nothing, it ends within a second."""
    is_home_open: bool
    row_count: int | None
    """Rows of the whole transaction; None: of prepared rows the bytes are known."""
    byte_count: int | None
    least_timestamp: int
    """The timestamp of its commit is greater, or the same where it is decided."""

    @property
    def position(self) -> Position:
        """Return the place among all that is unfinished."""
        return self.participant, self.kind, self.transaction


def unfinished_in(
    around: Surroundings, participants: Iterable[ParticipantId],
    refusals: Mapping[tuple[ParticipantId, TransactionId], str],
) -> Iterator[UnfinishedPart]:
    """Yield what is unfinished in participants that run, in the order of participants, kinds and transactions; what is
    in others is known when their cell is open. `refusals`: why rows whose outcome is known were not ended."""
    describe = cache(around.describe)
    for number in participants:
        participant = around.find(number)
        if participant is not None and participant.is_known:
            yield from sorted(_decided(around, participant, describe))
            yield from sorted(_prepared(around, participant, describe, refusals))


def is_in_doubt(part: UnfinishedPart, now_ms: int) -> bool:
    """Return True for what waits for something, and has waited long."""
    return bool(part.waits_for) and part.since_ms + IN_DOUBT_MS <= now_ms


def _prepared(
    around: Surroundings, participant: Participant, describe: _Describe,
    refusals: Mapping[tuple[ParticipantId, TransactionId], str],
) -> Iterator[UnfinishedPart]:
    number = participant.participant_id
    for transaction, head in participant.prepared.items():
        is_home_open = _is_open(around, head.home) or not around.has(head.home)
        waits_for = refusals.get((number, transaction), "") if is_home_open else describe(head.home)
        yield UnfinishedPart(
            number, UnfinishedKind.PREPARED, transaction, head.home, head.prepared_ms, waits_for, is_home_open, None,
            participant.prepared_bytes(transaction), head.least_timestamp,
        )  # fmt: skip


def _decided(around: Surroundings, participant: Participant, describe: _Describe) -> Iterator[UnfinishedPart]:
    number = participant.participant_id
    for transaction, decision in participant.decisions.items():
        if decision.participants:
            missing = [one for one in decision.participants if not _is_open(around, one)]
            more = f" and {len(missing) - WAITS_SHOWN} more" if len(missing) > WAITS_SHOWN else ""
            waits_for = ", ".join(map(describe, missing[:WAITS_SHOWN])) + more
            yield UnfinishedPart(
                number, UnfinishedKind.DECIDED, transaction, number, decision.decided_ms, waits_for,
                True, decision.row_count, None, decision.timestamp,
            )  # fmt: skip


def _is_open(around: Surroundings, number: ParticipantId) -> bool:
    """Return True if a participant runs, here or at another node that is linked."""
    participant = around.find(number)
    if participant is None:
        return around.is_elsewhere(number.tablet_id)
    return participant.is_known and not participant.is_lost
