"""`pqbroker bench`, at our broker and at Apache Kafka."""

from tests.cli.shell import Shell, run


def test_both_phases_are_measured_and_the_topic_is_gone(shell: Shell) -> None:
    phases = shell("bench", "--records", "500", "--size", "100", "--partitions", "2", "--json").objects
    assert [(phase["phase"], phase["records"], phase["mb"]) for phase in phases] == [
        ("produce", 500, 0.05),
        ("consume", 500, 0.05),
    ]
    assert all(phase["seconds"] > 0 and phase["records_per_s"] > 0 for phase in phases)
    assert 0 < phases[0]["p50_ms"] <= phases[0]["p99_ms"]
    assert not [each for each in shell("topic", "list", "--json").objects if "bench" in each["topic"]]


def test_records_that_are_refused_are_told_once(our_shell: Shell) -> None:
    said = run("bench", "--records", "20", "--size", "2000000", "--broker", our_shell.kafka)
    assert said.status == 1
    assert "the record is larger than the topic's max.message.bytes" in said.errors
    assert len(said.errors.splitlines()) == 1


def test_people_get_a_table_and_may_keep_the_topic(our_shell: Shell) -> None:
    lines = our_shell("bench", "--records", "10", "--keep").output.splitlines()
    assert lines[0].split()[:3] == ["phase", "records", "mb"]
    assert [line.split()[:2] for line in lines[2:]] == [["produce", "10"], ["consume", "10"]]
    (kept,) = (each for each in our_shell("topic", "list", "--json").objects if "bench" in each["topic"])
    assert our_shell("topic", "delete", kept["topic"], "--yes").status == 0
