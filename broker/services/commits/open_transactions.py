"""Transactions that clients have open, in memory: a restart aborts them. Pure.

    open        ping                     open, for its timeout again
    open        commit                   committing
    open        abort                    ended: aborted
    open        timeout, age             ended: aborted
    committing  decided                  ended: committed
    committing  refused                  ended: aborted
    committing  the home's cell is lost  gone: a commit that is sent again finds the decision, or there is none
    ended       commit as before         the same answer, while it is kept
"""

import secrets
from collections.abc import Iterable
from enum import StrEnum
from itertools import islice
from typing import Final, NamedTuple

from pqbroker.broker.ground.access import Principal
from pqbroker.conf.shares import Shares, may_take
from pqbroker.pq.transactions.stored_forms import TRANSACTION_BYTES, CommitDecision, TransactionId
from pqbroker.storage.outcome import Outcome
from pqbroker.tables.refusals import TableError

KEPT_MAX: Final = 10_000
"""Transactions that have ended and are kept in memory; the decisions of others lie in their tablets."""
_START = "POST /v1/transactions starts another one."


class TransactionState(StrEnum):
    """The states of a transaction that clients see."""

    OPEN = "open"
    COMMITTING = "committing"
    COMMITTED = "committed"
    ABORTED = "aborted"


class TransactionLimits(NamedTuple):
    """Limits of the transactions of a node; times in milliseconds."""

    transactions_max: int
    timeout_ms_max: int
    age_ms_max: int
    kept_ms: int


class StartedBy(NamedTuple):
    """The client of a transaction. `holder`: the key of its shares of the node's limits (`holder_of`)."""

    principal: Principal
    holder: str


class TakenAlong(NamedTuple):
    """A producer of Kafka's whose open transaction ends with one over tables, in the epoch that it had at its start."""

    transactional_id: str
    producer_id: int
    epoch: int


class OpenTransaction:
    """One transaction that was started and is not forgotten."""

    __slots__ = (
        "cause", "client", "decision", "digest", "ended_ms", "number", "outcome", "pinged_ms", "producer",
        "start_timestamp", "started_ms", "state", "timeout_ms",
    )  # fmt: skip

    def __init__(self, number: TransactionId, client: StartedBy, start_timestamp: int, timeout_ms: int, now_ms: int):
        self.number = number
        self.client = client
        self.start_timestamp = start_timestamp
        self.timeout_ms = timeout_ms
        self.started_ms = self.pinged_ms = now_ms
        self.ended_ms = 0
        self.state = TransactionState.OPEN
        self.cause = ""
        """The cause of its abort, for people."""
        self.producer: TakenAlong | None = None
        self.digest = b""
        """Digest of what its commit had."""
        self.outcome: Outcome[CommitDecision] = Outcome()
        """The end of its commit."""
        self.decision: CommitDecision | None = None

    @property
    def name(self) -> str:
        """Return the name that clients know it by: 32 hexadecimal digits."""
        return self.number.hex()

    @property
    def is_ended(self) -> bool:
        return self.state in (TransactionState.COMMITTED, TransactionState.ABORTED)

    @property
    def expires_ms(self) -> int:
        """Return the time at which it is aborted unless there is a ping before, milliseconds since 1970."""
        return self.pinged_ms + self.timeout_ms


class OpenTransactions:
    """All of a node, by their numbers."""

    def __init__(self) -> None:
        self._open: dict[TransactionId, OpenTransaction] = {}
        """Transactions that are open or being committed."""
        self._ended: dict[TransactionId, OpenTransaction] = {}
        """Transactions that have ended and are kept, in the order of their ends."""
        self._shares = Shares[str]()

    @property
    def open_count(self) -> int:
        """Return how many are open or being committed."""
        return self._shares.total

    def get(self, number: TransactionId) -> OpenTransaction | None:
        """Return a transaction that is open or kept."""
        return self._open.get(number) or self._ended.get(number)

    def known(self) -> list[OpenTransaction]:
        """Return the transactions that are open, the oldest first, and those that are kept."""
        return [*self._open.values(), *self._ended.values()]

    def check_room(self, client: StartedBy, limits: TransactionLimits) -> None:
        """TableError TOO_MANY_TRANSACTIONS unless the client may start another transaction."""
        most, held = limits.transactions_max, self._shares.held.get(client.holder, 0)
        if not may_take(most, self._shares.total, held):
            text = f"{self._shares.total} transactions are open, {held} of this client; the limit is {most}"
            cure = "Commit or abort some, or raise pqbroker.transactions.max."
            raise TableError("TOO_MANY_TRANSACTIONS", text, cure)

    def start(self, client: StartedBy, start_timestamp: int, timeout_ms: int, now_ms: int) -> OpenTransaction:
        """Start a transaction; there is room."""
        number = TransactionId(secrets.token_bytes(TRANSACTION_BYTES))
        started = OpenTransaction(number, client, start_timestamp, timeout_ms, now_ms)
        self._open[number] = started
        self._shares.take(client.holder)
        return started

    def end(self, one: OpenTransaction, state: TransactionState, now_ms: int, cause: str = "") -> None:
        """Note the end of a transaction."""
        assert not one.is_ended
        self._shares.give_back(one.client.holder)
        one.state, one.ended_ms, one.cause = state, now_ms, cause
        del self._open[one.number]
        self._ended[one.number] = one
        if len(self._ended) > KEPT_MAX:
            del self._ended[next(iter(self._ended))]

    def forget(self, one: OpenTransaction) -> None:
        """Forget a transaction whose outcome is unknown."""
        assert not one.is_ended
        self._shares.give_back(one.client.holder)
        del self._open[one.number]

    def expire(self, now_ms: int, limits: TransactionLimits) -> list[OpenTransaction]:
        """Abort what is open for too long, forget what has ended long ago; return what was aborted."""
        over = [(one, why) for one in self._open.values() if (why := why_over(one, now_ms, limits))]
        for one, why in over:
            self.end(one, TransactionState.ABORTED, now_ms, why)
        while self._ended and (oldest := next(iter(self._ended.values()))).ended_ms + limits.kept_ms <= now_ms:
            del self._ended[oldest.number]
        return [one for one, _ in over]

    def next_expiry_ms(self, limits: TransactionLimits) -> int | None:
        """Return the time of the next thing that `expire` does; None: there is nothing."""
        kept = (one.ended_ms + limits.kept_ms for one in islice(self._ended.values(), 1))
        return min((*_expiries(self._open.values(), limits), *kept), default=None)


def number_of(name: str) -> TransactionId:
    """Return the number of a name. TableError NO_TRANSACTION for what is none."""
    try:
        number = bytes.fromhex(name)
    except ValueError:
        number = b""
    if len(number) != TRANSACTION_BYTES or number.hex() != name:
        raise TableError("NO_TRANSACTION", f"{name[:100]!r} is no name of a transaction", _START)
    return TransactionId(number)


def check_open(one: OpenTransaction | None, name: str) -> OpenTransaction:
    """Return a transaction that is open. TableError NO_TRANSACTION, TRANSACTION_ENDED, TRANSACTION_COMMITTING."""
    if one is None:
        text = f"transaction {name} is not open: it was never started by this user, or has ended long ago, or a restart"
        raise TableError("NO_TRANSACTION", f"{text} of the broker has aborted it", _START)
    if one.is_ended:
        why = f": {one.cause}" if one.cause else ""
        raise TableError("TRANSACTION_ENDED", f"transaction {name} is {one.state.value}{why}", _START)
    if one.state is TransactionState.COMMITTING:
        text = f"transaction {name} is being committed"
        raise TableError("TRANSACTION_COMMITTING", text, "Send the commit again, to learn what becomes of it.")
    return one


def why_over(one: OpenTransaction, now_ms: int, limits: TransactionLimits) -> str:
    """Return why the time of an open transaction is over; empty: it is not."""
    if one.state is not TransactionState.OPEN:
        return ""
    if one.expires_ms <= now_ms:
        return f"there was no ping for {one.timeout_ms} ms, its timeout"
    if one.started_ms + limits.age_ms_max <= now_ms:
        return f"it was open for {limits.age_ms_max} ms, pqbroker.transaction.age.ms.max"
    return ""


def _expiries(some: Iterable[OpenTransaction], limits: TransactionLimits) -> Iterable[int]:
    for one in some:
        if one.state is TransactionState.OPEN:
            yield min(one.expires_ms, one.started_ms + limits.age_ms_max)
