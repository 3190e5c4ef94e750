"""`infer`, which starts no Spark, and topics that are missing, found before Spark starts."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pqbroker.pipeline.__main__ import main
from pqbroker.pipeline.errors import JobError
from pqbroker.pipeline.infer import infer
from pqbroker.pipeline.json_types import FIELDS_MAX, Fields, JsonType, merged, schema_sql, type_of
from pqbroker.testing import Broker, BrokerRefusedError, memory_broker


@pytest.fixture(scope="module")
def running() -> Iterator[Broker]:
    with memory_broker() as one:
        yield one


def schema_of(*documents: object) -> str:
    """The schema of a topic whose values these are."""
    found: JsonType = Fields()
    for each in documents:
        found = merged(found, type_of(each))
    assert isinstance(found, Fields)
    return schema_sql(found, len(documents))


def test_the_newest_values_of_each_partition_give_the_schema(
    running: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    name = running.create_topic("inferred", 2)
    for partition in (0, 1):
        for value in ('{"id": "of an earlier form"}', '{"id": 1, "Name": "one"}', "no JSON", None, '{"id": 2}'):
            running.produce(name, value, partition=partition)
    assert main(["infer", name, "--broker", running.kafka, "--sample", "8", "--quiet"]) == 0
    said = capsys.readouterr()
    assert said.out == "Name STRING, id BIGINT NOT NULL\n"
    assert said.err == "4 of the 6 newest values are JSON objects\n"


def test_a_topic_without_objects_is_named(running: Broker) -> None:
    name = running.create_topic("no-objects")
    with pytest.raises(JobError, match="has no JSON objects among its newest 0 records"):
        infer(running.kafka, name, 10, lambda line: None)
    for value in ("text", "[1]", "{}", '{"a": {}}', "[" * 100_000, '{"a": ' * 200 + "1" + "}" * 200, b"\xff"):
        running.produce(name, value)
    with pytest.raises(JobError, match="has no JSON objects among its newest 7 records"):
        infer(running.kafka, name, 10, lambda line: None)


def test_names_of_fields_that_are_data_are_named(running: Broker) -> None:
    name = running.create_topic("many-fields")
    for start in (0, FIELDS_MAX):
        running.produce(name, json.dumps({f"f{number}": 1 for number in range(start, start + FIELDS_MAX - 1)}))
    with pytest.raises(JobError, match="more than 10,000 different fields"):
        infer(running.kafka, name, 10, lambda line: None)


def test_types_that_differ_become_the_one_that_takes_both() -> None:
    assert schema_of({"a": 1}, {"a": 1.5}) == "a DOUBLE NOT NULL"
    assert schema_of({"a": 1}, {"a": "x"}) == "a STRING NOT NULL"
    assert schema_of({"a": None}, {"a": True}) == "a BOOLEAN"
    assert schema_of({"a": None}) == "a STRING"
    assert schema_of({"a": 1 << 63}) == "a DECIMAL(19, 0) NOT NULL"
    assert schema_of({"a": 1 << 70}, {"a": 1}) == "a DECIMAL(22, 0) NOT NULL"
    assert schema_of({"a": 10**40}) == "a DOUBLE NOT NULL"
    assert schema_of({"a": [1, None]}, {"a": [2.5]}) == "a ARRAY<DOUBLE> NOT NULL"
    assert schema_of({"a": []}) == "a ARRAY<STRING> NOT NULL"
    assert schema_of({"a": {"b": 1}}, {"a": {"c d": "x"}}) == "a STRUCT<b: BIGINT, `c d`: STRING> NOT NULL"
    assert schema_of({"a": {}, "b": 1}) == "b BIGINT NOT NULL"


@pytest.mark.parametrize(
    "job",
    [
        ["infer", "missing"], ["land", "missing", "--to", "DIR", "--once"],
        ["snapshot", "missing", "--to", "DIR", "--once"],
        ["copy", "missing", "there", "--state", "DIR", "--once"], ["redrive", "missing", "--state", "DIR", "--once"],
    ],
    ids=lambda job: job[0],
)  # fmt: skip
def test_a_topic_that_is_missing_is_named_before_spark_starts(
    running: Broker, job: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def start(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("pqbroker.pipeline.session.start_session", start)
    words = [str(tmp_path) if word == "DIR" else word for word in job]
    assert main([*words, "--broker", running.kafka, "--quiet"]) == 1
    named = "missing.dlq" if job[0] == "redrive" else "missing"
    assert f"no topic {named} at {running.kafka}; there are " in capsys.readouterr().err
    with pytest.raises(BrokerRefusedError):  # nor was it made by the look
        running.read("missing")
