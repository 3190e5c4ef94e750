"""`pqbroker group`, at our broker and at Apache Kafka."""

import re
import signal
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer

from tests.cli.shell import TIMEOUT_S, Shell, start
from tests.support.cli_page import KEYS
from tests.support.waiting import wait_until


@pytest.fixture
def group(shell: Shell, filled: str) -> str:
    """A group that has read b of partition 0, as far as offset 2, and nothing of partition 1."""
    name = f"{filled}-group"
    moved = shell("group", "reset", name, "--topic", filled, "--partition", "0", "--to", "2")
    assert moved.status == 0, moved.errors
    return name


def offsets(shell: Shell, group: str) -> list[tuple[int, int, int]]:
    """Partition, offset and lag."""
    described = shell("group", "describe", group, "--json").object
    return [(one["partition"], one["offset"], one["lag"]) for one in described["offsets"]]


def test_groups_are_listed(shell: Shell, group: str) -> None:
    listed = {each["group"]: each for each in shell("group", "list", "--json").objects}
    assert listed[group]["state"] == "Empty"
    assert ", ".join(listed[group]) == KEYS["group list"]
    assert any(line.startswith(group) for line in shell("group", "list").output.splitlines())


def test_a_description_says_how_far_behind_a_group_is(shell: Shell, filled: str, group: str) -> None:
    described = shell("group", "describe", group, "--json").object
    assert list(described) == re.sub(r" \(.*?\)", "", KEYS["group describe"]).split(", ")
    assert {key: described[key] for key in ("group", "state", "members")} == {
        "group": group, "state": "Empty", "members": [],
    }  # fmt: skip
    assert described["offsets"] == [
        {
            "topic": filled, "partition": 0, "offset": 2, "end": 4, "lag": 2,
            "member": None, "client": None, "host": None,
        }
    ]  # fmt: skip
    table = shell("group", "describe", group).output.splitlines()
    assert table[0] == f"group {group}, Empty, members: 0, lag: 2"
    assert table[-1].split() == [filled, "0", "2", "4", "2", "-"]
    assert max(map(len, table)) <= 80


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (["--to", "earliest"], [(0, 0, 4)]),
        (["--to", "latest"], [(0, 4, 0)]),
        (["--to", "1"], [(0, 1, 3)]),
        (["--to", "1h"], [(0, 0, 4)]),
        (["--shift", "1"], [(0, 3, 1)]),
        (["--shift", "-9"], [(0, 0, 4)]),
    ],
)
def test_offsets_move_where_they_are_told(
    shell: Shell, group: str, where: list[str], expected: list[tuple[int, int, int]]
) -> None:
    assert shell("group", "reset", group, *where).status == 0
    assert offsets(shell, group) == expected


def test_a_topic_that_is_named_is_reset_whole(shell: Shell, filled: str, group: str) -> None:
    moved = shell("group", "reset", group, "--topic", filled, "--to", "latest", "--json").object
    assert moved == {
        "group": group,
        "dry_run": False,
        "offsets": [
            {"topic": filled, "partition": 0, "before": 2, "offset": 4},
            {"topic": filled, "partition": 1, "before": None, "offset": 1},
        ],
    }


def test_a_dry_run_changes_nothing(shell: Shell, group: str) -> None:
    shown = shell("group", "reset", group, "--to", "latest", "--dry-run", "--json").object
    assert (shown["dry_run"], shown["offsets"][0]["offset"]) == (True, 4)
    assert offsets(shell, group) == [(0, 2, 2)]


def test_a_group_in_use_shows_its_members_and_keeps_its_offsets(shell: Shell, filled: str, group: str) -> None:
    reader = start("consume", filled, "--group", group, "--follow", "--broker", shell.kafka)
    assert reader.stdout is not None
    assert sorted(reader.stdout.readline() for _ in range(3)) == ["c\n", "d\n", "e\n"]
    wait_until(lambda: offsets(shell, group) == [(0, 4, 0), (1, 1, 0)], "committed")
    described = shell("group", "describe", group, "--json").object
    assert (described["state"], described["members"][0]["partitions"]) == ("Stable", 2)
    assert {one["client"] for one in described["offsets"]} == {"pqbroker-cli"}
    refused = shell("group", "reset", group, "--to", "earliest")
    assert refused.status == 1
    assert f"group {group} is Stable with 1 members; stop them first" in refused.errors
    assert "stop them first" in shell("group", "delete", group, "--yes").errors
    reader.send_signal(signal.SIGINT)
    assert reader.communicate(timeout=TIMEOUT_S) == ("", "")
    assert reader.returncode == 0
    assert shell("group", "describe", group, "--json").object["state"] == "Empty"


def test_a_group_of_the_consumer_protocol_shows_its_epochs_and_what_each_member_is_to_have(
    shell: Shell, filled: str
) -> None:
    name = f"{filled}-readers"
    reader = Consumer({"bootstrap.servers": shell.kafka, "group.id": name, "group.protocol": "consumer"})
    reader.subscribe([filled])
    try:
        wait_until(lambda: (reader.poll(0.1), len(reader.assignment()) == 2)[1], "both partitions")
        described = shell("group", "describe", name, "--json").object
        lines = shell("group", "describe", name).output.splitlines()
        listed = {each["group"]: each["type"] for each in shell("group", "list", "--json").objects}
    finally:
        reader.close()
    (member,) = described["members"]
    assert (described["type"], described["state"], described["protocol"]) == ("consumer", "Stable", "uniform")
    assert described["epoch"] == described["target_epoch"] == member["epoch"] > 0
    assert member["assigned"] == member["target"] == [{"topic": filled, "partitions": [0, 1]}]
    epoch = described["epoch"]
    assert lines[0] == f"group {name}, Stable, members: 1, lag: 0, epoch: {epoch}, epoch of the targets: {epoch}"
    assert lines[-1].split()[-3:] == [str(epoch), "2", "2"]
    assert listed[name] == "consumer"


def test_a_deleted_group_is_gone(shell: Shell, group: str) -> None:
    assert shell("group", "delete", group).status == 2
    assert shell("group", "delete", group, "--yes", "--json").object == {"group": group, "deleted": True}
    gone = shell("group", "describe", group)
    assert gone.status == 1
    assert gone.errors.startswith(f"pqbroker: no group {group} at {shell.kafka}; ")


def test_a_group_named_twice_is_deleted_once(our_shell: Shell, fresh_name: Callable[[], str]) -> None:
    topic, group = fresh_name(), fresh_name()
    our_shell("topic", "create", topic)
    assert our_shell("group", "reset", group, "--topic", topic, "--to", "end").status == 0
    assert our_shell("group", "delete", group, group, "--yes", "--json").objects == [{"group": group, "deleted": True}]


def test_a_misspelled_group_is_answered_with_near_names(shell: Shell, group: str) -> None:
    refused = shell("group", "reset", group + "s", "--to", "latest")
    assert refused.status == 1
    assert group in refused.errors.partition("did you mean ")[2]
