"""Rows of sorted tables in JSON, and their limits."""

from typing import Any

import pytest
from crc32c import crc32c

from pqbroker.tables.refusals import TableError
from pqbroker.tables.sorted import rows as rows_module
from pqbroker.tables.sorted.keys import ENCODED_KEY_BYTES_MAX, KEY_COLUMNS_MAX, key_encoder
from pqbroker.tables.sorted.packed_rows import ABSENT
from pqbroker.tables.sorted.rows import encode_key, encode_prefix, encode_rows, shown_columns
from pqbroker.tables.sorted.schema import SortedSchema, read_sorted_schema


def schema_of(*types: str, keys: int = 1) -> SortedSchema:
    """Columns c0, c1, … of these types."""
    order = {"sort_order": "ascending"}
    items = [{"name": f"c{at}", "type": name, **(order if at < keys else {})} for at, name in enumerate(types)]
    return read_sorted_schema(items, 1024)


VALUES: dict[str, Any] = {
    "int64": -5, "uint8": 255, "double": 0.5, "boolean": False, "string": {"base64": "/w=="}, "utf8": "é",
    "any": {"a": [1, None]}, "timestamp": 7,
}  # fmt: skip


def test_a_row_is_shown_as_it_was_written() -> None:
    schema = schema_of("utf8", *VALUES)
    row = {"c0": "k", **{f"c{at}": value for at, value in enumerate(VALUES.values(), 1)}}
    ((key, body),) = encode_rows(schema, [row], "rows", is_update=False)
    values = schema.form.values(bytes(8) + body)
    assert shown_columns(schema, None).show(key, values) == row
    assert shown_columns(schema, ["c3"]).show(key, values) == {"c3": 0.5}


def test_a_row_counts_the_lengths_of_its_key_and_texts_and_eight_for_what_else_is_shown() -> None:
    schema = schema_of("int64", "utf8", "string", "double", "utf8")
    key, values = encode_key(schema, {"c0": 1}, "key"), ["abc", b"de", 0.5, None]
    assert shown_columns(schema, None).size_of(key, values) == len(key) + 3 + 2 + 8 + 8
    assert shown_columns(schema, ["c1", "c4"]).size_of(key, ["abc", None, None, ABSENT]) == len(key) + 3 + 8


def test_a_write_without_a_column_has_null_and_an_update_leaves_it() -> None:
    schema = schema_of("int64", "utf8", "utf8")
    for is_update, lacking in ((False, None), (True, ABSENT)):
        ((_, body),) = encode_rows(schema, [{"c0": 1, "c1": "x"}], "rows", is_update=is_update)
        assert schema.form.values(bytes(8) + body) == ["x", lacking]


def test_a_prefix_is_a_range_of_keys() -> None:
    schema = schema_of("utf8", "int64", "utf8", keys=2)
    low, high = encode_prefix(schema, {"c0": "a"}, "key")
    assert low < encode_key(schema, {"c0": "a", "c1": 5}, "key") < (high or b"")
    assert not low <= encode_key(schema, {"c0": "ab", "c1": 5}, "key") < (high or b"")
    with pytest.raises(TableError, match="comes before other columns"):
        encode_prefix(schema, {"c1": 5}, "key")


def test_more_rows_than_a_request_may_have_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "ROWS_MAX", 2)
    schema = schema_of("int64", "utf8")
    assert len(encode_rows(schema, [{"c0": 1}, {"c0": 2}], "rows", is_update=False)) == 2
    with pytest.raises(TableError, match="rows has 3 entries") as refused:
        encode_rows(schema, [{"c0": 1}, {"c0": 2}, {"c0": 3}], "rows", is_update=False)
    assert refused.value.code == "TOO_MANY_ROWS"


def test_a_value_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "VALUE_BYTES_MAX", 3)
    schema = schema_of("int64", "utf8")
    with pytest.raises(TableError, match=r"rows\[0\].c1 has 4 bytes"):
        encode_rows(schema, [{"c0": 1, "c1": "éé"}], "rows", is_update=False)


def test_keys_have_a_limit_of_bytes_and_columns() -> None:
    schema = schema_of("utf8", "utf8")
    most = ENCODED_KEY_BYTES_MAX - 3
    assert len(encode_key(schema, {"c0": "a" * most}, "key")) == ENCODED_KEY_BYTES_MAX
    with pytest.raises(TableError, match="too long") as refused:
        encode_key(schema, {"c0": "a" * (most + 1)}, "key")
    assert str(ENCODED_KEY_BYTES_MAX) in refused.value.cure
    with pytest.raises(TableError, match=f"{KEY_COLUMNS_MAX + 1} key columns"):
        schema_of(*["int64"] * (KEY_COLUMNS_MAX + 2), keys=KEY_COLUMNS_MAX + 1)


def test_minus_zero_is_zero_and_nan_is_no_key() -> None:
    schema = schema_of("double", "utf8")
    assert encode_key(schema, {"c0": -0.0}, "key") == encode_key(schema, {"c0": 0.0}, "key")
    with pytest.raises(TableError, match="is no double"):
        encode_key(schema, {"c0": float("nan")}, "key")


HASHED = [
    {"name": "bucket", "type": "uint64", "sort_order": "ascending", "expression": "hash(shop,  id) % 16"},
    {"name": "shop", "type": "utf8", "sort_order": "ascending"},
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "note", "type": "utf8"},
]


def test_a_hash_is_filled_by_the_table_and_the_same_for_the_same_key() -> None:
    schema = read_sorted_schema(HASHED, 100)
    assert schema.documents()[0]["expression"] == "hash(shop, id) % 16"
    rows = [{"shop": "a", "id": number, "note": "x"} for number in range(200)]
    encoded = encode_rows(schema, rows, "rows", is_update=False)
    buckets = [schema.decode_key(row.key)[0] for row in encoded]
    assert set(buckets) == set(range(16)), "it spreads"
    expected = crc32c(key_encoder(["utf8"])(["a"]) + key_encoder(["int64"])([7])) % 16
    assert buckets[7] == expected
    assert encode_key(schema, {"shop": "a", "id": 7}, "key") == encoded[7].key
    low, high = encode_prefix(schema, {"shop": "a", "id": 7}, "key")
    assert low <= encoded[7].key < (high or b"")
    assert encode_prefix(schema, {"bucket": 5}, "key")[0] < encode_prefix(schema, {"bucket": 6}, "key")[0]


def test_a_hash_is_not_given_and_found_by_all_its_columns_alone() -> None:
    schema = read_sorted_schema(HASHED, 100)
    with pytest.raises(TableError, match="gives the column bucket"):
        encode_rows(schema, [{"bucket": 1, "shop": "a", "id": 1}], "rows", is_update=False)
    with pytest.raises(TableError, match="'bucket', which the table fills"):
        encode_key(schema, {"bucket": 1, "shop": "a", "id": 1}, "key")
    with pytest.raises(TableError, match="has no bucket"):
        encode_prefix(schema, {"shop": "a"}, "key")


@pytest.mark.parametrize(
    ("column", "part"),
    [
        ({"expression": "farm_hash(shop)"}, "expression of column 'bucket' is 'farm_hash"),
        ({"expression": "hash(shop) % 0"}, "from 1 to"),
        ({"expression": "hash(shop, shop) % 2"}, "once"),
        ({"expression": "hash(note) % 2"}, "'note', which is no key column"),
        ({"expression": "hash(bucket) % 2"}, "'bucket', which is no key column"),
        ({"expression": "hash(shop) % 1000", "type": "uint8"}, "does not hold"),
        ({"expression": "hash(shop) % 2", "type": "utf8"}, "does not hold"),
        ({"expression": 5}, "is '5'"),
    ],
)  # fmt: skip
def test_an_expression_that_cannot_be_is_refused(column: dict[str, Any], part: str) -> None:
    with pytest.raises(TableError) as refused:
        read_sorted_schema([{**HASHED[0], **column}, *HASHED[1:]], 100)
    assert refused.value.code == "INVALID_SCHEMA"
    assert part in f"{refused.value.message} {refused.value.cure}"


def test_an_expression_is_of_a_key_column() -> None:
    with pytest.raises(TableError, match="is no part of the key"):
        read_sorted_schema([*HASHED[1:], {"name": "b", "type": "uint64", "expression": "hash(shop) % 2"}], 100)
