"""`pqbroker topic`, at our broker and at Apache Kafka."""

from collections.abc import Callable

import pytest

from tests.cli.shell import Shell


def test_a_topic_is_created_as_told(shell: Shell, fresh_name: Callable[[], str]) -> None:
    name = fresh_name()
    made = shell("topic", "create", name, "--partitions", "3", "--config", "retention.ms=1000", "--json")
    assert made.object == {"topic": name, "partitions": 3}
    described = shell("topic", "describe", name, "--json").object
    assert described["configs"] == {"retention.ms": "1000"}
    assert [one["partition"] for one in described["partitions"]] == [0, 1, 2]


def test_several_topics_are_created_at_once(shell: Shell, fresh_name: Callable[[], str]) -> None:
    names = [fresh_name(), fresh_name()]
    made = shell("topic", "create", *names)
    assert made.output == "".join(f"created topic {name} with 1 partition\n" for name in names)


def test_a_topic_that_exists_is_refused(shell: Shell, topic: str) -> None:
    again = shell("topic", "create", topic)
    assert (again.status, again.output) == (1, "")
    assert again.errors.startswith(f"pqbroker: cannot create topic {topic}: ")
    assert "exist" in again.errors


def test_a_compacted_topic_is_created_and_changed_without_a_warning(
    shell: Shell, fresh_name: Callable[[], str]
) -> None:
    name = fresh_name()
    made = shell("topic", "create", name, "--config", "cleanup.policy=compact")
    assert made.output == f"created topic {name} with 1 partition\n"
    for told in (made, shell("topic", "configs", name, "--set", "cleanup.policy=compact,delete")):
        assert told.errors == ""


def test_topics_are_listed(shell: Shell, topic: str) -> None:
    listed = next(each for each in shell("topic", "list", "--json").objects if each["topic"] == topic)
    assert (listed["partitions"], listed["replicas"]) == (2, 1)
    assert any(line.split()[:3] == [topic, "2", "1"] for line in shell("topic", "list").output.splitlines())


def test_a_list_counts_records_and_bytes(shell: Shell, filled: str) -> None:
    listed = next(each for each in shell("topic", "list", "--json").objects if each["topic"] == filled)
    (line,) = [line for line in shell("topic", "list").output.splitlines() if line.split()[0] == filled]
    assert listed["records"] > 0
    assert listed["bytes"] > 0
    assert str(listed["records"]) in line.split()


def test_a_description_says_where_the_records_are(shell: Shell, filled: str) -> None:
    described = shell("topic", "describe", filled, "--json").object
    assert described["topic"] == filled
    assert list(described["partitions"][0]) == [
        "partition", "leader", "leader_epoch", "replicas", "in_sync", "start", "end", "records",
    ]  # fmt: skip
    spans = [(one["start"], one["end"], one["records"]) for one in described["partitions"]]
    assert spans == [(0, 4, 4), (0, 1, 1)]
    table = shell("topic", "describe", filled).output.splitlines()
    assert table[0] == f"topic {filled}, 2 partitions"
    assert table[-2].split() == ["0", "1", "1", "1", "0", "4", "4"]


def test_a_topic_grows(shell: Shell, topic: str) -> None:
    assert shell("topic", "grow", topic, "5", "--json").object == {"topic": topic, "partitions": 5, "before": 2}
    assert len(shell("topic", "describe", topic, "--json").object["partitions"]) == 5


def test_a_topic_does_not_shrink(shell: Shell, topic: str) -> None:
    refused = shell("topic", "grow", topic, "2")
    assert refused.status == 2
    assert f"topic {topic} has 2 partitions; give a COUNT above that" in refused.errors
    assert "example: pqbroker topic grow orders 8" in refused.errors


def test_a_deleted_topic_is_gone(shell: Shell, topic: str) -> None:
    assert shell("topic", "delete", topic, "--yes", "--json").object == {"topic": topic, "deleted": True}
    gone = shell("topic", "describe", topic)
    assert gone.status == 1
    assert gone.errors.startswith(f"pqbroker: no topic {topic} at {shell.kafka}; ")


def test_a_topic_named_twice_is_created_and_deleted_once(our_shell: Shell, fresh_name: Callable[[], str]) -> None:
    first, second = fresh_name(), fresh_name()
    made = our_shell("topic", "create", first, second, first, "--json").objects
    assert [each["topic"] for each in made] == [first, second]
    gone = our_shell("topic", "delete", first, second, first, "--yes", "--json").objects
    assert [each["topic"] for each in gone] == [first, second]


def test_nothing_is_deleted_where_nobody_can_be_asked(shell: Shell, topic: str) -> None:
    refused = shell("topic", "delete", topic)
    assert refused.status == 2
    assert "say --yes" in refused.errors
    assert shell("topic", "describe", topic).status == 0


def test_one_unknown_name_keeps_all_from_being_deleted(shell: Shell, topic: str) -> None:
    assert shell("topic", "delete", topic, "no-such-topic", "--yes").status == 1
    assert shell("topic", "describe", topic).status == 0


@pytest.mark.parametrize("command", [["topic", "describe"], ["consume"], ["topic", "configs"]])
def test_a_misspelled_topic_is_answered_with_near_names(shell: Shell, topic: str, command: list[str]) -> None:
    refused = shell(*command, topic + "s")
    assert refused.status == 1
    assert "; did you mean " in refused.errors
    assert topic in refused.errors.partition("did you mean")[2]


def test_configs_are_set_and_unset(shell: Shell, topic: str) -> None:
    both = ["--set", "retention.ms=7000", "--set", "cleanup.policy=compact"]
    changed = shell("topic", "configs", topic, *both, "--json").object
    assert changed["configs"]["retention.ms"] == {"value": "7000", "source": "topic"}
    changed = shell("topic", "configs", topic, "--unset", "retention.ms", "--json").object
    assert changed == {"topic": topic, "configs": {"cleanup.policy": {"value": "compact", "source": "topic"}}}


@pytest.mark.parametrize("name", ["", "bad name", "é"])
def test_a_name_that_no_topic_can_have_is_told_as_such(our_shell: Shell, name: str) -> None:
    refused = our_shell("topic", "describe", name)
    assert refused.status == 1
    assert "ASCII letters, digits" in refused.errors


def test_a_config_may_be_unset_twice(our_shell: Shell, fresh_name: Callable[[], str]) -> None:
    topic = fresh_name()
    our_shell("topic", "create", topic, "--config", "retention.ms=1")
    changed = our_shell("topic", "configs", topic, "--unset", "retention.ms", "--unset", "retention.ms", "--json")
    assert changed.object["configs"] == {}


def test_a_value_that_cannot_be_is_refused_by_the_broker(shell: Shell, topic: str) -> None:
    refused = shell("topic", "configs", topic, "--set", "retention.ms=soon")
    assert refused.status == 1
    assert "retention.ms" in refused.errors


def test_configs_show_their_defaults_when_asked(shell: Shell, topic: str) -> None:
    assert shell("topic", "configs", topic, "--json").object == {"topic": topic, "configs": {}}
    assert "--all shows them" in shell("topic", "configs", topic).output
    every = shell("topic", "configs", topic, "--all", "--json").object["configs"]
    assert every["cleanup.policy"]["value"] == "delete"


def test_a_config_may_be_set_by_its_earlier_name(our_shell: Shell, fresh_name: Callable[[], str]) -> None:
    topic = fresh_name()
    our_shell("topic", "create", topic, "--config", "pq.source.id.max.counts=5")
    changed = our_shell("topic", "configs", topic, "--set", "pq.source.id.max.counts=6", "--json")
    assert changed.object["configs"] == {"pq.producer.ids.max": {"value": "6", "source": "topic"}}
    assert changed.errors == "pqbroker: pq.source.id.max.counts is now called pq.producer.ids.max\n"


def test_a_misspelled_config_is_answered_with_near_names(shell: Shell, topic: str) -> None:
    refused = shell("topic", "configs", topic, "--set", "retention.mss=1")
    assert refused.status == 2
    assert "unknown config retention.mss; did you mean retention.ms" in refused.errors


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--set", "retention.ms"], "give NAME=VALUE"),
        (["--set", "a=1", "--unset", "a"], "both set and unset"),
    ],
)
def test_config_changes_must_make_sense(our_shell: Shell, options: list[str], words: str) -> None:
    refused = our_shell("topic", "configs", "any", *options)
    assert refused.status == 2
    assert words in refused.errors


def test_records_before_an_offset_are_trimmed(shell: Shell, filled: str) -> None:
    trimmed = shell("topic", "trim", filled, "--before", "3", "--partition", "0", "--yes", "--json").object
    assert trimmed == {"topic": filled, "partitions": [{"partition": 0, "before": 0, "start": 3, "deleted": 3}]}
    assert shell("consume", filled, "--partition", "0").output == "d\n"


def test_a_compacted_topic_is_not_trimmed_and_its_policy_is_named(shell: Shell, fresh_name: Callable[[], str]) -> None:
    name = fresh_name()
    shell("topic", "create", name, "--config", "cleanup.policy=compact")
    refused = shell("topic", "trim", name, "--before", "end", "--yes")
    assert refused.status == 1
    assert f"cannot trim {name}: its cleanup.policy is compact; " in refused.errors


def test_records_before_a_time_are_trimmed(shell: Shell, filled: str) -> None:
    assert shell("topic", "trim", filled, "--before", "1h", "--yes", "--json").object["partitions"][0]["deleted"] == 0
    assert shell("topic", "trim", filled, "--before", "0s", "--yes").status == 0
    assert shell("consume", filled).output == ""


def test_nothing_is_trimmed_where_nobody_can_be_asked(shell: Shell, filled: str) -> None:
    refused = shell("topic", "trim", filled, "--before", "end")
    assert refused.status == 2
    assert f"delete up to 5 records of {filled}?" in refused.errors
    assert len(shell("consume", filled).output.splitlines()) == 5
