"""Conditions over several looks: what begins, holds and ends, and the status that follows."""

import pytest

from pqbroker.broker.services.health.conditions import ConditionKind, Conditions, NodeStatus, Symptom

SYSTEM = "cell 0"


def symptom(kind: ConditionKind, place: str = SYSTEM, cause: str = "a cause") -> Symptom:
    return Symptom(kind, place, "something", cause, "a cure")


def test_a_condition_begins_holds_with_the_newest_cause_and_ends() -> None:
    conditions = Conditions()
    begun, altered, ended = conditions.update([symptom(ConditionKind.DISK_FULL)], 1000)
    assert [(one.symptom.kind, one.since_ms) for one in begun] == [(ConditionKind.DISK_FULL, 1000)]
    assert (altered, ended) == ([], [])
    found = conditions.update([symptom(ConditionKind.DISK_FULL, cause="another")], 2000)
    (held,) = conditions.holding
    assert (held.since_ms, held.symptom.cause) == (1000, "another")
    assert found == ([], [held], [])
    assert conditions.update([], 3000) == ([], [], [held])
    (again,), _, _ = conditions.update([symptom(ConditionKind.DISK_FULL)], 4000)
    assert again.since_ms == 4000


def test_a_cause_whose_numbers_alone_change_is_the_same_cause() -> None:
    conditions = Conditions()
    conditions.update([symptom(ConditionKind.SYNC_SLOW, cause="a sync took 1.5 s")], 1000)
    assert conditions.update([symptom(ConditionKind.SYNC_SLOW, cause="a sync took 12.5 s")], 2000) == ([], [], [])
    (held,) = conditions.holding
    assert held.symptom.cause == "a sync took 12.5 s"


def test_places_of_one_kind_are_apart_and_the_first_symptom_of_a_place_counts() -> None:
    conditions = Conditions()
    full = ConditionKind.DISK_FULL
    conditions.update([symptom(full, "b", "one"), symptom(full, "a"), symptom(full, "b", "two")], 1)
    assert [(one.symptom.place, one.symptom.cause) for one in conditions.holding] == [("a", "a cause"), ("b", "one")]


def test_the_gravest_comes_first() -> None:
    conditions = Conditions()
    conditions.update([symptom(kind) for kind in reversed(ConditionKind)], 1)
    assert [one.symptom.kind for one in conditions.holding] == list(ConditionKind)


@pytest.mark.parametrize(
    ("found", "status"),
    [
        ([], NodeStatus.OK),
        ([symptom(ConditionKind.DISK_NEARLY_FULL)], NodeStatus.OK),
        ([symptom(ConditionKind.CLOCK_JUMPED), symptom(ConditionKind.REFUSING)], NodeStatus.DEGRADED),
        ([symptom(ConditionKind.CELL_LOST, "cell 00")], NodeStatus.DEGRADED),
        ([symptom(ConditionKind.CELL_LOST, "cell 1"), symptom(ConditionKind.CELL_LOST)], NodeStatus.CELL_LOST),
    ],
)
def test_the_status_follows_from_what_holds(found: list[Symptom], status: NodeStatus) -> None:
    conditions = Conditions()
    conditions.update(found, 1)
    assert conditions.status(SYSTEM) is status


def test_a_condition_is_shown_with_cause_and_cure() -> None:
    conditions = Conditions()
    conditions.update([symptom(ConditionKind.CLOCK_JUMPED)], 5)
    assert conditions.holding[0].document() == {
        "kind": "clock-jumped", "severity": "warning", "place": SYSTEM, "since": 5, "affects": "something",
        "cause": "a cause", "cure": "a cure",
    }  # fmt: skip
