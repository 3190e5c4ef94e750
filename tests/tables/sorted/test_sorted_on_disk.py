"""A second reader finds in chunks and logs what docs/on-disk.md says, and every row that was written."""

import re
from typing import Any

import pytest

from pqbroker.tables.sorted.keys import key_encoder
from pqbroker.tables.sorted.packed_rows import ABSENT
from tests.house.sources import ROOT
from tests.support.sorted_on_disk import DELETE, UPDATE, WRITE, explain_chunk, explain_log
from tests.tables.work.sorted.worker_line import Table, log_of, merged

pytestmark = pytest.mark.spec("C.2")
TABLE: Table = (
    [["id", "int32"], ["name", "utf8"]],
    [["small", "int8"], ["flag", "boolean"], ["price", "double"], ["text", "string"], ["document", "any"]],
)
ROWS: list[Any] = [
    ((at // 3, "a\0b"), 100 + at, None if at % 7 == 3 else [at % 100, not at % 2, None, b"x" * (at % 50), ABSENT], True)
    for at in range(3000)
] + [((5000, None), 9000, [None, True, 1.5, b"\0", '{"a":1}'], False)]
encode = key_encoder([kind for _, kind in TABLE[0]])


def small(values: Any, number: int) -> int | None:
    """A number as both forms have it."""
    return None if values[number] is None else int.from_bytes(values[number], "little", signed=True)


def test_a_second_reader_finds_every_row_of_a_log() -> None:
    rows = explain_log(log_of(TABLE, ROWS), [kind for _, kind in TABLE[1]])
    assert [row[:2] for row in rows] == [[encode(key), timestamp] for key, timestamp, _, _ in ROWS]
    assert [row[2] for row in rows] == [
        DELETE if values is None else UPDATE if is_update else WRITE for _, _, values, is_update in ROWS
    ]
    for (_, _, values, _), (_, _, _, found) in zip(ROWS, rows, strict=True):
        if values is not None:
            assert (small(found, 0), found[3]) == (values[0], values[3])
            assert (found[4] is ...) == (values[4] is ABSENT)


def test_a_second_reader_finds_every_row_of_a_chunk() -> None:
    (chunk,), said = merged(TABLE, [log_of(TABLE, ROWS)])
    facts, rows = explain_chunk(chunk)
    assert said["chunks"][0]["blocks"] > 2
    ordered = sorted(ROWS, key=lambda row: (encode(row[0]), -row[1]))
    assert [row[:3] for row in rows] == [[encode(key), time, values is None] for key, time, values, _ in ordered]
    for (key, _, values, _), (_, _, _, found) in zip(ordered, rows, strict=True):
        assert small(found, 0) == key[0]
        if values is not None:
            assert (small(found, 2), found[5]) == (values[0], values[3])
            assert (found[4] is None) == (values[2] is None)
            assert (found[6] is ...) == (values[4] is ABSENT)
    assert (facts["rows"], facts["last_key"]) == (len(ROWS), rows[-1][0].hex())
    assert facts["deletes"] == sum(row[2] for row in rows)


def test_the_page_names_each_fact_of_a_chunk_and_each_field() -> None:
    (chunk,), _ = merged(TABLE, [log_of(TABLE, ROWS)])
    page = (ROOT / "docs" / "on-disk.md").read_text(encoding="utf-8").partition("## Values of sorted tables")[2]
    named = set(re.findall(r"`([^`]+)`", page.partition("\n## ")[0]))
    assert set(explain_chunk(chunk)[0]) <= named
    assert {"PQSF", "PQSI", "PQS1", "PQL1"} <= named
