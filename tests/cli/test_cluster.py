"""`pqbroker cluster`, `top` and `topic analyze`, at our broker and at Apache Kafka."""

from contextlib import ExitStack

import pytest

from pqbroker.cli.commands.top import GroupFigures, Look, group_rows, screen, topic_rows
from pqbroker.testing import memory_broker
from tests.cli.shell import Shell, run
from tests.support.wire import EARLIEST, Wire


def test_the_nodes_are_shown(shell: Shell, topic: str) -> None:
    about = shell("cluster", "info", "--json").object
    (node,) = about["nodes"]
    assert f"{node['host']}:{node['port']}" == shell.kafka
    assert node["controller"] is True
    assert about["topics"] >= 1
    assert shell("cluster", "info").output.startswith(f"cluster {about['cluster']}, ")


def test_a_cluster_whose_partitions_are_served_is_healthy(shell: Shell, topic: str) -> None:
    found = shell("cluster", "health", "--json").object
    assert (found["healthy"], found["offline"], found["behind"]) == (True, [], [])
    assert shell("cluster", "health").output.startswith("healthy: ")


def test_a_setting_is_changed_and_reset(shell: Shell) -> None:
    changed = shell("cluster", "settings", "--set", "log.retention.ms=172800000", "--json").object
    assert changed["settings"]["log.retention.ms"]["value"] == "172800000"
    after = shell("cluster", "settings", "--unset", "log.retention.ms", "--json").object
    assert after["settings"].get("log.retention.ms", {}).get("value") != "172800000"
    every = shell("cluster", "settings", "--all", "--json").object["settings"]
    assert every["auto.create.topics.enable"]["value"] == "true"


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        (["--set", "log.retention.mss=1"], 2, "unknown setting log.retention.mss; did you mean "),
        (["--set", "a=1", "--unset", "a"], 2, "a is both set and unset"),
        (["--node", "77"], 1, "no node 77 at "),
    ],
)
def test_settings_must_make_sense(our_shell: Shell, options: list[str], status: int, words: str) -> None:
    refused = our_shell("cluster", "settings", *options)
    assert (refused.status, refused.output) == (status, "")
    assert words in refused.errors


def test_the_connections_of_clients_are_listed() -> None:
    with memory_broker({"pqbroker.http.items.max": "2"}) as running, ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(Wire(running.kafka)).offset("none", 0, EARLIEST)
        listed = run("cluster", "connections", "--http", running.http, "--json").objects
        assert [one["apis"] for one in listed] == [["ListOffsets"]] * 3
        shown = run("cluster", "connections", "--http", running.http).output
    assert shown.splitlines()[0].split() == ["id", "client_id", "address", "principal", "apis", "in", "out", "idle"]
    assert shown.count("User:ANONYMOUS") == 3


def test_an_analysis_has_sizes_and_batches(shell: Shell, filled: str) -> None:
    found = shell("topic", "analyze", filled, "--json").object
    first, second = found["partitions"]
    assert (first["records"], second["records"], found["skew"]) == (4, 1, 1.6)
    assert (second["batch_records"], second["codec"]) == (1.0, "none")
    assert second["record_bytes"] == second["batch_bytes"] > 0
    assert "small batches: " in shell("topic", "analyze", filled).output


def test_top_prints_its_looks_where_there_is_no_terminal(shell: Shell, filled: str) -> None:
    said = shell("top", "--count", "2", "--interval", "0.1", "--json").objects
    assert len(said) == 2
    named = {each["topic"]: each for each in said[1]["topics"]}
    assert (named[filled]["partitions"], named[filled]["records"]) == (2, 5)
    assert "\x1b" not in shell("top", "-n", "1", "-i", "0.1").output


BEFORE = Look(
    10.0, {("t", 0): (0, 5), ("u", 0): (0, 9)}, {("t", 0): 100}, {"g": GroupFigures("Stable", 1, {("t", 0): 2})}
)
NOW = Look(
    12.0, {("t", 0): (0, 9), ("t", 1): (3, 5), ("u", 0): (0, 9)}, {("t", 0): 300},
    {"g": GroupFigures("Stable", 2, {("t", 0): 6, ("gone", 0): 1})},
)  # fmt: skip


def test_rates_are_those_since_the_look_before() -> None:
    busy, idle = topic_rows(BEFORE, NOW)
    assert tuple(busy) == ("t", 2, 11, 300, 3.0, 100)
    assert tuple(idle) == ("u", 1, 9, 0, 0.0, 0)
    assert [tuple(each) for each in group_rows(BEFORE, NOW)] == [("g", "Stable", 2, 3, 2.0)]


def test_a_low_terminal_shows_the_beginning_of_both() -> None:
    lines = screen(topic_rows(BEFORE, NOW), group_rows(BEFORE, NOW), None, 6)
    assert len(lines) <= 9
    assert any(line.startswith("g ") for line in lines)
