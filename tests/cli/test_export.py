"""`pqbroker topic export`: what the file has, what is refused, and what it costs."""

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from confluent_kafka import Producer
from hypothesis import given
from hypothesis import strategies as st

from pqbroker.cli.records import columns
from pqbroker.cli.records.exporting import writer_for
from pqbroker.protocol.errors import ProtocolError
from pqbroker.protocol.records import BATCH_HEADER_BYTES, Record, decode_records, encode_batch, read_header
from tests.cli.shell import Shell
from tests.support.waiting import DEADLINE_S

CONTENT = st.none() | st.binary(max_size=200)
RECORDS = st.lists(
    st.builds(
        Record,
        timestamp=st.integers(0, 1 << 42),
        key=CONTENT,
        value=CONTENT,
        headers=st.lists(st.tuples(st.text(max_size=5), CONTENT), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=200,
)


@given(RECORDS, st.integers(0, 1 << 40))
def test_columns_hold_what_the_records_hold(records: list[Record], offset: int) -> None:
    batch = bytes(encode_batch(records, base_offset=offset))
    header = read_header(batch)
    found = columns._decode(header, batch[BATCH_HEADER_BYTES :])
    rows = zip(*found[:4], map(tuple, found.headers), strict=True)
    assert [Record(*row) for row in rows] == list(decode_records(batch))


@given(RECORDS, st.data())
def test_what_is_no_record_is_refused(records: list[Record], data: st.DataObject) -> None:
    batch = encode_batch(records)
    body = batch[BATCH_HEADER_BYTES :]
    at = data.draw(st.integers(0, len(body) - 1))
    try:
        columns._decode(read_header(batch), bytes(body[:at]))
    except (IndexError, UnicodeDecodeError, ProtocolError):
        return
    pytest.fail("a batch that ends early was taken for whole")


def write(kafka: str, topic: str, contents: list[tuple[int, bytes | None, bytes | None, list[Any]]]) -> None:
    producer = Producer({"bootstrap.servers": kafka, "log_level": 0})
    for partition, key, value, headers in contents:
        producer.produce(topic, value, key, partition=partition, headers=headers)
    assert producer.flush(DEADLINE_S) == 0


ODD: list[tuple[int, bytes | None, bytes | None, list[Any]]] = [
    (0, b"k", b'{"id": 1}', []),
    (0, None, b"", [("h", b"1"), ("h", None)]),
    (0, b"\xff", b"a\xfe", []),
    (1, "é".encode(), None, []),
    (1, b"k", "\u2028 \"\\\n".encode(), []),
]


def test_json_lines_are_what_consume_prints(shell: Shell, topic: str, tmp_path: Path) -> None:
    write(shell.kafka, topic, ODD)
    said = shell("topic", "export", topic, str(tmp_path / "t.jsonl"))
    assert said.output.startswith(f"5 records of {topic} in {tmp_path / 't.jsonl'}, "), said.errors
    lines = (tmp_path / "t.jsonl").read_text().split("\n")
    consumed = shell("consume", topic, "--json").output.split("\n")
    assert sorted(lines) == sorted(consumed)
    assert [(each["partition"], each["offset"]) for each in map(json.loads, lines[:-1])] == [
        (0, 0), (0, 1), (0, 2), (1, 0), (1, 1),
    ]  # fmt: skip


def test_parquet_has_text_and_beside_it_the_bytes_that_are_none(our_shell: Shell, tmp_path: Path) -> None:
    assert our_shell("topic", "create", "in-parquet", "--partitions", "2").status == 0
    write(our_shell.kafka, "in-parquet", ODD)
    made = our_shell("topic", "export", "in-parquet", str(tmp_path / "t.parquet"), "--json").object
    assert made["records"] == 5
    rows = pyarrow.parquet.read_table(tmp_path / "t.parquet").to_pylist()
    assert [(row["partition"], row["offset"], row["key"], row["value"]) for row in rows] == [
        (0, 0, "k", '{"id": 1}'), (0, 1, None, ""), (0, 2, None, None), (1, 0, "é", None),
        (1, 1, "k", "\u2028 \"\\\n"),
    ]  # fmt: skip
    assert [(row["key_bytes"], row["value_bytes"]) for row in rows if row["offset"] == 2] == [(b"\xff", b"a\xfe")]
    assert rows[1]["headers"] == [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]


def test_a_part_of_a_topic_is_exported(shell: Shell, filled: str, tmp_path: Path) -> None:
    file = tmp_path / "part.jsonl"
    assert shell("topic", "export", filled, str(file), "--from", "1", "--until", "3", "-p", "0").status == 0
    assert [json.loads(line)["value"] for line in file.read_text().splitlines()] == ["b", "c"]


def test_a_file_that_exists_stays(our_shell: Shell, tmp_path: Path) -> None:
    our_shell("topic", "create", "kept")
    (tmp_path / "t.jsonl").write_text("mine")
    said = our_shell("topic", "export", "kept", str(tmp_path / "t.jsonl"))
    assert (said.status, "exists" in said.errors) == (1, True)
    assert (tmp_path / "t.jsonl").read_text() == "mine"


def test_another_kind_of_file_is_refused(our_shell: Shell, tmp_path: Path) -> None:
    our_shell("topic", "create", "refused")
    said = our_shell("topic", "export", "refused", str(tmp_path / "t.csv"))
    assert said.status == 2
    assert ".jsonl or .parquet" in said.errors
    assert list(tmp_path.iterdir()) == []


def test_without_pyarrow_parquet_is_refused_and_json_lines_are_not(
    our_shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    our_shell("topic", "create", "bare")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    said = our_shell("topic", "export", "bare", str(tmp_path / "t.parquet"))
    assert said.status == 1
    assert "pip install pyarrow" in said.errors
    assert list(tmp_path.iterdir()) == []
    assert our_shell("topic", "export", "bare", str(tmp_path / "t.jsonl")).status == 0


@pytest.mark.parametrize(("suffix", "calls_max"), [(".jsonl", 11), (".parquet", 8)])
def test_a_record_costs_few_calls(tmp_path: Path, suffix: str, calls_max: int) -> None:
    """Calls, not seconds, which depend on what else runs. At this many calls, 600 000 records took 4 CPU-seconds."""
    count = 1000
    records = [Record(0, 1_700_000_000_000 + at, b"k%d" % at, b'{"id": %d, "name": "n"}' % at) for at in range(count)]
    batch = bytes(encode_batch(records))
    writer = writer_for(tmp_path / "file", suffix, "t")
    calls = 0

    def note(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(note)
    try:
        writer.add(0, columns._decode(read_header(batch), batch[BATCH_HEADER_BYTES:]))
    finally:
        sys.setprofile(None)
    writer.close()
    assert calls / count < calls_max
