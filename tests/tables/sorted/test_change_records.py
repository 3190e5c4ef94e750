"""Records of change feeds: rows before and after, keys, batches."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pqbroker.protocol.records import decode_records
from pqbroker.tables.sorted.change_records import (
    ChangeTooLarge,
    CommittedRows,
    encode_changes,
    with_before,
)
from pqbroker.tables.sorted.log_entries import NewRow
from pqbroker.tables.sorted.rows import encode_deletes, encode_key, encode_rows
from pqbroker.tables.sorted.schema import read_sorted_schema

SCHEMA = read_sorted_schema(
    [
        {"name": "id", "type": "int64", "sort_order": "ascending"}, {"name": "raw", "type": "string"},
        {"name": "n", "type": "int64"},
    ],
    100,
)  # fmt: skip
NOW_MS = 1_700_000_000_000
LARGE = 1 << 20


def written(**row: Any) -> NewRow:
    return encode_rows(SCHEMA, [row], "rows", is_update=False)[0]


def updated(**row: Any) -> NewRow:
    return encode_rows(SCHEMA, [row], "rows", is_update=True)[0]


def deleted(key: int) -> NewRow:
    return encode_deletes(SCHEMA, [{"id": key}], "keys")[0]


def told(*commits: CommittedRows, stored: dict[int, Any] | None = None) -> list[tuple[Any, Any]]:
    """Keys and values of the records of commits."""
    known = {key: (stored or {}).get(key) for key in range(10)}
    before = with_before(SCHEMA.form, commits, {encode_key(SCHEMA, {"id": key}, ""): row for key, row in known.items()})
    batches = encode_changes(SCHEMA, before, NOW_MS, LARGE, is_refused=True)
    records = [record for batch in batches for record in decode_records(batch)]
    assert all(record.timestamp == NOW_MS for record in records)
    return [(json.loads(record.key or b""), json.loads(record.value or b"")) for record in records]


def test_a_row_that_is_new_has_none_before_it() -> None:
    assert told(CommittedRows(7, None, [written(id=1, n=5)])) == [
        ({"id": 1}, {"before": None, "after": {"id": 1, "raw": None, "n": 5}, "transaction": None, "timestamp": 7})
    ]


def test_an_update_shows_whole_rows() -> None:
    ((_, change),) = told(CommittedRows(7, "ab" * 16, [updated(id=1, n=6)]), stored={1: [b"x", 5]})
    assert change == {
        "before": {"id": 1, "raw": "x", "n": 5}, "after": {"id": 1, "raw": "x", "n": 6}, "transaction": "ab" * 16,
        "timestamp": 7,
    }  # fmt: skip


def test_a_write_sets_columns_that_it_leaves_out_to_null() -> None:
    ((_, change),) = told(CommittedRows(7, None, [written(id=1, n=6)]), stored={1: [b"x", 5]})
    assert change["after"] == {"id": 1, "raw": None, "n": 6}


def test_an_update_of_no_row_has_nulls_for_what_it_leaves_out() -> None:
    ((_, change),) = told(CommittedRows(7, None, [updated(id=1, n=6)]))
    assert (change["before"], change["after"]) == (None, {"id": 1, "raw": None, "n": 6})


def test_a_delete_has_no_row_after_it() -> None:
    ((key, change),) = told(CommittedRows(7, None, [deleted(1)]), stored={1: [None, 5]})
    assert (key, change["before"], change["after"]) == ({"id": 1}, {"id": 1, "raw": None, "n": 5}, None)


def test_a_delete_of_no_row_is_a_change_with_its_key() -> None:
    ((key, change),) = told(CommittedRows(7, None, [deleted(1)]))
    assert (key, change["before"], change["after"]) == ({"id": 1}, None, None)


def test_commits_of_one_request_follow_one_another() -> None:
    found = told(
        CommittedRows(7, None, [written(id=1, n=1), written(id=2, n=2)]), CommittedRows(8, None, [updated(id=1, n=3)]),
        CommittedRows(9, None, [deleted(1)]), CommittedRows(10, None, [updated(id=1, raw="r")]),
    )  # fmt: skip
    of_one = [value for key, value in found if key == {"id": 1}]
    assert [change["timestamp"] for change in of_one] == [7, 8, 9, 10]
    assert [change["after"] and (change["after"]["raw"], change["after"]["n"]) for change in of_one] == [
        (None, 1), (None, 3), None, ("r", None)
    ]  # fmt: skip
    assert [change["before"] for change in of_one] == [None, *(change["after"] for change in of_one[:-1])]


def test_bytes_that_are_no_text_are_shown_as_lookups_show_them() -> None:
    ((_, change),) = told(CommittedRows(7, None, [written(id=1, raw={"base64": "/w=="})]))
    assert change["after"]["raw"] == {"base64": "/w=="}


@given(st.lists(st.integers(0, 900), min_size=1, max_size=40), st.integers(500, 3_000))
def test_batches_are_in_order_and_within_their_limit(sizes: list[int], bytes_max: int) -> None:
    rows = [written(id=number, raw="x" * size) for number, size in enumerate(sizes)]
    commit = CommittedRows(7, None, rows)
    before = with_before(SCHEMA.form, [commit], dict.fromkeys(row.key for row in rows))
    batches = encode_changes(SCHEMA, before, NOW_MS, bytes_max, is_refused=False)
    records = [record for batch in batches for record in decode_records(batch)]
    assert [json.loads(record.key or b"")["id"] for record in records] == list(range(len(sizes)))
    for batch in batches:
        assert len(batch) <= bytes_max or len(list(decode_records(batch))) == 1


def test_a_change_that_no_batch_can_hold_is_refused_unless_it_is_committed() -> None:
    commit = CommittedRows(7, None, [written(id=1, n=1), written(id=2, raw="x" * 1000), written(id=3, n=1)])
    before = with_before(SCHEMA.form, [commit], dict.fromkeys(row.key for row in commit.rows))
    with pytest.raises(ChangeTooLarge, match=r"1\d\d\d bytes"):
        encode_changes(SCHEMA, before, NOW_MS, 1000, is_refused=True)
    assert len(encode_changes(SCHEMA, before, NOW_MS, 1000, is_refused=False)) == 3
