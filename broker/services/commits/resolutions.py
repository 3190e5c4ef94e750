"""Resolutions: outcomes that operators give to rows in doubt whose home does not come back. They lie in the scheme.

    none      add          waiting       prepared rows of the transaction are written or dropped as it says, in cells
                                         that open later too, whatever the home says then
    waiting   home agrees  none          it is forgotten
    waiting   home differs compared      its rows elsewhere stay as they are; the log and an event say so
    waiting   home deleted compared
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from pqbroker.pq.transactions.stored_forms import CommitDecision, ParticipantId, TransactionId
from pqbroker.storage.ids import TabletId
from pqbroker.storage.tablets.row_sets import RowChanges
from pqbroker.storage.tablets.scheme import Scheme
from pqbroker.tables.refusals import TableError

RESOLUTIONS: Final = "resolutions"
"""Row set of the scheme, laid out with the first one."""
RESOLUTIONS_MAX: Final = 1_000
"""Resolutions that are kept; more, and the oldest of those go that were compared."""
_COLUMNS = ("timestamp", "home", "partition", "resolved_ms", "principal", "home_says")


class Resolution(NamedTuple):
    """One transaction that was resolved. `timestamp` None: its rows are dropped."""

    transaction: TransactionId
    timestamp: int | None
    home: ParticipantId
    resolved_ms: int
    principal: str
    """The name of the operator."""
    home_says: str = ""
    """The home's word against it, for people; empty: it was not open since."""

    def contradicted_by(self, decision: CommitDecision | None) -> str:
        """Return how the home contradicts it, which has this decision or none; empty: it agrees."""
        if decision is None:
            return "" if self.timestamp is None else "its home has never committed it, and has dropped its own rows"
        if self.timestamp == decision.timestamp:
            return ""
        return f"its home has committed it at timestamp {decision.timestamp}"


class Resolutions:
    """All of a cluster, by transaction."""

    def __init__(self, scheme: Scheme) -> None:
        self._scheme = scheme

    def get(self, transaction: TransactionId) -> Resolution | None:
        row = self._rows.get((transaction,))
        return None if row is None else _read(transaction, row)

    def known(self) -> Sequence[Resolution]:
        """Return all, the oldest first."""
        found = [_read(key[0], row) for key, row in self._rows.items()]
        return sorted(found, key=lambda one: (one.resolved_ms, one.transaction))

    def waiting(self) -> Sequence[Resolution]:
        """Return those that were not compared with what their home says."""
        return [one for one in self.known() if not one.home_says] if self._rows else ()

    async def add(self, resolution: Resolution) -> None:
        """Make a resolution durable. TableError TOO_MANY_RESOLUTIONS; CommitRefused, ShardLost."""
        surplus = len(self._rows) + 1 - RESOLUTIONS_MAX
        old = [one.transaction for one in self.known() if one.home_says]
        if surplus > len(old):
            text = f"{RESOLUTIONS_MAX} transactions were resolved whose homes are not open"
            raise TableError("TOO_MANY_RESOLUTIONS", text, "Open the cells of the homes, or delete their tables.")

        def plan(changes: RowChanges) -> None:
            if RESOLUTIONS not in changes.row_sets:
                changes.create_row_set(RESOLUTIONS, [("transaction", "bytes")], _COLUMNS)
            for transaction in old[: max(surplus, 0)]:
                changes.delete(RESOLUTIONS, (transaction,))
            _put(changes, resolution)

        await self._scheme.change(plan)

    async def note(self, resolution: Resolution, home_says: str) -> None:
        """Note the word of the home against it. CommitRefused, ShardLost."""
        await self._scheme.change(lambda changes: _put(changes, resolution._replace(home_says=home_says)))

    async def forget(self, resolution: Resolution) -> None:
        """Forget one with which the home agrees. CommitRefused, ShardLost."""
        await self._scheme.change(lambda changes: changes.delete(RESOLUTIONS, (resolution.transaction,)))

    @property
    def _rows(self) -> Mapping[Any, Any]:
        return self._scheme.rows(RESOLUTIONS)


def _read(transaction: TransactionId, row: Mapping[str, Any]) -> Resolution:
    home = ParticipantId(TabletId(row["home"]), row["partition"])
    return Resolution(
        transaction, row["timestamp"], home, row["resolved_ms"], row["principal"], row["home_says"]
    )


def _put(changes: RowChanges, one: Resolution) -> None:
    row = {
        "timestamp": one.timestamp, "home": one.home.tablet_id, "partition": one.home.partition,
        "resolved_ms": one.resolved_ms, "principal": one.principal, "home_says": one.home_says,
    }  # fmt: skip
    changes.put(RESOLUTIONS, (one.transaction,), row)
