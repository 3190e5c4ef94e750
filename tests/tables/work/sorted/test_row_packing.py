"""Rows in Arrow become the keys and bodies that the same rows in JSON become, and are refused for the same reasons."""

import io
import json
import random
from contextlib import nullcontext
from datetime import UTC, datetime
from itertools import chain
from typing import Any

import pyarrow
import pyarrow.ipc
import pytest

from pqbroker.tables.refusals import TableError
from pqbroker.tables.sorted import rows as rows_module
from pqbroker.tables.sorted.packed_rows import RowForm
from pqbroker.tables.sorted.rows import ROWS_MAX, encode_rows
from pqbroker.tables.sorted.schema import SortedSchema, read_sorted_schema
from pqbroker.tables.types import bytes_of
from pqbroker.tables.work.sorted import row_packing
from pqbroker.tables.work.sorted.row_packing import PackedStream, pack_stream
from pqbroker.tables.work.typed import ARROW_TYPES
from tests.support.depth import examples

VALUES: dict[str, list[Any]] = {
    "int8": [-128, -1, 0, 127], "int64": [-(1 << 63), -1, 0, 5, (1 << 63) - 1],
    "uint16": [0, 1, 65535], "uint64": [0, 255, (1 << 64) - 1],
    "double": [-1e300, -0.0, 0.0, 0.1, 5e-324], "boolean": [False, True],
    "string": ["", "a", "a\0b", "\0\0", {"base64": "/wD/"}], "utf8": ["", "é", "\0", "a\0", "x" * 300],
    "timestamp": [0, 1, 1_700_000_000_123_456], "any": [{"a": [1, None]}, "text", 5, [], True],
}  # fmt: skip
"""Values of columns by type, as JSON has them."""
SCHEMA = read_sorted_schema(
    [
        {"name": "shop", "type": "utf8", "sort_order": "ascending"},
        {"name": "id", "type": "int64", "sort_order": "ascending", "required": True},
        {"name": "note", "type": "utf8"}, {"name": "count", "type": "int32"}, {"name": "more", "type": "any"},
        {"name": "at", "type": "timestamp"}, {"name": "x", "type": "double"},
    ], 100,
)  # fmt: skip


def stream(batch: Any, *others: Any) -> bytes:
    sink = io.BytesIO()
    with pyarrow.ipc.new_stream(sink, batch.schema) as writer:
        for each in (batch, *others):
            writer.write(each)
    return sink.getvalue()


def as_pairs(packed: PackedStream) -> list[tuple[bytes, bytes]]:
    return list(zip(packed.keys.to_pylist(), packed.bodies.to_pylist(), strict=True))


def arrow_column(kind: str, values: list[Any]) -> Any:
    if kind == "string":
        return pyarrow.array([None if value is None else bytes_of(value) for value in values], pyarrow.binary())
    if kind == "any":
        texts = [None if value is None else json.dumps(value) for value in values]
        return pyarrow.ExtensionArray.from_storage(ARROW_TYPES["any"], pyarrow.array(texts, pyarrow.string()))
    return pyarrow.array(values, ARROW_TYPES[kind] if kind != "timestamp" else pyarrow.timestamp("us"))


@pytest.mark.parametrize("seed", range(examples(120, least=30)))
def test_rows_are_packed_as_those_in_json_and_refused_above_the_same_size(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(seed)
    kinds = [kind for kind in VALUES if kind != "any"]
    key_count = dice.randrange(1, 4)
    keys = [{"name": f"k{n}", "type": dice.choice(kinds), "sort_order": "ascending"} for n in range(key_count)]
    values = [{"name": f"v{n}", "type": dice.choice([*VALUES])} for n in range(dice.randrange(1, 12))]
    schema = read_sorted_schema([*keys, *values], 100)
    is_update = dice.random() < 0.5
    left_out = {column["name"] for column in (*keys, *values) if dice.random() < 0.2}
    names = [column["name"] for column in (*keys, *values) if column["name"] not in left_out]
    if not names:
        names, left_out = [keys[0]["name"]], left_out - {keys[0]["name"]}
    rows: dict[bytes, dict[str, Any]] = {}
    for _ in range(dice.randrange(1, 40)):
        row = {name: dice.choice([None, *VALUES[schema.columns[name].type.name]]) for name in names}
        rows[encode_rows(schema, [row], "rows", is_update=is_update)[0].key] = row
    known = [*rows.values()]
    batch = pyarrow.RecordBatch.from_arrays(
        [arrow_column(schema.columns[name].type.name, [row[name] for row in known]) for name in names], names=names
    )
    found = pack_stream(schema, stream(batch), is_update=is_update)
    assert as_pairs(found) == [(*row,) for row in encode_rows(schema, known, "rows", is_update=is_update)]
    for excess in (0, 1):
        monkeypatch.setattr(rows_module, "ROWS_BYTES_MAX", sum(map(len, chain(*as_pairs(found)))) - excess)
        with pytest.raises(TableError, match="become more than") if excess else nullcontext():
            encode_rows(schema, known, "rows", is_update=is_update)
        with pytest.raises(TableError, match="become more than") if excess else nullcontext():
            pack_stream(schema, stream(batch), is_update=is_update)
    monkeypatch.undo()
    payload = found.payload()
    lengths = memoryview(payload[: 8 * len(known)]).cast("I")
    assert payload[8 * len(known) :] == b"".join(found.keys.to_pylist()) + b"".join(found.bodies.to_pylist())
    assert [*lengths] == [len(each) for array in found for each in array.to_pylist()]


def packed(columns: dict[str, Any], schema: SortedSchema = SCHEMA, *, is_update: bool = False) -> Any:
    return pack_stream(schema, stream(pyarrow.record_batch(columns)), is_update=is_update)


def unpacked(found: Any) -> list[list[Any]]:
    form = RowForm([column.type.name for column in SCHEMA.values])
    return [form.values(bytes(8) + body) for body in found.bodies.to_pylist()]


@pytest.mark.parametrize("kind", ["int8", "uint32", "int64", "uint64"])
def test_a_column_that_the_table_fills_is_filled_as_for_rows_in_json(kind: str) -> None:
    schema = read_sorted_schema(
        [
            {"name": "spread", "type": kind, "sort_order": "ascending", "expression": "hash(id, shop) % 100"},
            {"name": "shop", "type": "utf8", "sort_order": "ascending"},
            {"name": "id", "type": "int64", "sort_order": "ascending"}, {"name": "note", "type": "utf8"},
        ], 100,
    )  # fmt: skip
    rows = [{"shop": shop, "id": number, "note": "x"} for shop in ("", "a\0", None) for number in (-5, 0, 7, None)]
    batch = pyarrow.RecordBatch.from_pylist(rows)
    found = pack_stream(schema, stream(batch), is_update=False)
    assert as_pairs(found) == [(*row,) for row in encode_rows(schema, rows, "rows", is_update=False)]
    with pytest.raises(TableError, match="the stream gives the column 'spread'"):
        packed({"spread": pyarrow.array([1]), "shop": pyarrow.array(["a"])}, schema)


def test_other_arrow_types_of_the_same_values_are_taken() -> None:
    moment = datetime(2020, 1, 1, tzinfo=UTC)
    found = packed(
        {
            "shop": pyarrow.array(["a", "b", "a"]).dictionary_encode(), "id": pyarrow.array([1, 2, 3], pyarrow.uint8()),
            "note": pyarrow.array(["x", None, "y"], pyarrow.large_string()),
            "count": pyarrow.array([1, 2, None], pyarrow.int64()), "more": pyarrow.array([[1], None, []]),
            "at": pyarrow.array([moment] * 3, pyarrow.timestamp("ns", "UTC")), "x": pyarrow.array([1, 2, 3]),
        }
    )  # fmt: skip
    at = int(moment.timestamp()) * 1_000_000
    assert unpacked(found) == [["x", 1, "[1]", at, 1.0], [None, 2, None, at, 2.0], ["y", None, "[]", at, 3.0]]


def test_batches_of_a_stream_are_one_request() -> None:
    batches = [pyarrow.record_batch({"shop": ["a"], "id": [number]}) for number in range(3)]
    found = pack_stream(SCHEMA, stream(*batches), is_update=True)
    assert SCHEMA.decode_key(found.keys[2].as_py()) == ["a", 2]


@pytest.mark.parametrize(
    ("columns", "code", "part"),
    [
        ({"shop": ["a", "b", "a"], "id": [1, 1, 1]}, "INVALID_ROW", "rows[2] has the key of rows[0]"),
        ({"shop": ["a"]}, "INVALID_ROW", "rows[0].id is missing"),
        ({"shop": ["a", "b"], "id": [1, None]}, "INVALID_ROW", "rows[1].id is missing"),
        ({"id": [1], "notes": ["x"]}, "INVALID_ROW", "unknown column 'notes'"),
        ({"id": [1], "$tablet_index": [0]}, "INVALID_ROW", "unknown column '$tablet_index'"),
        ({"id": [1.5]}, "INVALID_ROW", "'id' has the Arrow type double"),
        ({"id": [1], "count": [1 << 40]}, "INVALID_ROW", "rows[0].count is no int32"),
        ({"id": [1], "x": [float("nan")]}, "INVALID_ROW", "rows[0].x is no double"),
        ({"id": [1], "note": [b"x"]}, "INVALID_ROW", "'note' has the Arrow type binary"),
        ({"shop": ["a" * 5000], "id": [1]}, "INVALID_ROW", "rows[0] has a key that is too long"),
        ({"id": pyarrow.array([], pyarrow.int64())}, "INVALID_ROW", "no rows"),
    ],
)  # fmt: skip
def test_what_json_rows_are_refused_for_is_refused_by_row_and_column(columns: Any, code: str, part: str) -> None:
    with pytest.raises(TableError) as refused:
        packed(columns)
    assert refused.value.code == code
    assert part in refused.value.message


def test_large_values_many_rows_and_what_is_no_stream_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_packing, "VALUE_BYTES_MAX", 10)
    with pytest.raises(TableError, match=r"rows\[1\]\.note has 11 bytes"):
        packed({"id": [1, 2], "note": ["x" * 10, "x" * 11]})
    numbers = pyarrow.record_batch({"id": list(range(ROWS_MAX))})
    assert len(pack_stream(SCHEMA, stream(numbers), is_update=False).keys) == ROWS_MAX
    with pytest.raises(TableError) as refused:
        pack_stream(SCHEMA, stream(numbers, numbers.slice(0, 1)), is_update=False)
    assert refused.value.code == "TOO_MANY_ROWS"
    with pytest.raises(TableError) as refused:
        pack_stream(SCHEMA, b"no stream", is_update=False)
    assert refused.value.code == "INVALID_STREAM"
