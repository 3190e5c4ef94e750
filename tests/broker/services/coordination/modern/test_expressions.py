"""When expressions of a group are resolved, and what follows from it."""

from dataclasses import replace

import pytest

from pqbroker.broker.services.coordination.modern.expressions import (
    REFRESH_INTERVAL_MIN_MS,
    due_expressions,
    put_resolved,
)
from tests.broker.services.coordination.modern.rig import LIMITS, Rig

REFRESH_MS = 600_000
CLOCK_MS = 1_700_000_000_000


@pytest.fixture
def rig() -> Rig:
    """A group with a member that subscribes by an expression."""
    rig = Rig()
    rig.topics.put("a", 2)
    join(rig, "m", "a.*")
    return rig


def join(rig: Rig, member_id: str, expression: str) -> None:
    rig.beat(member_id, 0, expression=expression, owned={}, rebalance_timeout_ms=1_000)


def resolve(rig: Rig, clock_ms: int = CLOCK_MS, **found: set[str]) -> list[str]:
    texts = {text.replace("_", ".*"): frozenset(names) for text, names in found.items()}
    return put_resolved(rig.group, texts, rig.topics, rig.topics.version, clock_ms)


def due(rig: Rig, clock_ms: int) -> set[str]:
    return due_expressions(rig.group, rig.topics.version, clock_ms, REFRESH_MS)


def test_a_new_expression_is_resolved_at_once_and_alone(rig: Rig) -> None:
    assert due(rig, CLOCK_MS) == {"a.*"}
    resolve(rig, a_={"a"})
    assert due(rig, CLOCK_MS + 1) == set()
    join(rig, "n", "b.*")
    assert due(rig, CLOCK_MS + 2) == {"b.*"}


def test_a_group_that_names_its_topics_resolves_nothing() -> None:
    rig = Rig()
    rig.beat("m", 0, topics=frozenset({"a"}), owned={}, rebalance_timeout_ms=1_000)
    assert due(rig, CLOCK_MS) == set()


def test_topics_that_come_are_looked_up_but_not_at_once(rig: Rig) -> None:
    resolve(rig, a_={"a"})
    rig.topics.put("ab", 1)
    assert due(rig, CLOCK_MS + REFRESH_INTERVAL_MIN_MS) == set()
    assert due(rig, CLOCK_MS + REFRESH_INTERVAL_MIN_MS + 1) == {"a.*"}
    resolve(rig, CLOCK_MS + REFRESH_INTERVAL_MIN_MS + 1, a_={"a", "ab"})
    assert due(rig, CLOCK_MS + 3 * REFRESH_INTERVAL_MIN_MS) == set()


def test_permissions_are_looked_up_after_the_interval_and_when_the_clock_was_set_back(rig: Rig) -> None:
    resolve(rig, a_={"a"})
    assert due(rig, CLOCK_MS + REFRESH_MS - 1) == set()
    assert due(rig, CLOCK_MS + REFRESH_MS) == due(rig, CLOCK_MS - 1) == {"a.*"}


def test_an_epoch_begins_when_other_topics_match(rig: Rig) -> None:
    epoch = rig.group.epoch
    resolve(rig, a_={"a"})
    assert rig.group.epoch == epoch + 1
    resolve(rig, a_={"a"})
    assert rig.group.epoch == epoch + 1
    resolve(rig, a_=set())
    assert rig.group.epoch == epoch + 2


def test_a_member_that_joins_by_a_known_expression_begins_an_epoch(rig: Rig) -> None:
    resolve(rig, a_={"a"})
    epoch = rig.group.epoch
    join(rig, "n", "a.*")
    assert rig.group.epoch == epoch + 1


def test_what_was_resolved_for_a_member_that_left_is_left_out(rig: Rig) -> None:
    rig.beat("m", -1)
    resolve(rig, a_={"a"})
    assert rig.group.expressions == {}


def test_topics_of_expressions_are_counted_until_nobody_reads_by_them(rig: Rig) -> None:
    before = rig.group.usage.taken
    resolve(rig, a_={"a" * 100, "b" * 100})
    assert rig.group.usage.taken >= before + 200
    rig.beat("m", -1)
    assert rig.group.expression_bytes == 0
    assert rig.group.usage.taken < before


def test_an_expression_that_matches_more_than_there_is_room_for_keeps_what_it_matched() -> None:
    rig = Rig(replace(LIMITS, metadata_bytes_max=4_000))
    join(rig, "m", "a.*")
    assert resolve(rig, a_={"a"}) == []
    assert resolve(rig, a_={f"a{number:0200}" for number in range(30)}) == ["a.*"]
    assert rig.group.expressions["a.*"].topics == {"a"}
    assert resolve(rig, a_={"a", "ab"}) == []
