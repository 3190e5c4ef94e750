"""Steps of commits over nodes, as they go over the peer link: both ends read them here. No I/O."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from pqbroker.broker.services.commits.away import HomeState, HomeWord, PreparedEnds
from pqbroker.pq.log.commit_timestamps import TIMESTAMP_MAX
from pqbroker.pq.transactions.participants import SentRows
from pqbroker.pq.transactions.stored_forms import (
    PARTICIPANTS_MAX,
    TRANSACTION_BYTES,
    CommitDecision,
    ParticipantId,
    PreparedHead,
    PreparedRows,
    TransactionId,
)
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.engine import CommitRefused, ShardLost
from pqbroker.storage.ids import TabletId
from pqbroker.tables.refusals import TableError

LIMIT_MS_MAX: Final = 600_000
"""Longest time that another node may be asked to hold rows."""
_BAD: Final = (LookupError, TypeError, ValueError)


class RowsAsked(NamedTuple):
    """Rows to prepare within a time."""

    head: PreparedHead
    parts: Sequence[SentRows]
    limit_ms: int

    def encode(self) -> tuple[Any, bytes]:
        """Return head and body of the request."""
        parts = [[*one.participant, one.start, len(one.stored)] for one in self.parts]
        return [self.head.encode().hex(), parts, self.limit_ms], b"".join(one.stored for one in self.parts)

    @classmethod
    def decode(cls, head: Any, body: memoryview) -> "RowsAsked":
        """ValueError for what is none."""
        try:
            stored, parts, limit_ms = head
            read, at = list[SentRows](), 0
            for tablet, partition, start, size in parts:
                known = None if start is None else _number(start)
                read.append(SentRows(_participant((tablet, partition)), known, body[at : at + _number(size)]))
                at += size
            prepared = PreparedRows.decode(bytes.fromhex(stored))
        except _BAD as bad:
            raise ValueError(f"rows to prepare were expected: {bad}") from None
        if at != len(body) or not 0 < len(read) <= PARTICIPANTS_MAX or prepared.rows:
            raise ValueError(f"{len(read)} parts have {at} bytes, and {len(body)} came")
        if len({one.participant for one in read}) < len(read):
            raise ValueError("a participant has two parts")
        if not isinstance(limit_ms, int) or not 0 <= limit_ms <= LIMIT_MS_MAX:
            raise ValueError(f"rows are to be prepared within {limit_ms!r} ms")
        return cls(prepared.head, read, limit_ms)


def encode_positions(positions: Sequence[int]) -> Any:
    """Return the answer to `RowsAsked` where all is prepared."""
    return list(positions)


def encode_refusal(refusal: BaseException) -> Any:
    """Return the answer to `RowsAsked` where something refuses."""
    if isinstance(refusal, TableError):
        return {"table": [refusal.code, refusal.message, refusal.cure]}
    if isinstance(refusal, KafkaError):
        return {"kafka": [refusal.code, refusal.message]}
    return {"refused": str(refusal)}


def decode_positions(told: Any, count: int) -> Sequence[int]:
    """Return the positions of `count` parts. What the other node refused with: KafkaError, TableError, CommitRefused;
    ValueError for what is no answer."""
    try:
        if isinstance(told, list) and len(told) == count:
            return [_number(one) for one in told]
        ((kind, refusal),) = told.items()
        error: Exception
        if kind == "table":
            code, message, cure = refusal
            error = TableError(str(code), str(message), str(cure))
        elif kind == "kafka":
            code, message = refusal
            error = KafkaError(ErrorCode(code), str(message))
        else:
            error = CommitRefused(str(refusal))
    except (AttributeError, *_BAD) as bad:
        raise ValueError(f"positions of prepared rows were expected: {bad}") from None
    raise error


def encode_ends(ends: PreparedEnds) -> Any:
    """Return the head of a request that ends prepared rows."""
    participants = [list(one) for one in ends.participants]
    return [ends.transaction.hex(), ends.timestamp, ends.least_timestamp, participants]


def decode_ends(head: Any) -> PreparedEnds:
    """ValueError for what is none."""
    try:
        transaction, timestamp, least, participants = head
        given = None if timestamp is None else _timestamp(timestamp)
        read = tuple(_participant(one) for one in participants)
        found = PreparedEnds(_transaction(transaction), given, _timestamp(least), read)
    except _BAD as bad:
        raise ValueError(f"an end of prepared rows was expected: {bad}") from None
    if len(read) > PARTICIPANTS_MAX:
        raise ValueError(f"rows of {len(read)} participants are to be ended; {PARTICIPANTS_MAX} are allowed")
    return found


def encode_left(left: Mapping[ParticipantId, str]) -> Any:
    """Return the answer: why some rows were not ended."""
    return [[*number, why] for number, why in left.items()]


def decode_left(told: Any, ends: PreparedEnds) -> dict[ParticipantId, str]:
    """ValueError for what is no answer to this request."""
    try:
        left = {_participant((tablet, partition)): str(why) for tablet, partition, why in told}
    except _BAD as bad:
        raise ValueError(f"rows that are left were expected: {bad}") from None
    if not left.keys() <= set(ends.participants):
        raise ValueError("rows are left that were not to be ended")
    return left


def encode_question(homes: Sequence[ParticipantId], transaction: TransactionId) -> Any:
    """Return the head of a question to participants of which one may be the home."""
    return [[list(one) for one in homes], transaction.hex()]


def decode_question(head: Any) -> tuple[Sequence[ParticipantId], TransactionId]:
    """ValueError for what is none."""
    try:
        homes, transaction = head
        read = [_participant(one) for one in homes]
        number = _transaction(transaction)
    except _BAD as bad:
        raise ValueError(f"a question to a home was expected: {bad}") from None
    if len(read) > PARTICIPANTS_MAX:
        raise ValueError(f"{len(read)} participants are asked; {PARTICIPANTS_MAX} are allowed")
    return read, number


def encode_word(word: HomeWord) -> Any:
    """Return the answer of a home."""
    return [word.state.value, None if word.decision is None else word.decision.encode().hex()]


def decode_word(told: Any, transaction: TransactionId) -> HomeWord:
    """ValueError for what is no answer about this transaction."""
    try:
        state, stored = told
        decision = None if stored is None else CommitDecision.decode(bytes.fromhex(stored))
        word = HomeWord(HomeState(state), decision)
    except _BAD as bad:
        raise ValueError(f"the word of a home was expected: {bad}") from None
    if (word.state is HomeState.COMMITTED) != (decision is not None):
        raise ValueError(f"a home says {word.state.value}, with a decision or without one")
    if decision is not None and decision.transaction != transaction:
        raise ValueError("a home has a decision about another transaction")
    return word


def as_refused(error: Exception) -> CommitRefused:
    """Return what a step ends with that another node did not answer: nobody knows what it did."""
    return CommitRefused(f"another node did not do its part of a commit: {error}; try again")


REFUSALS: Final = (CommitRefused, KafkaError, ShardLost, TableError)
"""Refusals of rows that are to be prepared."""


def _number(given: Any) -> int:
    if not isinstance(given, int) or isinstance(given, bool) or given < 0:
        raise ValueError(f"{given!r} is no count")
    return given


def _timestamp(given: Any) -> int:
    if _number(given) > TIMESTAMP_MAX:
        raise ValueError(f"{given!r} is no timestamp")
    return int(given)


def _participant(given: Any) -> ParticipantId:
    tablet, partition = given
    return ParticipantId(TabletId(_number(tablet)), _number(partition))


def _transaction(given: Any) -> TransactionId:
    number = bytes.fromhex(given)
    if len(number) != TRANSACTION_BYTES:
        raise ValueError(f"{given!r} is no transaction")
    return TransactionId(number)
