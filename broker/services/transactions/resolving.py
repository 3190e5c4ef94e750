"""Rows in doubt resolved by an operator, where the cell with the decision does not come back.

All prepared rows of the transaction are written at a timestamp, or dropped, in cells that open later too. If the home
comes back all the same, and says something else, its own rows stay as they are: the transaction is torn then.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from pqbroker.broker.ground.access import AclOperation, check_access
from pqbroker.broker.services.commits.commits import Commits, CommitTrace
from pqbroker.broker.services.commits.elsewhere import WantedParts
from pqbroker.broker.services.commits.in_doubt import UnfinishedKind, UnfinishedPart
from pqbroker.broker.services.commits.open_transactions import TransactionState, number_of
from pqbroker.broker.services.commits.resolutions import Resolution
from pqbroker.broker.services.tables.callers import TablesCaller
from pqbroker.broker.services.transactions.unfinished import unfinished
from pqbroker.pq.transactions.stored_forms import TransactionId
from pqbroker.tables.refusals import TableError

_LIST: Final = "GET /v1/transactions/unfinished, or `pqbroker transaction list --unfinished`, shows what is in doubt."


class Resolving(NamedTuple):
    """Rows that a resolution would end, or has ended. `timestamp` None: they are dropped."""

    transaction: TransactionId
    timestamp: int | None
    parts: Sequence[UnfinishedPart]
    """Rows that were prepared in cells that are open."""
    left: int
    """Number of those that are prepared still."""
    trace: CommitTrace | None
    """Memory of this process about the commit."""


async def resolve(caller: TablesCaller, name: str, timestamp: int | None, *, is_dry: bool) -> Resolving:
    """Commit the prepared rows of a transaction at a timestamp, or drop them where it is None; `is_dry`: say what that
    would do.

    KafkaError CLUSTER_AUTHORIZATION_FAILED; TableError NO_TRANSACTION, TRANSACTION_COMMITTING, HOME_OPEN,
    TRANSACTION_RESOLVED, OUTCOME_KNOWN, INVALID_COMMIT_TIMESTAMP, TOO_MANY_RESOLUTIONS, NODE_SILENT;
    CommitRefused, ShardLost.
    """
    check_access(caller, AclOperation.ALTER)
    commits, number = caller.node.cell.current.commits, number_of(name)
    parts = await _prepared(caller, number)
    _check_in_doubt(commits, name, parts)
    trace = commits.trace_of(number)
    _check_outcome(commits, number, timestamp, trace)
    if timestamp is not None and not parts[0].least_timestamp < timestamp <= commits.last_timestamp:
        least, most = parts[0].least_timestamp + 1, commits.last_timestamp
        text = f"timestamp is {timestamp}; the transaction can have been committed at {least} to {most}"
        cure = "Give the timestamp of its rows in another tablet, or abort it."
        raise TableError("INVALID_COMMIT_TIMESTAMP", text, cure)
    if is_dry:
        return Resolving(number, timestamp, parts, len(parts), trace)
    await commits.resolve(
        Resolution(number, timestamp, parts[0].home, commits.now_ms(), str(caller.principal))
    )
    return Resolving(number, timestamp, parts, len(await _prepared(caller, number)), trace)


def every_resolution(caller: TablesCaller) -> Sequence[Resolution]:
    """Return the resolutions that are kept, the oldest first; the caller may describe the cluster."""
    return caller.node.cell.current.commits.resolutions.known()


async def _prepared(caller: TablesCaller, number: TransactionId) -> Sequence[UnfinishedPart]:
    """Return the rows of a transaction that are prepared, at all nodes. TableError NODE_SILENT."""
    parts = await unfinished(caller, WantedParts(transaction=number))
    return [one for one in parts if one.kind is UnfinishedKind.PREPARED]


def _check_in_doubt(commits: Commits, name: str, parts: Sequence[UnfinishedPart]) -> None:
    """TableError NO_TRANSACTION, TRANSACTION_COMMITTING, HOME_OPEN."""
    if commits.is_under_way(number_of(name)):
        raise TableError("TRANSACTION_COMMITTING", f"transaction {name} is being committed", "Wait for its end.")
    if not parts:
        raise TableError("NO_TRANSACTION", f"no open cell has rows in doubt of transaction {name}", _LIST)
    if parts[0].is_home_open:
        text = f"the decision about transaction {name} is known: the tablet that has it is open, or deleted"
        raise TableError("HOME_OPEN", text, f"Its rows end by themselves, within seconds. {_LIST}")


def _check_outcome(
    commits: Commits, number: TransactionId, timestamp: int | None, trace: CommitTrace | None
) -> None:
    """TableError TRANSACTION_RESOLVED, OUTCOME_KNOWN for another outcome than the one that was given, or is known."""
    resolved = commits.resolutions.get(number)
    if resolved is not None and resolved.timestamp != timestamp:
        text = f"transaction {number.hex()} was resolved already: {_outcome(resolved.timestamp)}"
        raise TableError("TRANSACTION_RESOLVED", text, "Its rows in all cells end so; nothing can change that.")
    known = commits.get(number)
    if trace is not None and trace.is_committed and trace.timestamp != timestamp:
        text = f"transaction {number.hex()} is known to be {_outcome(trace.timestamp)}"
        raise TableError("OUTCOME_KNOWN", text, f"Resolve it so: `--commit {trace.timestamp}`.")
    if trace is not None and timestamp not in (None, trace.timestamp):
        text = f"transaction {number.hex()} is committed at timestamp {trace.timestamp}, or not at all"
        raise TableError("OUTCOME_KNOWN", text, "Give that timestamp, or abort it.")
    if known is not None and known.state is TransactionState.ABORTED and timestamp is not None:
        text = f"transaction {number.hex()} is known to be aborted: {known.cause}"
        raise TableError("OUTCOME_KNOWN", text, "Resolve it so: `--abort`.")


def _outcome(timestamp: int | None) -> str:
    return "aborted" if timestamp is None else f"committed at timestamp {timestamp}"
