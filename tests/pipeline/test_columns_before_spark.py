"""Columns and topics that a job cannot have, named before Spark starts."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from pqbroker.client import Client, Column
from pqbroker.pipeline.__main__ import main
from pqbroker.pipeline.connection_security import use_security
from pqbroker.pipeline.errors import JobError
from pqbroker.pipeline.looking import check_copied, check_rows, check_schema, check_topics
from pqbroker.pipeline.relays.first_rows import first_columns
from pqbroker.pipeline.schema_text import SchemaColumn, read_columns
from pqbroker.testing import Broker, memory_broker

COLUMNS = [
    {"name": "id", "type": "int64", "required": True}, {"name": "name", "type": "utf8"},
    {"name": "price", "type": "double"}, {"name": "extra", "type": "any"},
    {"name": "at", "type": "int64", "from": "key"},
]  # fmt: skip


@pytest.fixture(scope="module")
def running() -> Iterator[Broker]:
    with memory_broker() as one:
        config = {"pq.schema": json.dumps(COLUMNS), "value.invalid": "refuse"}
        one.create_topic("shop.orders", 1, config)
        one.create_topic("events")
        one.create_topic("avro", 1, {"pq.schema": json.dumps(COLUMNS[:1]), "value.format": "avro"})
        one.produce("events", '{"user": 1, "kind": "a"}')
        one.produce("events", "no JSON")
        yield one


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a start of Spark fail the test."""

    def start(*_: object, **__: object) -> None:
        raise AssertionError("Spark started")

    monkeypatch.setattr("pqbroker.pipeline.session.start_session", start)


def test_columns_are_read_as_spark_reads_them() -> None:
    text = "id BIGINT NOT NULL, `a ``b` : array<int>, s STRUCT<x: INT NOT NULL> COMMENT ', <)', d DECIMAL(9,2) not null"
    assert read_columns(text) == [
        SchemaColumn("id", "BIGINT", True), SchemaColumn("a `b", "ARRAY", False), SchemaColumn("s", "STRUCT", False),
        SchemaColumn("d", "DECIMAL", True),
    ]  # fmt: skip
    assert read_columns("struct<a: int, b: string>") == [
        SchemaColumn("a", "INT", False), SchemaColumn("b", "STRING", False)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("", "is not a schema; it is written"), ("id", "the column id has no type"),
        ("id BIGNT", "BIGNT is no type, did you mean BIGINT?"), ("id ARRAY<INT", "a > is missing"),
        ("id INT>", "a > closes nothing"), ("id INT, Id STRING", "the column Id occurs twice"),
        ("id INT,, b INT", "a column is empty"),
    ],
)  # fmt: skip
def test_a_schema_that_is_none_is_wrong_usage(
    schema: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for job in ("land", "snapshot"):
        with pytest.raises(SystemExit) as ended:
            main([job, "events", "--to", str(tmp_path), "--once", "--format", "json", "--schema", schema])
        assert ended.value.code == 2
        assert why in capsys.readouterr().err


@pytest.mark.parametrize(
    ("topic", "schema", "why"),
    [
        ("shop.orders", "id BIGINT, nmae STRING", "table shop.orders has no column 'nmae'. Did you mean 'name'?"),
        ("shop.orders", "id BIGINT, at BIGINT", "the column 'at' of table shop.orders lies in the key"),
        ("shop.orders", "id BOOLEAN", "'id' of table shop.orders is int64, which BOOLEAN does not fit; give BIGINT"),
        ("shop.orders", "price INT", "'price' of table shop.orders is double, which INT does not fit; give DOUBLE"),
        ("shop.orders", "name BIGINT", "is utf8, which BIGINT does not fit; give STRING"),
        ("avro", "id BIGINT", "values of table avro are avro (its value.format); leave --format and --schema out"),
        ("//shop/orders", "id BIGINT", "table //shop/orders is the topic shop.orders: give that name"),
        ("none-*", "id BIGINT", "is named like none-*; there are avro, events, shop.orders"),
        ("none", "id BIGINT", "no topic none at"),
    ],
)  # fmt: skip
def test_a_column_that_no_row_has_is_named_before_spark_starts(
    running: Broker, topic: str, schema: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--broker", running.kafka, "--once", "--quiet", "--format", "json", "--schema", schema]
    jobs = ("land",) if "*" in topic else ("land", "snapshot")
    for job in jobs:
        assert main([job, topic, "--to", str(tmp_path / job), *words]) == 1
        assert why in capsys.readouterr().err


def test_columns_that_fit_pass_and_fields_that_no_value_has_are_warned_of(running: Broker) -> None:
    assert check_schema(running.kafka, "shop.orders", "id BIGINT NOT NULL, price DOUBLE, extra BOOLEAN") == []
    assert check_schema(running.kafka, "shop.orders", "id DECIMAL(20, 0), price FLOAT, name DATE") == []
    assert check_schema(running.kafka, "events", "user BIGINT, kind STRING") == []
    absent, required = check_schema(running.kafka, "events", "usr BIGINT, kind STRING, day DATE NOT NULL")
    assert absent == (
        "none of the newest 1 JSON objects of topic events has the field 'usr': the column is null there. "
        "Did you mean 'user'?"
    )
    assert "such values go to events.dlq. Give one of kind, user." in required


def test_a_field_beside_the_columns_of_a_table_may_be_landed(running: Broker) -> None:
    """Records of Kafka clients may hold more than the columns."""
    running.create_topic("wider", 1, {"pq.schema": json.dumps(COLUMNS[:1])})
    running.produce("wider", '{"id": 1, "more": "x"}')
    assert check_schema(running.kafka, "wider", "id BIGINT, more STRING") == []
    with pytest.raises(JobError, match="table wider has no column 'other'"):
        check_schema(running.kafka, "wider", "id BIGINT, other STRING")


def test_the_columns_of_a_table_are_known_as_those_of_a_topic(running: Broker) -> None:
    """A table has its columns from its making, and no config shows them."""
    with Client(running.http) as client:
        columns = [Column("id", "int64", is_required=True), Column("name", "utf8"), Column("at", "int64", part="key")]
        client.table("//made/here").create(columns, mount=True)
    assert check_schema(running.kafka, "made.here", "id BIGINT, name STRING") == []
    for schema, why in (
        ("id BIGINT, nam STRING", "table made.here has no column 'nam'. Did you mean 'name'?"),
        ("id BOOLEAN", "is int64, which BOOLEAN does not fit"), ("at BIGINT", "lies in the key"),
    ):  # fmt: skip
        with pytest.raises(JobError, match=re.escape(why)):
            check_schema(running.kafka, "made.here", schema)


def test_columns_are_asked_for_by_the_login_of_the_job(tmp_path: Path) -> None:
    with memory_broker(users={"root": "Secret-1"}) as locked:
        properties = tmp_path / "client.properties"
        properties.write_text("".join(f"{name}={text}\n" for name, text in locked.login().items()))
        with Client(locked.http, login=("root", "Secret-1")) as client:
            client.table("t").create([Column("id", "int64")], mount=True)
        use_security(properties)
        try:
            with pytest.raises(JobError, match="table t has no column 'name'"):
                check_schema(locked.kafka, "t", "name STRING")
        finally:
            use_security(None)


def test_values_that_are_no_objects_are_warned_of(running: Broker) -> None:
    running.create_topic("framed")
    assert check_schema(running.kafka, "framed", "id BIGINT") == []
    running.produce("framed", b"\0\0\0\0\1abc")
    (line,) = check_schema(running.kafka, "framed", "id BIGINT")
    assert line.startswith("none of the newest 1 values of topic framed is a JSON object; they look like values of a")
    running.produce("framed", b"[1]")
    (line,) = check_schema(running.kafka, "framed", "id BIGINT")
    assert line.endswith("see `pqbroker-pipeline infer`")


def test_files_without_a_required_column_are_named_before_spark_starts(
    running: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines, rows = tmp_path / "a.jsonl", tmp_path / "b.parquet"
    lines.write_text('{"name": "a"}\n')
    pyarrow.parquet.write_table(pyarrow.table({"key": ["k"], "value": [{"price": 1.5}]}), rows)
    words = ["--state", str(tmp_path / "state"), "--broker", running.kafka, "--quiet"]
    for file, names in ((lines, "name"), (rows, "price")):
        assert main(["replay", str(file), "shop.orders", *words]) == 1
        told = f"table shop.orders requires the column 'id', and {file} has none: it has {names}"
        assert told in capsys.readouterr().err
    assert main(["replay", str(lines), "none", *words]) == 1
    assert "no topic none at" in capsys.readouterr().err
    check_rows(running.kafka, "events", ["name"], "a file")


def test_the_first_row_of_a_file_tells_its_columns(tmp_path: Path) -> None:
    lines, rows = tmp_path / "a.jsonl", tmp_path / "b.parquet"
    for text, names in (
        ('{"value": {"json": {"id": 1}}}', ["id"]), ('{"value": "text"}', []), ("", []), ("[1]", []),
        ('{"a": 1}', ["a"]),
    ):  # fmt: skip
        lines.write_text(text)
        assert list(first_columns(lines)) == names
    rows.write_bytes(b"PAR1")
    assert first_columns(rows) == ()
    pyarrow.parquet.write_table(pyarrow.table({"a": [1], "b": [2]}), rows)
    assert first_columns(rows) == ["a", "b"]


def test_a_copy_into_itself_or_a_table_that_refuses_it_is_named_before_spark_starts(
    running: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--state", str(tmp_path / "state"), "--broker", running.kafka, "--quiet"]
    assert main(["copy", "events", "events", *words]) == 1
    assert "topic events would be copied into itself" in capsys.readouterr().err
    running.create_topic("partial", 1, {"pq.schema": json.dumps(COLUMNS[1:2])})
    assert main(["copy", "partial", "shop.orders", *words]) == 1
    assert "requires the column 'id', and table partial has none: it has name" in capsys.readouterr().err
    check_copied((running.kafka, "shop.orders"), (running.kafka, "partial"))
    check_copied((running.kafka, "events"), (running.kafka, "shop.orders"))
    check_topics(running.kafka, ["sh?p.*"])
