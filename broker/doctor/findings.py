"""What a check-up finds: damage, and what looks odd but does no harm; and how far it has come."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

FINDINGS_MAX = 1000
"""Told one by one; more are counted."""
RESTORE = "restore a copy of the directory"
NEXT_START = "nothing: the next start removes it"


class Weight(StrEnum):
    """What a finding means for the data."""

    DAMAGE = "damage"
    """Something is lost, or cannot be trusted."""
    HARMLESS = "harmless"
    """What a crash may leave; no data is concerned."""


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
    """Collects. `seen` counts what was looked at, by kind; `advance` is told of bytes verified."""

    advance: Callable[[int], None]
    found: list[Finding] = field(default_factory=list)
    damages: int = 0
    oddities: int = 0
    seen: dict[str, int] = field(default_factory=dict)

    def count(self, kind: str, number: int = 1) -> None:
        self.seen[kind] = self.seen.get(kind, 0) + number

    def damage(self, check: str, where: str, what: str, cure: str = RESTORE) -> None:
        self.damages += 1
        self._add(Finding(Weight.DAMAGE, check, where, what, cure))

    def harmless(self, check: str, where: str, what: str, cure: str = NEXT_START) -> None:
        self.oddities += 1
        self._add(Finding(Weight.HARMLESS, check, where, what, cure))

    def _add(self, finding: Finding) -> None:
        if len(self.found) < FINDINGS_MAX:
            self.found.append(finding)
