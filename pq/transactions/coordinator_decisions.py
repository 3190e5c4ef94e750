"""Stored form of decisions in a coordinator tablet: a row each, beside those of groups and transactional ids."""

from typing import Any, Final

from pqbroker.pq.transactions.stored_forms import CommitDecision
from pqbroker.storage.tablets.resident_rows import ResidentRows
from pqbroker.storage.tablets.row_sets import Row, RowChanges


def _read(name: str, row: Row) -> CommitDecision:
    fields: Any = row
    decision = CommitDecision.decode(bytes(fields["stored"]))
    if decision.transaction.hex() != name:
        raise ValueError(f"it has the decision about transaction {decision.transaction.hex()}")
    return decision


DECISION_ROWS: Final = ResidentRows("decision", "decisions", ("stored",), _read)


def put_decision(changes: RowChanges, decision: CommitDecision) -> None:
    """Store a decision, in place of an earlier one of the transaction."""
    DECISION_ROWS.put(changes, decision.transaction.hex(), {"stored": decision.encode()})
