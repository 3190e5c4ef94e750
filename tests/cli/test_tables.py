"""Tables of commands in terminals that are narrow."""

import pytest

from pqbroker.cli.output import table_lines

CONFIGS = [
    ("message.timestamp.before.max.ms", "9223372036854775807", "default"),
    ("leader.replication.throttled.replicas", "", "default value of the node"),
]


def test_words_stay_whole_where_they_have_room() -> None:
    lines = table_lines(("config", "value", "source"), CONFIGS, 80)
    assert max(map(len, lines)) <= 80
    assert all(any(word in line for line in lines) for row in CONFIGS for cell in row for word in cell.split())


def test_longer_words_break_behind_their_parts() -> None:
    lines = table_lines(("config", "value", "source"), CONFIGS, 60)
    assert max(map(len, lines)) <= 60
    first = [line.split("  ")[0] for line in lines[2:]]
    assert "".join(first).startswith("message.timestamp.before.max.ms")
    assert all(part.endswith(".") or part.strip() in ("ms", "replicas") for part in first if part.strip())


@pytest.mark.parametrize("width", [20, 40, 60])
def test_every_letter_is_shown_at_any_width(width: int) -> None:
    cell = "one, two/three.four-five_six:seven;" + "x" * 100 + " end"
    lines = table_lines(("n", "text"), [(1, cell), (2, "short")], width)
    assert max(map(len, lines)) <= width
    shown = "".join(line[3:] for line in lines[2:]).replace(" ", "")
    assert shown == (cell + "short").replace(" ", "")
