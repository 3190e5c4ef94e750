"""Values of the three formats: what their own libraries write is read, with references and recursion."""

import io
import json
import math
from typing import Any

import fastavro
import pytest
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given
from hypothesis import strategies as st

from pqbroker.registry.avro_values import compile_avro
from pqbroker.registry.json_schemas import compile_json_schema
from pqbroker.registry.limits import DecodingLimits
from pqbroker.registry.protobuf_files import load_files
from pqbroker.registry.protobuf_values import ProtobufReader
from pqbroker.registry.shapes import ShapeKind as Kind
from pqbroker.registry.undecodable import Undecodable

LIMITS = DecodingLimits()
LONGS = st.integers(-(1 << 63), (1 << 63) - 1)
TREE: dict[str, Any] = {
    "type": "record", "name": "Tree", "namespace": "a.b", "fields": [
        {"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]},
        {"name": "ratio", "type": "double"}, {"name": "is_leaf", "type": "boolean"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "scores", "type": {"type": "map", "values": "long"}},
        {"name": "children", "type": {"type": "array", "items": "Tree"}},
    ],
}  # fmt: skip
LEAVES: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "id": LONGS, "note": st.none() | st.text(), "ratio": st.floats(allow_nan=False, allow_infinity=False),
        "is_leaf": st.booleans(), "kind": st.sampled_from("AB"), "scores": st.dictionaries(st.text(), LONGS),
        "children": st.just([]),
    }
)  # fmt: skip
TREES = st.recursive(
    LEAVES, lambda inner: st.tuples(LEAVES, st.lists(inner)).map(lambda two: {**two[0], "children": two[1]}),
    max_leaves=5,
)  # fmt: skip


def avro(schema: Any, value: Any) -> bytes:
    content = io.BytesIO()
    fastavro.schemaless_writer(content, fastavro.parse_schema(schema), value)
    return content.getvalue()


def read_avro(schema: Any, content: bytes, *references: Any) -> Any:
    reader = compile_avro(json.dumps(schema), [json.dumps(each) for each in references], LIMITS)
    return reader.read(memoryview(content), LIMITS)


@given(TREES)
def test_avro_is_read_as_fastavro_writes_it(value: Any) -> None:
    content = avro(TREE, value)
    assert read_avro(TREE, content) == value
    for cut in (content[:-1], content + b"\0"):
        with pytest.raises(Undecodable):
            read_avro(TREE, cut)


@pytest.mark.parametrize(
    ("kind", "stored", "shown"),
    [
        ({"type": "long", "logicalType": "timestamp-millis"}, 1, "1970-01-01T00:00:00.001000Z"),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, -1, "1969-12-31T23:59:59.999999"),
        ({"type": "int", "logicalType": "date"}, 1, "1970-01-02"),
        ({"type": "int", "logicalType": "time-millis"}, 86_399_999, "23:59:59.999000"),
        ({"type": "long", "logicalType": "unknown"}, 5, 5),
        ({"type": {"type": "int", "logicalType": "date"}}, 0, "1970-01-01"),
    ],
)
def test_times_of_avro_are_texts(kind: Any, stored: int, shown: Any) -> None:
    assert read_avro(kind, avro("long", stored)) == shown


def test_bytes_decimals_and_numbers_that_json_has_not() -> None:
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
    assert read_avro(decimal, avro("bytes", b"\xff")) == "-0.01"
    assert read_avro({**decimal, "scale": 0}, avro("bytes", b"\x01\x00")) == "256"
    assert read_avro({"type": "fixed", "name": "F", "size": 2}, b"\0\xff") == "AP8="
    assert read_avro("double", avro("double", math.nan)) == "NaN"
    assert read_avro("float", avro("float", -math.inf)) == "-Infinity"


def test_avro_finds_types_of_references_by_namespace() -> None:
    kind = {"type": "record", "name": "Money", "namespace": "x", "fields": [{"name": "cents", "type": "long"}]}
    schema = {"type": "record", "name": "Sale", "namespace": "x", "fields": [{"name": "sum", "type": "Money"}]}
    assert read_avro(schema, avro("long", 7), kind) == {"sum": {"cents": 7}}
    with pytest.raises(Undecodable, match="the type 'Money' is unknown"):
        read_avro(schema, avro("long", 7))


PROTO = """
syntax = "proto3"; package a.b;
import "google/protobuf/timestamp.proto"; import "google/protobuf/wrappers.proto"; import "other.proto";
message Order {  // comments and options are left aside
  int64 id = 1; optional string name = 2; repeated Item items = 3; map<string, uint64> counts = 4;
  oneof pay { string card = 5; Item cash = 6; } Kind kind = 7; google.protobuf.Timestamp at = 8 [deprecated = true];
  c.Ref ref = 9; bytes raw = 10; google.protobuf.Int32Value wrapped = 11; float ratio = 12;
  message Item { string sku = 1; Order parent = 2; }
  enum Kind { option allow_alias = true; A = 0; B = 1; C = 1; }
}
message Other { sint32 x = 1; message Inner { bool y = 1; } }
"""
REFERENCES = {"other.proto": 'syntax = "proto2"; package c; message Ref { optional int32 z = 1 [default = 5]; }'}


def test_protobuf_is_read_by_the_names_of_the_schema() -> None:
    kind = GetMessageClass(load_files(PROTO, REFERENCES, LIMITS).message_types_by_name["Order"])
    order = kind(id=1 << 60, kind=1, raw=b"\xff", ratio=math.inf)
    order.items.add(sku="s").parent.id = 3
    order.counts["k"] = (1 << 64) - 1
    order.at.seconds, order.at.nanos = 5, 1000
    order.ref.SetInParent()
    order.cash.sku = "c"
    order.wrapped.value = 0
    shown = ProtobufReader(PROTO, REFERENCES, LIMITS).read(memoryview(b"\0" + order.SerializeToString()), LIMITS)
    parent = shown["items"][0].pop("parent")
    assert (parent["id"], parent["items"], parent["name"]) == (3, [], None)
    assert shown == {
        "id": 1 << 60, "name": None, "items": [{"sku": "s"}], "counts": {"k": (1 << 64) - 1}, "card": None,
        "cash": {"sku": "c", "parent": None}, "kind": "B", "at": "1970-01-01T00:00:05.000001Z", "ref": {"z": None},
        "raw": "/w==", "wrapped": 0, "ratio": "Infinity",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("content", "shown"),
    [(b"\x02\x02\x08\x05", {"x": -3}), (b"\x04\x02\x00\x08\x01", {"y": True}), (b"\x04\x00\x00\x0a\x01q", "q")],
)
def test_message_indexes_lead_to_nested_messages(content: bytes, shown: Any) -> None:
    found = ProtobufReader(PROTO, REFERENCES, LIMITS).read(memoryview(content), LIMITS)
    assert found == shown or found["sku"] == shown


def test_shapes_say_what_columns_are_made_of() -> None:
    fields = dict(ProtobufReader(PROTO, REFERENCES, LIMITS).shape.fields)
    assert (fields["id"].kind, fields["at"].kind, fields["counts"].kind) == (Kind.LONG, Kind.TIMESTAMP, Kind.MAP)
    item = fields["items"].items
    assert item is not None
    assert (fields["items"].kind, item.kind, dict(item.fields)["parent"].kind) == (Kind.ARRAY, Kind.RECORD, Kind.ANY)
    fields = dict(compile_avro(json.dumps(TREE), [], LIMITS).shape.fields)
    assert (fields["note"].kind, fields["note"].is_optional, fields["id"].is_optional) == (Kind.STRING, True, False)
    assert fields["children"].items is not None
    assert fields["children"].items.kind == Kind.ANY


def test_json_schema_has_shapes_and_values_are_json() -> None:
    schema = {
        "$defs": {"name": {"type": ["string", "null"]}}, "properties": {
            "id": {"type": "integer"}, "name": {"$ref": "#/$defs/name"}, "self": {"$ref": "#"},
            "far": {"$ref": "far.json#/$defs/n"}, "one": {"oneOf": [{"type": "null"}, {"type": "number"}]},
            "map": {"type": "object", "additionalProperties": {"type": "boolean"}}, "any": True,
        }, "required": ["id"],
    }  # fmt: skip
    reader = compile_json_schema(json.dumps(schema), {"far.json": '{"$defs": {"n": {"type": "array"}}}'}, LIMITS)
    kinds = {name: shape.kind.value for name, shape in reader.shape.fields}
    assert kinds == {
        "id": "long", "name": "string", "self": "any", "far": "array", "one": "double", "map": "map", "any": "any",
    }  # fmt: skip
    assert not dict(reader.shape.fields)["id"].is_optional
    assert reader.read(memoryview('{"id": 1, "x": "ü"}'.encode()), LIMITS) == {"id": 1, "x": "ü"}
