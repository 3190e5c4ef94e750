"""The files of a replay, and the lines of JSON in them, without Spark."""

import json
from pathlib import Path

import pytest

from pqbroker.pipeline.errors import JobError
from pqbroker.pipeline.lakes.lake import LANDED, Lake
from pqbroker.pipeline.relays.files import check_files, find_files
from pqbroker.pipeline.relays.lines import LineRecord, read_line


def test_files_are_found_by_name_and_in_order(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.parquet", "sub/c.parquet", "_landed.json", ".hidden.parquet", "notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    expected = {str(tmp_path / name): len(name) for name in ("a.parquet", "b.jsonl", "sub/c.parquet")}
    assert list(find_files(tmp_path).items()) == list(expected.items())
    assert list(find_files(tmp_path / "b.jsonl")) == [str(tmp_path / "b.jsonl")]


def test_of_a_lake_only_the_rows_are_replayed(tmp_path: Path) -> None:
    lake = Lake(tmp_path, LANDED)
    lake.claim("orders", "id")
    for place in (lake.data / "batch=0", tmp_path / "temporary"):
        place.mkdir(exist_ok=True)
        (place / "part.parquet").touch()
    assert list(find_files(tmp_path)) == [str(lake.data / "batch=0" / "part.parquet")]


def test_a_directory_without_files_is_named(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="has no files of Parquet"):
        find_files(tmp_path)
    with pytest.raises(JobError, match=r"nowhere does not exist; name a file or a directory"):
        find_files(tmp_path / "nowhere")


def test_a_file_that_changed_under_the_job_is_named(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text("1\n")
    files = find_files(tmp_path)
    check_files(files)
    file.write_text("1\n2\n")
    with pytest.raises(JobError, match=r"a\.jsonl was changed or removed since the job began"):
        check_files(files)
    file.unlink()
    with pytest.raises(JobError, match="was changed or removed"):
        check_files(files)


@pytest.mark.parametrize(
    ("line", "record"),
    [
        ({"value": "v"}, LineRecord(None, None, None, b"v", [])),
        ({"value": None, "key": {"base64": "/w=="}}, LineRecord(None, None, b"\xff", None, [])),
        ({"value": {"json": {"a": [1]}}, "partition": 3, "timestamp": 7}, LineRecord(3, 7, None, b'{"a":[1]}', [])),
        ({"value": "", "headers": [{"key": "h", "value": None}]}, LineRecord(None, None, None, b"", [("h", None)])),
        ({"value": "v", "partition": -1, "timestamp": True}, LineRecord(None, None, None, b"v", [])),
    ],
)
def test_a_line_of_consume_is_its_record(line: object, record: LineRecord) -> None:
    assert read_line(json.dumps(line)) == record


@pytest.mark.parametrize(
    "line",
    ["", "text", "[1]", '{"id": 1}', '{"value": 5}', '{"value": {"base64": "?"}}', '{"value": "v", "headers": 3}'],
)
def test_another_line_is_a_value(line: str) -> None:
    assert read_line(line) == LineRecord(None, None, None, line.encode(), [])
