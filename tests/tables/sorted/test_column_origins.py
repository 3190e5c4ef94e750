"""Rows that records become: as the topic's typed view has them, and as an insert of the same row encodes them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pqbroker.tables.refusals import TableError
from pqbroker.tables.rows import ERROR, decode_row
from pqbroker.tables.schema import Schema, read_schema
from pqbroker.tables.sorted.column_origins import NO_DELETE, NO_KEY, FedRecord, RowMaker, resolve_origins
from pqbroker.tables.sorted.log_entries import NewRow
from pqbroker.tables.sorted.packed_rows import DELETED
from pqbroker.tables.sorted.rows import encode_deletes, encode_rows
from pqbroker.tables.sorted.schema import SortedSchema, read_sorted_schema

ASCENDING = {"sort_order": "ascending"}
TYPES = ("int8", "uint64", "double", "boolean", "string", "utf8", "any", "timestamp")
TOPIC = read_schema(
    [{"name": "id", "type": "int64", "from": "key"}, *({"name": f"c{name}", "type": name} for name in TYPES)], 100
)
TABLE = read_sorted_schema(
    [{"name": "id", "type": "int64", "required": True, **ASCENDING},
     *({"name": f"c{name}", "type": name} for name in TYPES)], 100,
)  # fmt: skip
NUMBERS = st.integers(-(1 << 65), 1 << 65) | st.sampled_from([0, -1, 127, 128, 1 << 63, (1 << 64) - 1])
VALUES = st.none() | st.booleans() | NUMBERS | st.floats() | st.text(max_size=5) | st.just({"base64": "/w=="})
DOCUMENTS = st.fixed_dictionaries({}, optional={f"c{name}": VALUES for name in TYPES})
PARTS = (
    st.none() | DOCUMENTS.map(lambda document: json.dumps(document).encode())
    | st.sampled_from([b"", b"[]", b"no json", b"\xff", b"{}"])
)  # fmt: skip
KEYS = st.none() | st.sampled_from([b'{"id": 5}', b'{"id": -1, "x": 2}', b"{}", b'{"id": "a"}', b"5", b"\xff"])


TOO_LONG = "the key of the row: give a key of at most 4096 bytes; this one has 5003 when it is encoded"


def record_of(key: bytes | None, value: bytes | None, timestamp_ms: int = 7) -> FedRecord:
    return FedRecord(3, 42, timestamp_ms, key, value)


def wanted_of(key: bytes | None, value: bytes | None) -> NewRow | None:
    """The row by the rules of the view and of inserts; None: there is none."""
    if key is None:
        return None
    try:
        if value is None:
            row = decode_row(read_schema([{"name": "id", "type": "int64", "from": "key"}], 1), key, None)
            return None if ERROR in row else encode_deletes(TABLE, [row], "rows")[0]
        row = decode_row(TOPIC, key, value)
        return None if ERROR in row else encode_rows(TABLE, [row], "rows", is_update=False)[0]
    except TableError:
        return None


@given(KEYS, PARTS)
def test_a_record_becomes_the_row_that_the_view_shows_and_an_insert_writes(
    key: bytes | None, value: bytes | None
) -> None:
    maker = RowMaker(TABLE, TOPIC, resolve_origins(TABLE, TOPIC, None))
    wanted = wanted_of(key, value)
    if wanted is None:
        with pytest.raises(ValueError, match=r"."):
            maker.make(record_of(key, value))
    else:
        assert maker.make(record_of(key, value)) == wanted


def table_of(*columns: tuple[str, str], keys: int = 1) -> SortedSchema:
    items = [
        {"name": name, "type": kind, **(ASCENDING if at < keys else {})} for at, (name, kind) in enumerate(columns)
    ]
    return read_sorted_schema(items, 100)


def made(table: SortedSchema, record: FedRecord, topic: Schema | None = None, **declared: str) -> NewRow:
    return RowMaker(table, topic, resolve_origins(table, topic, declared or None)).make(record)


def test_every_record_has_key_value_time_and_place() -> None:
    table = table_of(("k", "string"), ("v", "utf8"), ("ms", "uint64"), ("at", "timestamp"), ("row", "int64"),
                     ("part", "int64"))  # fmt: skip
    origins = {"k": "key", "v": "value", "ms": "timestamp_ms", "at": "timestamp_ms", "row": "$row_index",
               "part": "$tablet_index"}  # fmt: skip
    row = {"k": "a", "v": "é", "ms": 7, "at": 7_000, "row": 42, "part": 3}
    wanted = encode_rows(table, [row], "rows", is_update=False)[0]
    assert made(table, record_of(b"a", "é".encode()), None, **origins) == wanted
    without = encode_rows(table, [{**row, "ms": None, "at": None}], "rows", is_update=False)[0]
    assert made(table, record_of(b"a", "é".encode(), -1), None, **origins) == without


def test_columns_without_an_origin_are_null_and_hashes_are_computed() -> None:
    items = [
        {"name": "h", "type": "uint64", "expression": "hash(key) % 16", **ASCENDING},
        {"name": "key", "type": "string", **ASCENDING}, {"name": "value", "type": "string"},
        {"name": "more", "type": "int64"},
    ]  # fmt: skip
    table = read_sorted_schema(items, 100)
    wanted = encode_rows(table, [{"key": "a", "value": "b"}], "rows", is_update=False)[0]
    assert made(table, record_of(b"a", b"b"), key="key", value="value") == wanted
    assert made(table, record_of(b"a", None), key="key", value="value") == NewRow(wanted.key, DELETED)
    with pytest.raises(TableError, match="which the table fills"):
        resolve_origins(table, None, {"h": "key", "key": "key"})


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (None, b"v", NO_KEY), (b"\xff", b"v", "k: the record's key is no UTF-8"),
        (b"a", b"\xff", "v: the record's value is no UTF-8"),
        (b"k" * 5000, b"v", TOO_LONG),
    ],
)  # fmt: skip
def test_the_reason_says_what_does_not_fit(key: bytes | None, value: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=r".") as refused:
        made(table_of(("k", "utf8"), ("v", "utf8")), record_of(key, value), k="key", v="value")
    assert str(refused.value) == reason


def test_a_table_whose_key_is_of_the_value_has_no_deletes() -> None:
    table = table_of(("c", "utf8"), ("k", "string"))
    with pytest.raises(ValueError, match="no row can be found for it") as refused:
        made(table, record_of(b"a", None), c="value", k="key")
    assert str(refused.value) == NO_DELETE


def test_a_value_of_another_type_is_read_by_the_topics_type_first() -> None:
    topic = read_schema([{"name": "n", "type": "int8"}, {"name": "t", "type": "string"}], 10)
    table = table_of(("k", "string"), ("n", "int64"), ("t", "utf8"))
    origins = {"k": "key", "n": "n", "t": "t"}
    row = encode_rows(table, [{"k": "a", "n": 5, "t": "x"}], "rows", is_update=False)[0]
    assert made(table, record_of(b"a", b'{"n": 5, "t": "x"}'), topic, **origins) == row
    with pytest.raises(ValueError, match="the topic's column n: give -128 to 127"):
        made(table, record_of(b"a", b'{"n": 500}'), topic, **origins)
    with pytest.raises(ValueError, match=r"row\.t is no utf8"):
        made(table, record_of(b"a", b'{"t": {"base64": "/w=="}}'), topic, **origins)


@pytest.mark.parametrize(
    ("column", "kind", "origin", "told"),
    [
        ("v", "int64", "value", "is int64, and comes from the record's value"),
        ("v", "utf8", "timestamp_ms", "is utf8, and comes from the record's timestamp_ms"),
        ("v", "int8", "n", "is int8, and comes from the topic's column 'n', which is int64"),
        ("v", "utf8", "n", "is utf8, and comes from the topic's column 'n', which is int64"),
        ("v", "utf8", "m", "comes from 'm', which the topic has not"),
    ],
)  # fmt: skip
def test_types_that_cannot_fit_are_refused(column: str, kind: str, origin: str, told: str) -> None:
    topic = read_schema([{"name": "n", "type": "int64"}], 10)
    with pytest.raises(TableError, match=r".") as refused:
        resolve_origins(table_of(("k", "string"), (column, kind)), topic, {"k": "key", column: origin})
    assert (refused.value.code, told in refused.value.message) == ("INVALID_ORIGINS", True), refused.value.message


def test_a_column_of_the_schema_hides_what_every_record_has() -> None:
    topic = read_schema([{"name": "value", "type": "int64"}], 10)
    table = table_of(("key", "string"), ("value", "int64"))
    row = encode_rows(table, [{"key": "a", "value": 5}], "rows", is_update=False)[0]
    assert made(table, record_of(b"a", b'{"value": 5}'), topic) == row
