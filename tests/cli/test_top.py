"""The screen of `pqbroker top`: what is wrong comes first, with its cure, and groups that are unknown are named so."""

from pqbroker.cli.commands.top import CONDITIONS_SHOWN, condition_lines, screen


def test_the_gravest_conditions_are_shown_with_their_cure_and_the_others_are_counted() -> None:
    one = {"severity": "degraded", "kind": "disk-full", "place": "cell 0", "cause": "no room", "cure": "make room"}
    assert condition_lines([]) == []
    assert condition_lines([one]) == ["degraded: disk-full at cell 0: no room", "  to cure it: make room"]
    lines = condition_lines([one] * (CONDITIONS_SHOWN + 2))
    assert len(lines) == 2 * CONDITIONS_SHOWN + 1
    assert lines[-1] == "2 more: `pqbroker cluster health` shows all"


def test_groups_that_nobody_coordinates_are_not_called_none() -> None:
    assert screen([], [], None, None)[-1] == "no groups"
    assert screen([], [], None, None, (), "cannot list groups: a cause")[-1] == "cannot list groups: a cause"
