"""ChunkDecisions of a survey about each chunk: the task that takes it and why, or what keeps it out of each task."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pqbroker.tables.sorted.picking.choice import Choice, LeftOut, PickReason
from pqbroker.tables.sorted.picking.survey import Survey, TaskKind


@dataclass(frozen=True, slots=True)
class ChunkDecision:
    """One chunk's."""

    kind: TaskKind | None = None
    """Task that takes it; None: none does."""
    reason: PickReason | None = None
    left_out: Mapping[TaskKind, LeftOut] = field(default_factory=dict)
    """Reasons why the other tasks do not take it."""


def decisions(seen: Survey) -> dict[int, ChunkDecision]:
    """Return the decision about each chunk of a tablet by its number; those of a tablet whose attributes switch tasks
    off say what they would be."""
    found: dict[int, ChunkDecision] = {}
    _decide(found, TaskKind.PARTITIONING, seen.partitioning)
    _decide(found, TaskKind.COMPACTION, seen.eden)
    for index, choice in enumerate(seen.partitions):
        _decide(found, TaskKind.DISCARD if index in seen.expired else TaskKind.COMPACTION, choice)
    return found


def _decide(found: dict[int, ChunkDecision], kind: TaskKind, choice: Choice) -> None:
    for number in choice.numbers:
        before = found.get(number, ChunkDecision())
        found[number] = ChunkDecision(kind, choice.reason, before.left_out)
    for number, why in choice.left_out.items():
        before = found.get(number, ChunkDecision())
        found[number] = ChunkDecision(before.kind, before.reason, {**before.left_out, kind: why})
