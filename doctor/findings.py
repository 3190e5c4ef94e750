"""Findings of a check-up: damage, and oddities that do no harm; and how far the check-up has come."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from pqbroker.doctor.transactions import MetTransactions

FINDINGS_MAX = 1000
"""Told one by one of each weight; more are counted."""
RESTORE = "restore a copy of the directory"
SKIPPED = "nothing: a salvage left them out, so that no offset is given twice"
NEXT_START = "nothing: the next start removes it"


class Weight(StrEnum):
    """The meaning of a finding for the data."""

    DAMAGE = "damage"
    """Something is lost, or cannot be trusted."""
    HARMLESS = "harmless"
    """A crash may leave it, or a topic's mirror is left out; no data is lost."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found: which check found it, where, what it is, what to do."""

    weight: Weight
    check: str
    where: str
    what: str
    cure: str


@dataclass(slots=True)
class Findings:
    """Collects. `seen` counts what was looked at, by kind; `advance` gets the bytes that were verified."""

    advance: Callable[[int], None]
    damages: int = 0
    oddities: int = 0
    seen: dict[str, int] = field(default_factory=dict)
    cell: str = ""
    """Stands before every place: the cell that is looked at, if it is not the system cell."""
    skipped: Mapping[str, Sequence[Sequence[int]]] = field(default_factory=dict)
    """Offsets [first, end) that salvages of the cell left out, by the name of the partition."""
    transactions: MetTransactions = field(default_factory=MetTransactions)
    """Transactions that are not over, in all cells."""
    _damage: list[Finding] = field(default_factory=list)
    _harmless: list[Finding] = field(default_factory=list)

    @property
    def found(self) -> list[Finding]:
        """Damage first: however much there is that does no harm, it hides none."""
        return self._damage + self._harmless

    def count(self, kind: str, number: int = 1) -> None:
        self.seen[kind] = self.seen.get(kind, 0) + number

    def damage(self, check: str, where: str, what: str, cure: str = RESTORE) -> None:
        self.damages += 1
        if len(self._damage) < FINDINGS_MAX:
            self._damage.append(Finding(Weight.DAMAGE, check, self.cell + where, what, cure))

    def is_skipped(self, partition: str, first: int, end: int) -> bool:
        """Return True if a salvage left all these offsets out."""
        return any(start <= first and end <= stop for start, stop in self.skipped.get(partition, ()))

    def harmless(self, check: str, where: str, what: str, cure: str = NEXT_START) -> None:
        self.oddities += 1
        if len(self._harmless) < FINDINGS_MAX:
            self._harmless.append(Finding(Weight.HARMLESS, check, self.cell + where, what, cure))
