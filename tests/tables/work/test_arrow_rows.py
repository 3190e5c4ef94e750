"""Rows in Arrow as record batches: what `encode_row` makes of the same values, and what is refused."""

import io
import json
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pqbroker.protocol.produced_batches import check_produced
from pqbroker.protocol.records import Record, decode_records, encode_batch
from pqbroker.tables.refusals import TableError
from pqbroker.tables.rows import decode_row, encode_row
from pqbroker.tables.schema import Schema, read_schema
from pqbroker.tables.types import TIMESTAMP_END, TYPES
from pqbroker.tables.work.arrow_rows import EncodedStream, encode_stream

NOW_MS = 1_700_000_000_000
MIB = 1 << 20
END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
ARROW_TYPES: Mapping[str, Any] = {
    **{name: getattr(pa, name)() for name, kind in TYPES.items() if kind.bounds},
    "double": pa.float64(), "boolean": pa.bool_(), "string": pa.binary(), "utf8": pa.string(),
    "any": pa.json_(), "timestamp": pa.timestamp("us", "UTC"),
}  # fmt: skip
TEXT = st.text(st.characters(codec="utf-8"))
VALUES: Mapping[str, st.SearchStrategy[Any]] = {
    **{name: st.integers(*kind.bounds) for name, kind in TYPES.items() if kind.bounds},
    "double": st.floats(allow_nan=False, allow_infinity=False), "boolean": st.booleans(),
    "string": st.binary(), "utf8": TEXT,
    "any": st.sampled_from(['{"a": [1, 2.5, null]}', '"text"', "[]", "0", "true", '{"\\u00e4": "\\"" }']),
    "timestamp": st.integers(0, TIMESTAMP_END - 1),
}  # fmt: skip
KEYS = frozenset(("utf8", "int8"))
SCHEMA = read_schema(
    [{"name": name, "type": name, "from": "key" if name in KEYS else "value"} for name in TYPES], 100
)  # fmt: skip


def test_every_type_has_values() -> None:
    assert VALUES.keys() == ARROW_TYPES.keys() == TYPES.keys()


def stream(table: Any, options: Any = None) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write(table)
    return sink.getvalue()


def encode(schema: Schema, bytes_max: int = MIB, /, **columns: Any) -> EncodedStream:
    return encode_stream(schema, stream(pa.table(columns)), NOW_MS, bytes_max)


def values(encoded: EncodedStream) -> list[bytes | None]:
    (tablet,) = encoded.batches
    return [record.value for record in decode_records(tablet.batch)]


def refusal(schema: Schema, bytes_max: int = MIB, /, **columns: Any) -> tuple[str, str, str]:
    with pytest.raises(TableError) as refused:
        encode(schema, bytes_max, **columns)
    return refused.value.code, refused.value.message, refused.value.cure


def one(type_name: str, *, required: bool = False) -> Schema:
    return read_schema([{"name": "c", "type": type_name, "required": required}], 10)


def tablets(*indexes: Any) -> dict[str, Any]:
    return {"$tablet_index": indexes}


def as_json(name: str, value: Any) -> Any:
    """A value of an Arrow column as JSON gives it."""
    if value is None or name not in ("string", "any"):
        return value
    return json.loads(value) if name == "any" else {"base64": b64encode(value).decode()}


@given(st.lists(st.fixed_dictionaries({name: st.none() | kind for name, kind in VALUES.items()}), min_size=1))
def test_rows_become_the_records_that_the_same_rows_in_json_become(rows: list[dict[str, Any]]) -> None:
    table = pa.table({name: pa.array([row[name] for row in rows], ARROW_TYPES[name]) for name in TYPES})
    encoded = encode_stream(SCHEMA, stream(table), NOW_MS, MIB)
    expected = [encode_row(SCHEMA, {name: as_json(name, row[name]) for name in row}, "row") for row in rows]
    assert encoded.weight == sum(row.weight for row in expected)
    (tablet,) = encoded.batches
    assert (tablet.tablet_index, tablet.row_count) == (None, len(rows))
    check_produced(memoryview(bytearray(tablet.batch)), MIB)
    for record, row in zip(decode_records(tablet.batch), expected, strict=True):
        assert record.timestamp == NOW_MS
        read = decode_row(SCHEMA, record.key, record.value)
        assert read == decode_row(SCHEMA, row.key, row.value)
        assert repr(read["double"]) == repr(decode_row(SCHEMA, row.key, row.value)["double"])


def test_a_batch_is_byte_for_byte_ours() -> None:
    schema = one("utf8")
    (tablet,) = encode(schema, c=["a", "ä\n", None]).batches
    texts = ('{"c":"a"}', '{"c":"ä\\n"}', "{}")
    assert tablet.batch == encode_batch([Record(0, NOW_MS, None, text.encode(), ()) for text in texts])


@pytest.mark.parametrize(
    ("type_name", "column", "texts"),
    [
        ("int8", pa.array([-128, 127], pa.int64()), ["-128", "127"]),
        ("uint64", pa.array([2**64 - 1], pa.uint64()), ["18446744073709551615"]),
        ("int64", pa.array([5, 6], pa.uint8()).dictionary_encode(), ["5", "6"]),
        ("int64", pa.nulls(1), [None]),
        ("double", pa.array([1, 2], pa.int32()), ["1", "2"]),
        ("double", pa.array([-0.0, 0.1, 1e300]), ["-0.0", "0.1", "1e+300"]),
        ("utf8", pa.array(["a"], pa.large_string()), ['"a"']),
        ("utf8", pa.array(["a", "b", "a"]).dictionary_encode(), ['"a"', '"b"', '"a"']),
        ("utf8", pa.array(["a"], pa.string_view()), ['"a"']),
        ("string", pa.array(["a\x00\x7f"]), ['"a\\u0000\x7f"']),
        ("string", pa.array([b"ab", b"cd"], pa.binary(2)), ['"ab"', '"cd"']),
        ("string", pa.array([b"ab", b"\xff\x00"], pa.large_binary()), ['"ab"', '{"base64":"/wA="}']),
        ("any", pa.array([{"a": [1], "b": "x"}, None]), ['{"a":[1],"b":"x"}', None]),
        ("any", pa.array(["text"]), ['"text"']),
        ("any", pa.array(['{"a" : 1}', "null"], pa.json_()), ['{"a":1}', None]),
        ("timestamp", pa.array([7], pa.int64()), ["7"]),
        ("timestamp", pa.array([7], pa.timestamp("s")), ["7000000"]),
        ("timestamp", pa.array([7], pa.timestamp("ms", "Europe/Paris")), ["7000"]),
        ("timestamp", pa.array([7999], pa.timestamp("ns")), ["7"]),
        ("timestamp", pa.array([datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=1)]), ["86400000000"]),
    ],
)
def test_a_column_takes_arrow_types_that_hold_its_values(type_name: str, column: Any, texts: list[str | None]) -> None:
    expected = [b"{}" if text is None else f'{{"c":{text}}}'.encode() for text in texts]
    assert values(encode(one(type_name), c=column)) == expected


@pytest.mark.parametrize(
    ("type_name", "column"),
    [
        ("int8", pa.array([1.0])), ("int8", pa.array(["1"])), ("int8", pa.array([True])), ("utf8", pa.array([b"a"])),
        ("double", pa.array(["1"])), ("boolean", pa.array([1])), ("string", pa.array([1])), ("utf8", pa.array([1])),
        ("timestamp", pa.array([1.0])), ("timestamp", pa.array([1], pa.date32())), ("utf8", pa.array([["a"]])),
    ],
)  # fmt: skip
def test_a_column_of_another_arrow_type_is_refused_by_name(type_name: str, column: Any) -> None:
    code, message, cure = refusal(one(type_name), c=column)
    assert (code, message) == (
        "INVALID_ROW", f"column 'c' has the Arrow type {column.type}, which is no {type_name}",
    )  # fmt: skip
    assert cure


@pytest.mark.parametrize(
    ("type_name", "column"),
    [
        ("int8", pa.array([1, None, 128])), ("int8", pa.array([1, None, -129])), ("uint8", pa.array([1, 2, -1])),
        ("int64", pa.array([1, 2, 2**63], pa.uint64())), ("double", pa.array([1.0, None, float("nan")])),
        ("double", pa.array([1.0, 2.0, float("inf")])), ("timestamp", pa.array([1, 2, TIMESTAMP_END])),
        ("timestamp", pa.array([1, 2, -1], pa.timestamp("s"))), ("any", pa.array(["1", "2", "{"], pa.json_())),
        ("timestamp", pa.array([1, 2, 2**62], pa.timestamp("s"))), ("any", pa.array([1.0, 2.0, float("nan")])),
        ("any", pa.array(["1", "2", '"\\ud800"'], pa.json_())), ("any", pa.array(["1", "2", "NaN"], pa.json_())),
    ],
)  # fmt: skip
def test_a_value_that_does_not_fit_is_refused_by_row_and_column(type_name: str, column: Any) -> None:
    code, message, cure = refusal(one(type_name), c=column)
    assert (code, message) == ("INVALID_ROW", f"rows[2].c is no {type_name}")
    assert cure


def test_a_required_value_that_lacks_is_refused_by_row() -> None:
    assert refusal(one("int8", required=True), c=[1, None])[:2] == ("INVALID_ROW", "rows[1].c is missing, or null")
    schema = read_schema([{"name": "c", "type": "int8", "required": True}, {"name": "d", "type": "int8"}], 10)
    assert refusal(schema, d=[1])[:2] == ("INVALID_ROW", "rows[0].c is missing, or null")


def test_columns_are_known_and_there_once() -> None:
    assert refusal(one("int8"), d=[1])[1] == "the stream has the unknown column 'd'"
    table = pa.table([pa.array([1]), pa.array([2])], names=["c", "c"])
    with pytest.raises(TableError, match="has the column 'c' twice"):
        encode_stream(one("int8"), stream(table), NOW_MS, MIB)


def test_rows_are_parted_by_the_tablets_they_name() -> None:
    encoded = encode(one("int8"), c=[1, 2, 3, 4], **tablets(1, 0, 1, None))
    found = {one.tablet_index: [each.value for each in decode_records(one.batch)] for one in encoded.batches}
    assert found == {1: [b'{"c":1}', b'{"c":3}'], 0: [b'{"c":2}'], None: [b'{"c":4}']}
    assert [one.row_count for one in encoded.batches] == [2, 1, 1]
    assert refusal(one("int8"), c=[1], **tablets("0"))[0] == "INVALID_ROW"
    assert refusal(one("int8"), c=[1] * 101, **tablets(*range(101)))[0] == "SEVERAL_TABLETS"


def test_more_than_a_record_batch_may_hold_is_refused() -> None:
    assert refusal(one("int8"), 1000, c=[1] * 143)[0] == "ROWS_TOO_LARGE"
    assert refusal(one("utf8"), 1000, c=["x" * 1000])[0] == "ROWS_TOO_LARGE"
    assert refusal(one("int8"), 1000, c=[1] * 68)[0] == "ROWS_TOO_LARGE"
    assert len(values(encode(one("int8"), 1000, c=[1] * 50))) == 50


def test_rows_without_content_are_counted_while_they_are_read() -> None:
    """A null column of any length takes no bytes in a stream. What follows it here is no stream any more."""
    whole = stream(pa.table({"c": pa.nulls(200_000)}))
    with pytest.raises(TableError, match="larger as records"):
        encode_stream(one("int8"), whole[: -len(END_OF_STREAM)] + b"no batch", NOW_MS, MIB)


def test_a_stream_of_several_batches_is_read_as_a_whole() -> None:
    table = pa.concat_tables([pa.table({"c": [1, 2]}), pa.table({"c": [3]})])
    assert values(encode_stream(one("int8"), stream(table), NOW_MS, MIB)) == [b'{"c":1}', b'{"c":2}', b'{"c":3}']
    packed = stream(table, pa.ipc.IpcWriteOptions(compression="zstd"))
    assert len(values(encode_stream(one("int8"), packed, NOW_MS, MIB))) == 3


@pytest.mark.parametrize("data", [b"", b"{}", b"ARROW1\0\0", b"\xff\xff\xff\xff\0\0\0\1"])
def test_what_is_no_stream_is_refused(data: bytes) -> None:
    with pytest.raises(TableError) as refused:
        encode_stream(one("int8"), data, NOW_MS, MIB)
    assert refused.value.code in ("INVALID_STREAM", "INVALID_ROW")


@given(st.data())
def test_a_damaged_stream_is_refused_or_read(data: st.DataObject) -> None:
    whole = bytearray(stream(pa.table({"c": ["a", "bb", "ccc"]})))
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= data.draw(st.integers(1, 255))
    with suppress(TableError):
        encode_stream(one("utf8"), bytes(whole), NOW_MS, MIB)


def test_a_columns_name_that_is_no_utf8_is_refused() -> None:
    whole = stream(pa.table({"columns_name": ["a"]})).replace(b"columns_name", b"columns_nam\xe3")
    with pytest.raises(TableError) as refused:
        encode_stream(one("utf8"), whole, NOW_MS, MIB)
    assert refused.value.code == "INVALID_STREAM"


def test_no_rows_are_refused() -> None:
    assert refusal(one("int8"), c=pa.array([], pa.int8()))[:2] == ("INVALID_ROW", "the stream has no rows")
