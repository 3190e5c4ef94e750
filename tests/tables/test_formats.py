"""Values and keys in Avro and raw: what is written is read, by other libraries too; what is refused."""

import io
import json
import struct
import tracemalloc
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pqbroker.tables.avro_schema import AVRO_CHARACTERS_MAX, AVRO_DEPTH_MAX, AVRO_TYPES_MAX, derive, read_avro_schema
from pqbroker.tables.refusals import TableError
from pqbroker.tables.row_checks import RowCheck
from pqbroker.tables.rows import ERROR, decode_row, encode_row, read_row
from pqbroker.tables.schema import Schema, read_schema
from pqbroker.tables.types import TIMESTAMP_END, TYPES

AVRO = {"value.format": "avro"}
COLUMNS = [{"name": f"c_{name}", "type": name, "required": name == "int64"} for name in TYPES]
ALL = read_schema(COLUMNS, 100, AVRO)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
JSON = st.recursive(
    st.one_of(st.booleans(), st.integers(-(1 << 70), 1 << 70), TEXTS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
BASE64 = st.just({"base64": "/w=="})
VALUES = {
    **{f"c_{name}": st.integers(*each.bounds) for name, each in TYPES.items() if each.bounds},
    "c_double": st.floats(allow_nan=False, allow_infinity=False),
    "c_boolean": st.booleans(),
    "c_string": TEXTS | BASE64,
    "c_utf8": TEXTS,
    "c_any": JSON,
    "c_timestamp": st.integers(0, TIMESTAMP_END - 1),
}
ROWS = st.fixed_dictionaries({"c_int64": VALUES.pop("c_int64")}, optional=VALUES)


def with_schema(fields: list[Any], columns: list[dict[str, Any]], **more: Any) -> Schema:
    text = json.dumps({"type": "record", "name": "a.b.R", "fields": fields, **more})
    return read_schema(columns, 100, {**AVRO, "value.avro.schema": text})


def refusal(fields: Any, columns: list[dict[str, Any]] | None = None, **more: Any) -> str:
    with pytest.raises(TableError) as refused:
        with_schema(fields, columns or [{"name": "x", "type": "any"}], **more)
    assert refused.value.code == "INVALID_SCHEMA"
    return refused.value.message


def written(schema: Schema, row: dict[str, Any]) -> bytes | None:
    return encode_row(schema, row, "row").value


def is_datum(schema: Schema, value: bytes) -> bool:
    """Whether these bytes are one record as they are."""
    source = io.BytesIO(value)
    try:
        fastavro.schemaless_reader(source, json.loads(schema.format_configs["value.avro.schema"]), None)
    except (EOFError, IndexError, ValueError):
        return False
    return source.tell() == len(value)


@given(ROWS)
def test_a_row_is_read_as_it_was_written_in_avro(row: dict[str, Any]) -> None:
    encoded = encode_row(ALL, row, "row")
    shown, weight = read_row(ALL, None, encoded.value)
    assert shown == {**dict.fromkeys(ALL.shown), **row}
    assert weight == encoded.weight
    assert list(RowCheck(ALL).weights([(None, encoded.value)])) == [weight]
    assert encoded.value is not None
    framed = b"\0\0\0\1\2" + encoded.value
    assert is_datum(ALL, framed) or decode_row(ALL, None, framed) == shown


@pytest.mark.parametrize("end", [0, 1])
def test_the_least_and_the_greatest_integers_are_written(end: int) -> None:
    row = {f"c_{name}": each.bounds[end] for name, each in TYPES.items() if each.bounds}
    assert decode_row(ALL, None, written(ALL, row)) == {**dict.fromkeys(ALL.shown), **row}


def test_only_a_registrys_bytes_may_stand_before_a_datum() -> None:
    value = written(ALL, {"c_int64": 7}) or b""
    assert decode_row(ALL, None, b"\0\0\0\1\2" + value)["c_int64"] == 7
    for wrong in (b"\1\0\0\1\2" + value, b"\0\0\0\1" + value, b"\0\0\0\1\2" + value + b"\0", value + b"\0"):
        assert ERROR in decode_row(ALL, None, wrong)


@given(ROWS)
def test_any_avro_library_reads_it_by_the_schema_that_columns_make(row: dict[str, Any]) -> None:
    value = written(ALL, row)
    assert value is not None
    made = fastavro.parse_schema(json.loads(ALL.format_configs["value.avro.schema"]))
    read: Any = fastavro.schemaless_reader(io.BytesIO(value), made, None)
    assert read["c_int64"] == row["c_int64"]
    assert read["c_utf8"] == row.get("c_utf8")
    assert read["c_uint64"] == row.get("c_uint64")
    assert (read["c_timestamp"] is None) == ("c_timestamp" not in row)
    assert json.loads(read["c_any"] or "null") == row.get("c_any")


@given(st.binary(max_size=40))
def test_whatever_a_client_sends_is_a_row_or_says_why_not(value: bytes) -> None:
    row = decode_row(ALL, None, value)
    if ERROR in row:
        assert row[ERROR] == "the value is no Avro of value.avro.schema" or row[ERROR].startswith("c_")
    assert (RowCheck(ALL).errors([(None, value)], 1) == {}) == (ERROR not in row)


@pytest.mark.parametrize(
    ("column", "field", "stored", "shown"),
    [
        ("timestamp", {"type": "long", "logicalType": "timestamp-millis"}, 5, 5000),
        ("timestamp", {"type": "long", "logicalType": "local-timestamp-micros"}, 5, 5),
        ("timestamp", {"type": "long", "logicalType": "timestamp-nanos"}, 5000, 5),
        ("timestamp", "long", 5, 5),
        ("uint8", ["null", "int"], 255, 255),
        ("string", {"type": "fixed", "name": "F", "size": 2}, b"\xff\x00", {"base64": "/wA="}),
        ("string", "string", "ab", "ab"),
        ("utf8", {"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
        ("double", "float", 0.5, 0.5),
        ("any", {"type": "array", "items": "bytes"}, [b"a", b"\xff"], ["a", {"base64": "/w=="}]),
        ("any", {"type": "map", "values": "long"}, {"k": 7}, {"k": 7}),
        ("any", ["null", "string", "long"], 7, 7),
    ],
)
def test_a_schema_of_ones_own_has_fields_of_many_kinds(column: str, field: Any, stored: Any, shown: Any) -> None:
    fields = [{"name": "before", "type": ["null", "string"], "default": None}, {"name": "x", "type": field}]
    schema = with_schema(fields, [{"name": "x", "type": column}])
    plain = {**field} if isinstance(field, dict) else field
    if isinstance(plain, dict):
        plain.pop("logicalType", None)
    parsed = fastavro.parse_schema(
        {"type": "record", "name": "R", "fields": [fields[0], {"name": "x", "type": plain}]}
    )
    content = io.BytesIO()
    fastavro.schemaless_writer(content, parsed, {"before": "unseen", "x": stored})
    assert decode_row(schema, None, content.getvalue()) == {"x": shown}
    if column != "any" or not isinstance(field, dict) or field["type"] != "array":
        assert decode_row(schema, None, written(schema, {"x": shown})) == {"x": shown}


def test_a_column_without_a_field_is_null_and_one_that_is_required_is_refused() -> None:
    fields = [{"name": "x", "type": "long"}]
    columns = [{"name": "x", "type": "int64"}, {"name": "y", "type": "int64"}]
    schema = with_schema(fields, columns)
    assert decode_row(schema, None, written(schema, {"x": 1})) == {"x": 1, "y": None}
    with pytest.raises(TableError, match="no field y"):
        written(schema, {"x": 1, "y": 2})
    required: list[dict[str, Any]] = [columns[0], {**columns[1], "required": True}]
    assert "has no field 'y', and the column is required" in refusal(fields, required)


@pytest.mark.parametrize(
    ("column", "field", "row", "words"),
    [
        ("int64", "int", {"x": 1 << 31}, "32 bits"),
        ("int64", "long", {}, "no value"),
        ("string", "string", {"x": {"base64": "/w=="}}, "no UTF-8"),
        ("string", {"type": "fixed", "name": "F", "size": 2}, {"x": "a"}, "1 bytes are given"),
        ("utf8", {"type": "enum", "name": "E", "symbols": ["A"]}, {"x": "Z"}, "'Z'"),
        ("uint64", {"type": "fixed", "name": "F", "size": 1, "logicalType": "decimal"}, {"x": 1 << 40}, "too big"),
        ("any", {"type": "map", "values": "long"}, {"x": {"k": "no"}}, "integer"),
        ("any", {"type": "array", "items": "long"}, {"x": 7}, ""),
    ],
)
def test_a_row_that_does_not_fit_names_the_row_and_the_config(column: str, field: Any, row: Any, words: str) -> None:
    schema = with_schema([{"name": "x", "type": field}], [{"name": "x", "type": column}])
    with pytest.raises(TableError) as refused:
        written(schema, row)
    assert refused.value.code == "INVALID_ROW"
    assert refused.value.message.startswith("row: it does not fit value.avro.schema: ")
    assert words in refused.value.message


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ({"type": "array", "items": "null"}, "too few bytes"),
        ({"type": "array", "items": {"type": "record", "name": "E", "fields": []}}, "too few bytes"),
        ({"type": "array", "items": {"type": "record", "name": "E", "fields": [
            {"name": "nulls", "type": {"type": "array", "items": "null"}}]}}, "too few bytes"),
        ("R", "R, which it is part of"),
        (["null", {"type": "array", "items": "a.b.R"}], "which it is part of"),
        ("nothing", "unknown type 'nothing'"),
        (["null"] * 3 + [7], "is no type"),
        ([], "union of nothing"),
        ({"type": "fixed", "name": "F", "size": 1 << 40}, "no size"),
        ({"type": "fixed", "name": "F", "size": 0}, "no size"),
        ({"type": "enum", "name": "F", "symbols": []}, "symbols"),
        ({"type": "enum", "name": "a b", "symbols": ["A"]}, "name"),
        ({"type": "record", "name": "long", "namespace": "", "fields": []}, "another type"),
        ({"type": "record", "name": "F", "fields": 7}, "no array"),
        ({"type": "record", "name": "F", "fields": [7]}, "no name"),
        ({"type": "record", "name": "F", "fields": [{"name": "a", "type": "int", "default": "no"}]}, "Default"),
    ],
)  # fmt: skip
def test_a_schema_that_cannot_be_is_refused_by_place(field: Any, words: str) -> None:
    message = refusal([{"name": "x", "type": field}])
    assert any(word in message for word in words.split("|")), message
    assert message.startswith("value.avro.schema")


def test_a_schema_has_a_limit_of_characters() -> None:
    fields = [{"name": f"f{number}", "type": ["null", "long"]} for number in range(AVRO_CHARACTERS_MAX // 50)]
    assert with_schema(fields, [{"name": "f7", "type": "int64"}])
    message = refusal(fields * 2)
    assert message.startswith("value.avro.schema has ")
    assert f"{AVRO_CHARACTERS_MAX} are the most" in message


def test_a_schema_is_not_deep_however_it_names_its_types() -> None:
    deep: Any = "long"
    for _ in range(AVRO_DEPTH_MAX):
        deep = {"type": "array", "items": deep}
    assert f"deeper than {AVRO_DEPTH_MAX}" in refusal([{"name": "x", "type": deep}])
    chain = [{"name": "f0", "type": {"type": "record", "name": "T0", "fields": [{"name": "n", "type": "int"}]}}]
    for number in range(1, AVRO_DEPTH_MAX):
        inner = {"type": "record", "name": f"T{number}", "fields": [{"name": "n", "type": f"T{number - 1}"}]}
        chain.append({"name": f"f{number}", "type": inner})
    assert f"deeper than {AVRO_DEPTH_MAX}" in refusal(chain)


def test_a_small_schema_does_not_make_a_large_datum() -> None:
    laughs: list[Any] = [{"name": "f0", "type": {"type": "record", "name": "T0", "fields": []}}]
    for number in range(1, 20):
        names = [{"name": name, "type": f"T{number - 1}"} for name in "abcd"]
        laughs.append({"name": f"f{number}", "type": {"type": "record", "name": f"T{number}", "fields": names}})
    assert f"more than {AVRO_TYPES_MAX} types" in refusal(laughs)
    thin: Any = "long"
    for number in range(2):
        thin = {"type": "record", "name": f"T{number}", "fields": [{"name": "n", "type": thin}]}
    assert "too few bytes" in refusal([{"name": "x", "type": {"type": "array", "items": thin}}])
    assert with_schema([{"name": "x", "type": thin}], [{"name": "x", "type": "any"}])


@pytest.mark.parametrize("text", ["", "7", "[]", '"long"', '{"type": "map", "values": "long"}', "[" * 30_000])
def test_a_schema_is_a_record(text: str) -> None:
    with pytest.raises(TableError, match=r"no JSON|no record"):
        read_avro_schema(text, "key.avro.schema")


@pytest.mark.parametrize(
    "item",
    [
        {"type": "record", "name": "I", "fields": [{"name": "a", "type": "boolean"}]},
        {"type": "record", "name": "I", "fields": [{"name": "a", "type": ["null", "long"]}]},
        {"type": "array", "items": "boolean"},
        "string",
        "int",
    ],
)
def test_items_take_so_much_memory_and_no_more(item: Any) -> None:
    schema = with_schema([{"name": "x", "type": {"type": "array", "items": item}}], [{"name": "x", "type": "any"}])
    encoded = b"\xc0\x9a\x0c" + bytes(100_000) + b"\0"  # 100 000 items, of zeros
    assert measured(lambda: decode_row(schema, None, encoded)) < 300 * len(encoded)


def test_what_no_column_has_is_skipped() -> None:
    item = {"type": "record", "name": "I", "fields": [{"name": "a", "type": "boolean"}]}
    fields = [{"name": "x", "type": {"type": "array", "items": item}}, {"name": "y", "type": ["null", "I"]}]
    encoded = b"\xc0\x9a\x0c" + bytes(100_000) + b"\0\2\1"
    schema = with_schema(fields, [{"name": "y", "type": "any"}])
    assert decode_row(schema, None, encoded) == {"y": {"a": True}}
    assert measured(lambda: decode_row(schema, None, encoded)) < 300_000


def measured(do: Any) -> int:
    """Bytes of memory that it took at once."""
    tracemalloc.start()
    try:
        do()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_lengths_that_lie_take_no_memory() -> None:
    schema = with_schema(
        [{"name": "x", "type": {"type": "array", "items": "string"}}, {"name": "b", "type": "bytes"}],
        [{"name": "x", "type": "any"}],
    )
    for count in (b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"):
        for value in (count, count + b"\0\0", b"\0" + count, count * 3):
            assert decode_row(schema, None, value)[ERROR] == "the value is no Avro of value.avro.schema"


def test_names_that_avro_cannot_have_need_a_schema_of_ones_own() -> None:
    with pytest.raises(TableError, match="'a b' has a name that Avro cannot have"):
        read_schema([{"name": "a b", "type": "int64"}], 1, AVRO)


def test_a_raw_part_is_one_columns_bytes() -> None:
    columns = [{"name": "k", "type": "utf8", "from": "key"}, {"name": "v", "type": "string"}]
    schema = read_schema(columns, 2, {"key.format": "raw", "value.format": "raw"})
    for row, stored in (
        ({"k": "é", "v": {"base64": "/w=="}}, ("é".encode(), b"\xff")),
        ({"k": "", "v": "x"}, (b"", b"x")),
        ({"k": None, "v": None}, (None, None)),
    ):
        encoded = encode_row(schema, row, "row")
        assert (encoded.key, encoded.value) == stored
        assert decode_row(schema, *stored) == row
    assert decode_row(schema, b"\xff", b"")[ERROR] == "the key is no UTF-8"


@pytest.mark.parametrize(
    "columns",
    [
        [{"name": "a", "type": "int64"}],
        [{"name": "a", "type": "utf8"}, {"name": "b", "type": "utf8"}],
        [{"name": "a", "type": "utf8", "from": "key"}],
    ],
)
def test_a_raw_part_has_one_column_of_text_or_bytes(columns: Any) -> None:
    with pytest.raises(TableError, match=r"value\.format is raw, and "):
        read_schema(columns, 2, {"value.format": "raw"})


def test_json_and_avro_stand_beside_each_other() -> None:
    columns = [{"name": "k", "type": "int64", "from": "key"}, {"name": "v", "type": "double"}]
    schema = read_schema(columns, 2, {"key.format": "avro"})
    encoded = encode_row(schema, {"k": 3, "v": 0.5}, "row")
    assert (encoded.key, encoded.value) == (b"\x02\x06", b'{"v":0.5}')
    assert struct.pack("<d", 0.5) in (written(read_schema(columns[1:], 1, AVRO), {"v": 0.5}) or b"")
    assert json.loads(derive(list(schema.columns.values())[:1]))["fields"][0]["type"] == ["null", "long"]
