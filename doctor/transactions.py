"""Transactions that are not over in a stopped node: rows that are prepared in one cell, decisions in another."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from pqbroker.pq.transactions.stored_forms import CommitDecision, PreparedHead, TransactionId
from pqbroker.storage.ids import TabletId
from pqbroker.storage.tablets.scheme_layout import FIRST_TABLET_ID


def _is_gone(home: TabletId, tablets: Collection[TabletId]) -> bool:
    """Return True if the tablet with a decision does not exist: coordinators, which no object owns, always do."""
    return home >= FIRST_TABLET_ID and home not in tablets


class PreparedPlace(NamedTuple):
    """Prepared rows that were met. `where`: the tablet or partition, with its cell."""

    where: str
    head: PreparedHead


class UnfinishedTransaction(NamedTuple):
    """Prepared rows, told as a finding that does no harm."""

    where: str
    what: str
    cure: str


@dataclass(slots=True)
class MetTransactions:
    """Prepared rows and decisions of all cells, as the checks meet them."""

    prepared: list[PreparedPlace] = field(default_factory=list)
    decided: set[TransactionId] = field(default_factory=set)

    def meet_prepared(self, where: str, head: PreparedHead) -> None:
        self.prepared.append(PreparedPlace(where, head))

    def meet_decision(self, decision: CommitDecision) -> None:
        self.decided.add(decision.transaction)

    def unfinished(self, tablets: Collection[TabletId] | None) -> list[UnfinishedTransaction]:
        """Return the rows of transactions that are committed, or whose tablet with the decision is none of `tablets`;
        None: it is not known which exist. A start ends all others too, once it has asked that tablet."""
        found = []
        for where, head in self.prepared:
            name = head.transaction.hex()
            if head.transaction in self.decided:
                what = f"rows of transaction {name} are prepared: it is committed, and they are not written yet"
                found.append(UnfinishedTransaction(where, what, "nothing: the next start writes them"))
            elif tablets is not None and _is_gone(head.home.tablet_id, tablets):
                what = f"rows of transaction {name} are prepared, and tablet {head.home.tablet_id} with the decision "
                told = f"{what}about them does not exist"
                found.append(UnfinishedTransaction(where, told, "nothing: the next start drops them"))
        return found
