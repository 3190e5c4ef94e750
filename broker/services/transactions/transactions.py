"""Transactions over tables: started, read at, committed with all their writes, aborted, shown.

A transaction reads at its start's timestamp, and writes with its commit, whole: another one that has written one of its
rows since is a conflict. It serves the principal that started it.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from pqbroker.broker.ground.access import AclOperation, check_access, is_allowed
from pqbroker.broker.services.commits.away import HomeState
from pqbroker.broker.services.commits.commit import CommitRequest, CommitUnknown
from pqbroker.broker.services.commits.commits import Commits
from pqbroker.broker.services.commits.open_transactions import (
    OpenTransaction,
    StartedBy,
    TakenAlong,
    TransactionState,
    check_open,
    number_of,
)
from pqbroker.broker.services.transactional_producers.joined_commit import commit_joined
from pqbroker.broker.services.transactions.callers import TransactionsCaller
from pqbroker.broker.services.transactions.kafka_side import GivenOffset, joined_commit, take_along, topics_of
from pqbroker.broker.services.transactions.writes import TableWrite, digest_of, in_a_thread, parts_of, with_offsets
from pqbroker.pq.transactions.participants import LookAgain, Participant
from pqbroker.pq.transactions.stored_forms import CommitDecision, ParticipantId, TransactionId
from pqbroker.protocol.errors import KafkaError
from pqbroker.storage.engine import CommitRefused, ShardLost
from pqbroker.storage.outcome import Outcome
from pqbroker.storage.uninterrupted import uninterrupted
from pqbroker.tables.refusals import TableError

TIMEOUT_MS_DEFAULT: Final = 15_000
COMMIT_TRIES_MAX: Final = 10
"""Tries of a commit whose tables get new chunks meanwhile."""
_FEW_ROWS: Final = 1000
_START = "POST /v1/transactions starts another one."


class CommittedTransaction(NamedTuple):
    """The outcome of a commit. `is_repeated`: it was committed before, by the same request."""

    timestamp: int
    row_count: int
    is_repeated: bool = False


async def start(
    caller: TransactionsCaller, holder: str, timeout_ms: int | None = None, transactional_id: str = ""
) -> OpenTransaction:
    """Start a transaction. `holder`: the key of the client's shares of limits; `timeout_ms` None: the default.
    `transactional_id`: of the producer whose transaction ends with it.

    TableError INVALID_TIMEOUT, TOO_MANY_TRANSACTIONS; CommitRefused where no timestamp can be given; KafkaError as
    `take_along`.
    """
    producer = take_along(caller, transactional_id) if transactional_id else None
    commits = _commits(caller)
    most = commits.limits.timeout_ms_max
    wanted = min(TIMEOUT_MS_DEFAULT, most) if timeout_ms is None else timeout_ms
    if not 0 < wanted <= most:
        text = f"timeout_ms is {wanted}; 1 to {most} are allowed (pqbroker.transaction.timeout.ms.max)"
        raise TableError("INVALID_TIMEOUT", text, "Give a shorter one, and ping.")
    begun = await commits.begin(StartedBy(caller.principal, holder), wanted)
    begun.producer = producer
    return begun


def ping(caller: TransactionsCaller, name: str) -> OpenTransaction:
    """Keep a transaction open for its timeout again. TableError NO_TRANSACTION, TRANSACTION_ENDED,
    TRANSACTION_COMMITTING."""
    one = _open(caller, name)
    one.pinged_ms = _commits(caller).now_ms()
    return one


def read_timestamp(caller: TransactionsCaller, name: str) -> int:
    """Return the timestamp at which a transaction reads; TableError as `ping`, which this is too."""
    return ping(caller, name).start_timestamp


def abort(caller: TransactionsCaller, name: str) -> None:
    """Abort a transaction; one that is aborted stays so. TableError NO_TRANSACTION, TRANSACTION_ENDED of one that is
    committed, TRANSACTION_COMMITTING."""
    commits = _commits(caller)
    one = _find(commits, caller, name)
    if one is not None and one.state is TransactionState.ABORTED:
        return
    commits.end(check_open(one, name), TransactionState.ABORTED, "its client aborted it")


def abort_any(caller: TransactionsCaller, name: str) -> None:
    """Abort anybody's transaction, for an operator. KafkaError CLUSTER_AUTHORIZATION_FAILED; TableError as `abort`."""
    check_access(caller, AclOperation.ALTER)
    commits = _commits(caller)
    one = commits.get(number_of(name))
    commits.end(check_open(one, name), TransactionState.ABORTED, "an operator aborted it")


def every_transaction(caller: TransactionsCaller) -> list[OpenTransaction]:
    """Return the transactions that the caller may see, the oldest first: all, where it may describe the cluster, else
    its own."""
    may_see_all = is_allowed(caller, AclOperation.DESCRIBE)
    known = sorted(_commits(caller).known(), key=lambda one: one.start_timestamp)
    return [one for one in known if may_see_all or one.client.principal == caller.principal]


def describe(caller: TransactionsCaller, name: str) -> OpenTransaction:
    """Return a transaction that the caller may see. TableError NO_TRANSACTION."""
    one = _commits(caller).get(number_of(name))
    if one is None or not (one.client.principal == caller.principal or is_allowed(caller, AclOperation.DESCRIBE)):
        raise TableError("NO_TRANSACTION", f"there is no transaction {name}", _START)
    return one


class _Contents(NamedTuple):
    """Writes and offsets that a transaction is committed with."""

    writes: Sequence[TableWrite]
    offsets: Sequence[GivenOffset]
    holder: str
    """The client's, who commits the offsets."""


async def commit(
    caller: TransactionsCaller, name: str, writes: Sequence[TableWrite], offsets: Sequence[GivenOffset] = (),
    holder: str = "",
) -> CommittedTransaction:
    """Commit a transaction with its writes: all of them appear at one timestamp, or none does; so do the records of a
    producer that it takes along, and offsets of groups. The same request sent again gets the same answer for as long as
    outcomes are kept, after a restart too.

    TableError ROW_LOCK_CONFLICT, NO_TRANSACTION, TRANSACTION_ENDED, TRANSACTION_CHANGED, COMMIT_UNKNOWN and those of
    `parts_of`; KafkaError; CommitRefused. But for COMMIT_UNKNOWN the transaction is aborted then.
    """
    number, commits = number_of(name), _commits(caller)
    one = _find(commits, caller, name)
    many = sum(len(each.items) for each in writes) > _FEW_ROWS
    digest = with_offsets(await in_a_thread(writes) if many else digest_of(writes), offsets)
    if one is None:
        return await _decided_before(caller, number, writes, digest)
    if one.state is not TransactionState.OPEN and one.digest == digest:
        decision = await _told(one)
        return CommittedTransaction(decision.timestamp, decision.row_count, is_repeated=True)
    if one.state is TransactionState.COMMITTED:
        raise _changed(name)
    check_open(one, name).state = TransactionState.COMMITTING
    one.digest = digest
    decision = await uninterrupted(_commit(caller, commits, one, _Contents(writes, offsets, holder)))
    return CommittedTransaction(decision.timestamp, decision.row_count)


async def _commit(
    caller: TransactionsCaller, commits: Commits, one: OpenTransaction, wanted: _Contents
) -> CommitDecision:
    try:
        decision = await _decision(caller, commits, one, wanted)
    except (CommitUnknown, ShardLost) as loss:
        unknown = TableError(
            "COMMIT_UNKNOWN", f"the cell was lost while transaction {one.name} was being committed: {loss}",
            "Send the same commit again: it answers what became of it.",
        )  # fmt: skip
        commits.forget(one)
        one.outcome.set_exception(unknown)
        raise unknown from None
    except TableError as refusal:
        told = TableError(refusal.code, f"{refusal.message}; the transaction is aborted", refusal.cure)
        _abort(commits, one, refusal.message, told)
        raise told from None
    except BaseException as failure:
        is_refused = isinstance(failure, KafkaError | CommitRefused)
        _abort(commits, one, str(failure) if is_refused else "the broker failed", failure)
        raise
    one.decision = decision
    commits.end(one, TransactionState.COMMITTED)
    one.outcome.set_result(decision)
    return decision


def _abort(commits: Commits, one: OpenTransaction, cause: str, told: BaseException) -> None:
    commits.end(one, TransactionState.ABORTED, cause)
    one.outcome.set_exception(told)


async def _decision(
    caller: TransactionsCaller, commits: Commits, one: OpenTransaction, wanted: _Contents
) -> CommitDecision:
    """Commit; readers of several tables or topics see all of it or nothing."""
    names = {each.table for each in wanted.writes}
    if one.producer is not None:
        names |= topics_of(caller, one.producer)
    if len(names) < 2:
        return await _tried(caller, commits, one, wanted)
    moments = commits.moments
    token = await moments.begin(names)
    try:
        decision = await _tried(caller, commits, one, wanted)
    except BaseException:
        moments.end(token)
        raise
    written = commits.written(one.number)
    if one.producer is not None:
        uninterrupted(_end_visible(caller, commits, one.producer, token, written))
    elif written is not None:
        written.add_done_callback(lambda _: moments.end(token))
    else:
        moments.end(token)
    return decision


async def _end_visible(
    caller: TransactionsCaller, commits: Commits, producer: TakenAlong, token: object, written: Outcome[None] | None
) -> None:
    """Note that all rows and records of a commit are visible, for readers of several tables and topics."""
    try:
        if written is not None:
            await written.wait()
        with suppress(KafkaError):
            await caller.node.cell.current.transactional_producers.ended(producer.transactional_id)
    finally:
        commits.moments.end(token)


async def _tried(
    caller: TransactionsCaller, commits: Commits, one: OpenTransaction, wanted: _Contents
) -> CommitDecision:
    """Commit; what has changed meanwhile is looked at again."""
    for _ in range(COMMIT_TRIES_MAX):
        parts = await parts_of(caller, wanted.writes, one.start_timestamp)
        joined = joined_commit(caller, one, wanted.offsets, wanted.holder)
        if not parts and joined is None:
            return CommitDecision(one.number, one.start_timestamp, commits.now_ms(), one.digest, 0, ())
        with suppress(LookAgain):
            if joined is None:
                return await commits.commit(CommitRequest(one.number, parts, one.digest))
            producers = caller.node.cell.current.transactional_producers
            return await commit_joined(producers, commits, joined, parts)
    raise TableError("TABLET_BUSY", f"chunks of the tables were replaced {COMMIT_TRIES_MAX} times", "Try again.")


async def _told(one: OpenTransaction) -> CommitDecision:
    """Return what the same commit was told, or will be. TableError TRANSACTION_ENDED, and what it was refused with."""
    if one.state is TransactionState.COMMITTING:
        await one.outcome.wait()
    if one.outcome.done() and (not one.is_ended or isinstance(one.outcome.exception(), TableError | None)):
        return one.outcome.result()
    raise TableError("TRANSACTION_ENDED", f"transaction {one.name} is aborted: {one.cause}", _START)


async def _decided_before(
    caller: TransactionsCaller, number: TransactionId, writes: Sequence[TableWrite], digest: bytes
) -> CommittedTransaction:
    """Return what was decided of a transaction that this process does not know: it was started before a restart, or
    its outcome was unknown. TableError NO_TRANSACTION, TRANSACTION_CHANGED, COMMIT_UNKNOWN."""
    homes = [each.participant_of_commits for each in caller.node.cell.current.coordinators.tablets]
    candidates = [home for home in homes if home is not None]
    is_known = all(home.is_known for home in candidates)
    for name in {each.table for each in writes}:
        is_known &= _is_known(caller, name)
        candidates += _participants(caller, name)
    known = [participant.decisions.get(number) for participant in candidates]
    away = [one for name in sorted({each.table for each in writes}) for one in _elsewhere(caller, name)]
    word = await _commits(caller).word_elsewhere(away, number)
    for decision in (*known, word.decision):
        if decision is not None and decision.digest == digest:
            return CommittedTransaction(decision.timestamp, decision.row_count, is_repeated=True)
        if decision is not None:
            raise _changed(number.hex())
    if not is_known or word.state is not HomeState.NEVER:
        text = f"tablets that transaction {number.hex()} may have been committed in are not open"
        raise TableError("COMMIT_UNKNOWN", text, "Send the same commit again when GET /v1/cells shows cells open.")
    check_open(None, number.hex())
    raise AssertionError("a transaction that is not known is not open")


def _is_known(caller: TransactionsCaller, name: str) -> bool:
    """Return True if all decisions that lie in tablets of a table are known here, or at other nodes."""
    opened = caller.node.cell.current
    table, topic = opened.sorted_tables.get(name), opened.topics.get(name)
    commits = _commits(caller)
    if table is not None:
        return all(
            (tablet.transactions.is_known and tablet.kv.lost is None)
            or commits.is_elsewhere(tablet.transactions.participant_id.tablet_id)
            for tablet in table.tablets
        )
    return topic is None or all(
        (one.is_loaded and not one.storage.is_lost) or commits.is_elsewhere(one.storage.tablet_id)
        for one in topic.partitions
    )


def _participants(caller: TransactionsCaller, name: str) -> list[Participant]:
    """Return all that have decisions of commits that wrote to a table, some of them without."""
    opened = caller.node.cell.current
    table, topic = opened.sorted_tables.get(name), opened.topics.get(name)
    if table is not None:
        return [tablet.transactions for tablet in table.tablets]
    partitions = () if topic is None else topic.partitions
    return [one.known_transactions for one in partitions if one.known_transactions is not None]


def _elsewhere(caller: TransactionsCaller, name: str) -> list[ParticipantId]:
    """Return the participants of a table that other nodes run."""
    opened = caller.node.cell.current
    table, topic = opened.sorted_tables.get(name), opened.topics.get(name)
    if table is not None:
        ids = [tablet.transactions.participant_id for tablet in table.tablets]
    else:
        partitions = () if topic is None else topic.partitions
        ids = [ParticipantId(one.storage.tablet_id, one.index) for one in partitions]
    return [number for number in ids if opened.commits.is_elsewhere(number.tablet_id)]


def _changed(name: str) -> TableError:
    text = f"transaction {name} was committed with other writes than these"
    return TableError("TRANSACTION_CHANGED", text, "Start another transaction for other writes.")


def _open(caller: TransactionsCaller, name: str) -> OpenTransaction:
    return check_open(_find(_commits(caller), caller, name), name)


def _find(commits: Commits, caller: TransactionsCaller, name: str) -> OpenTransaction | None:
    """Return a transaction of the caller's own; None: there is none, or it is forgotten. TableError NO_TRANSACTION."""
    found = commits.get(number_of(name))
    return found if found is not None and found.client.principal == caller.principal else None


def _commits(caller: TransactionsCaller) -> Commits:
    return caller.node.cell.current.commits
