"""Conditions of a node: what is wrong, where, since when, what it affects and how it is cured. Pure.

A look finds the symptoms of one moment; `Conditions.update` compares them with those before:

    none     found      -> holding   since the look
    holding  found      -> holding   with the newest cause; altered where that differs in more than its numbers
    holding  not found  -> none

The status of the node follows from what holds:

    stopping      the node stops
    cell lost     CELL_LOST of the system cell: topics of other cells alone are served until it is open again
    degraded      any other condition that is no warning
    ok            warnings alone, or nothing
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from string import digits
from typing import Any, Final, NamedTuple


class ConditionKind(StrEnum):
    """Kinds of conditions, in the order in which they are shown: the gravest first."""

    CELL_LOST = "cell-lost"
    NODE_AWAY = "node-away"
    READING_ONLY = "reading-only"
    DISK_FULL = "disk-full"
    DAMAGED = "damaged"
    SYNC_SLOW = "sync-slow"
    REFUSING = "refusing"
    WORKERS_FAILING = "workers-failing"
    COMPACTION_BEHIND = "compaction-behind"
    RETENTION_BEHIND = "retention-behind"
    CLOCK_JUMPED = "clock-jumped"
    DISK_NEARLY_FULL = "disk-nearly-full"


WARNINGS: Final = frozenset((ConditionKind.CLOCK_JUMPED, ConditionKind.DISK_NEARLY_FULL))
"""Conditions under which everything is served as usual."""
WARNING: Final = "warning"
"""Severity of these, as documents have it."""
_ORDER: Final = {kind: number for number, kind in enumerate(ConditionKind)}


class NodeStatus(StrEnum):
    """The state of a node in a word or two."""

    OK = "ok"
    DEGRADED = "degraded"
    CELL_LOST = "cell lost"
    STOPPING = "stopping"


class Symptom(NamedTuple):
    """One thing that is wrong now. `place` names the cell, pool or part of the node; the texts are sentences."""

    kind: ConditionKind
    place: str
    affects: str
    cause: str
    cure: str


@dataclass(frozen=True, slots=True)
class Condition:
    """A symptom that holds, with the time of the look that found it first, in milliseconds since 1970."""

    symptom: Symptom
    since_ms: int

    @property
    def is_warning(self) -> bool:
        return self.symptom.kind in WARNINGS

    def document(self) -> dict[str, Any]:
        """Return the condition as JSON shows it."""
        symptom = self.symptom
        return {
            "kind": symptom.kind.value,
            "severity": WARNING if self.is_warning else "degraded",
            "place": symptom.place,
            "since": self.since_ms,
            "affects": symptom.affects,
            "cause": symptom.cause,
            "cure": symptom.cure,
        }


class Changes(NamedTuple):
    """Conditions that have begun, have another cause and have ended at a look."""

    begun: list[Condition]
    altered: list[Condition]
    ended: list[Condition]


_Key = tuple[ConditionKind, str]
_DIGITS: Final = str.maketrans("", "", digits)


class Conditions:
    """The conditions that hold, by kind and place."""

    def __init__(self) -> None:
        self._held: Mapping[_Key, Condition] = {}

    def update(self, symptoms: Iterable[Symptom], now_ms: int) -> Changes:
        """Take the symptoms of a look; return what has changed with it. Of two symptoms with one kind and place the
        first counts."""
        before, now = self._held, dict[_Key, Condition]()
        for symptom in symptoms:
            key = (symptom.kind, symptom.place)
            earlier = before.get(key)
            now.setdefault(key, Condition(symptom, now_ms if earlier is None else earlier.since_ms))
        self._held = dict(sorted(now.items(), key=lambda item: (_ORDER[item[0][0]], item[0][1])))
        return Changes(
            [condition for key, condition in self._held.items() if key not in before],
            [condition for key, condition in self._held.items() if key in before and _differ(condition, before[key])],
            [condition for key, condition in before.items() if key not in now],
        )

    @property
    def holding(self) -> list[Condition]:
        """Return what holds, the gravest first."""
        return list(self._held.values())

    def status(self, system_place: str) -> NodeStatus:
        """Return the status that follows, for a node whose system cell is at `system_place`."""
        if (ConditionKind.CELL_LOST, system_place) in self._held:
            return NodeStatus.CELL_LOST
        return NodeStatus.OK if all(one.is_warning for one in self._held.values()) else NodeStatus.DEGRADED


def _differ(one: Condition, other: Condition) -> bool:
    """Return True if the causes differ in more than their numbers, which many looks change."""
    causes = one.symptom.cause, other.symptom.cause
    return causes[0] != causes[1] and causes[0].translate(_DIGITS) != causes[1].translate(_DIGITS)
