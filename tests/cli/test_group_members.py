"""Members of a group as the command shows them while partitions move."""

import pytest

from pqbroker.cli.commands.group_members import show_members
from pqbroker.cli.kafka.groups import CONSUMER, Group, Member


def test_partitions_on_their_way_are_shown_with_who_lets_go_and_who_gets(capsys: pytest.CaptureFixture[str]) -> None:
    before = Member("a", "c", "h", [("t", 0), ("t", 1)], 4, [("t", 0)])
    after = Member("b", "c", "h", [], 5, [("t", 1)])
    show_members(Group("g", "Reconciling", "uniform", [before, after], {}, CONSUMER, 5, 5))
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip("─ ")]
    assert [line[-3:] for line in lines[1:3]] == [["4", "2", "1"], ["5", "0", "1"]]
    assert lines[4:] == [["1", "t", "1", "lets", "go"], ["2", "t", "1", "gets"]]


def test_a_group_without_members_shows_no_table(capsys: pytest.CaptureFixture[str]) -> None:
    show_members(Group("g", "Empty", "uniform", [], {}, CONSUMER, 5, 5))
    assert capsys.readouterr().out == ""
