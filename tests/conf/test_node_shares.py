"""Parts of nodes in the budgets of their broker."""

from dataclasses import fields, replace
from typing import Any

import pytest

from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.node_shares import FLOORS, share_of
from pqbroker.conf.peers import NODES_MAX

WHOLE = BrokerSettings()


@pytest.mark.parametrize("name", FLOORS)
def test_two_nodes_together_do_not_exceed_the_budget_of_their_broker(name: str) -> None:
    part, whole = getattr(share_of(WHOLE, 2), name), getattr(WHOLE, name)
    assert 2 * part <= whole or part == FLOORS[name] == 1  # a node without a process for a task would never do it


@pytest.mark.parametrize("name", FLOORS)
def test_a_part_is_of_use_and_no_more_than_the_whole(name: str) -> None:
    whole, floor = getattr(WHOLE, name), FLOORS[name]
    assert getattr(share_of(WHOLE, NODES_MAX), name) == min(whole, floor)
    little: dict[str, Any] = {name: floor - 1}
    assert getattr(share_of(replace(WHOLE, **little), 2), name) == floor - 1


def test_the_shared_settings_alone_say_so() -> None:
    said = {one.name for one in fields(BrokerSettings) if "Several nodes share it." in one.metadata.get("doc", "")}
    assert said == set(FLOORS)


def test_nothing_else_is_shared_and_one_node_has_all() -> None:
    assert share_of(WHOLE, 1) is WHOLE
    part = share_of(WHOLE, 3)
    changed = {one.name for one in fields(BrokerSettings) if getattr(part, one.name) != getattr(WHOLE, one.name)}
    assert changed == {name for name in FLOORS if getattr(WHOLE, name) > FLOORS[name]}
