"""Schemas and values that mean harm: each is refused by name, in little time, and no process ends."""

import json
from typing import Any

import pytest

from pqbroker.registry.avro_values import compile_avro
from pqbroker.registry.json_schemas import compile_json_schema
from pqbroker.registry.limits import DecodingLimits
from pqbroker.registry.protobuf_values import ProtobufReader
from pqbroker.registry.undecodable import Undecodable
from pqbroker.registry.wire_format import unframe

LIMITS = DecodingLimits(schema_types_max=1_000, value_parts_max=10_000)
LONG_NAME = "n" * (1 << 20)
INVALID, LARGE, DEEP = "SCHEMA_INVALID", "SCHEMA_TOO_LARGE", "SCHEMA_TOO_DEEP"


def record(*fields: Any, name: str = "R") -> dict[str, Any]:
    named = [{"name": f"f{n}", "type": each} for n, each in enumerate(fields)]
    return {"type": "record", "name": name, "fields": named}


def chain(levels: int, copies: int) -> list[Any]:
    """Return types of which each holds the one before, without a level in the text."""
    types: list[Any] = [record(name="T0")]
    types += [record(*[f"T{n}"] * copies, name=f"T{n + 1}") for n in range(levels)]
    return types


NO_SYMBOLS: list[Any] = [None, {}, "AB", [1], [None], [[]]]
NO_FIELDS: list[Any] = [None, {}, "x", [1], [{}], [{"name": "a"}]]
NO_NAMES: list[Any] = [None, "", 1, [], LONG_NAME]
AVRO_SCHEMAS: list[tuple[Any, str]] = [
    *[(text, INVALID) for text in ("", "{", "nul", "null", "1", "true", '"', '"unknown"', "\0", '{"type": {}}', "{}")],
    *[({"type": kind}, INVALID) for kind in (None, 5, True, "", "x", "record", "enum", "fixed", "array", "map")],
    *[({"type": "array", "items": kind}, INVALID) for kind in (None, 1, {}, "x", [[1]], {"type": "map"})],
    *[({"type": "fixed", "name": "F", "size": size}, INVALID) for size in (None, -1, 1.5, "1", True, 1 << 62)],
    *[({"type": "enum", "name": "E", "symbols": each}, INVALID) for each in NO_SYMBOLS],
    *[
        ({"type": "record", "name": "R", "fields": each}, INVALID)
        for each in NO_FIELDS
    ],
    *[({"type": "record", "name": name, "fields": []}, INVALID) for name in NO_NAMES],
    *[
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": scale}, INVALID)
        for scale in (-1, 1 << 40, "2", None, 1.5)
    ],
    ({"type": "record", "name": "R", "namespace": LONG_NAME, "fields": []}, INVALID),
    ({"type": "enum", "name": "E", "symbols": [LONG_NAME]}, INVALID),
    (record(record(name="R")), INVALID),
    ([record(name="A"), record(name="A")], INVALID),
    ({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, {"name": "a", "type": "int"}]}, INVALID),
    (["null"] * 10_000, LARGE),
    (record(*["int"] * 10_000), LARGE),
    ({"type": "enum", "name": "E", "symbols": [f"S{n}" for n in range(10_000)]}, LARGE),
    ([record(name=f"R{n}") for n in range(10_000)], LARGE),
    ("[" * 100_000, DEEP),
    ('{"type":' * 5_000 + '"int"' + "}" * 5_000, DEEP),
    ('{"type":"array","items":' * 100 + '"int"' + "}" * 100, DEEP),
]
PROTOBUF_SCHEMAS: list[tuple[str, str]] = [
    *[(text, INVALID) for text in (
        "message A {", "\0", "message {}", "message A { int32 = 1; }", "message A { int32 a; }",
        'syntax = "proto3"; message A { B b = 1; }', 'syntax = "proto3"; message A { int32 a = 1; int32 b = 1; }',
        'syntax = "proto3"; message A { int32 a = 0; }', 'syntax = "proto3"; message A { int32 a = 99999999999; }',
        'syntax = "proto3"; message A { int32 a = -1; }', 'syntax = "proto3"; message A { a.b.c.D d = 1; }',
        'import "x.proto";', 'import "google/protobuf/none.proto";', 'import "pqbroker/schema.proto"; message A {}',
        "message A {} message A {}", 'syntax = "proto3"; enum E { }', 'syntax = "proto3"; enum E { A = 1; }',
        "enum E { A = 0; A = 1; }", 'syntax = "proto3"; message A { map<bytes, int32> m = 1; }',
        'syntax = "proto3"; message A { map<string, B> m = 1; }', "message A { oneof o { } }",
        f"message {LONG_NAME[:5000]} {{}}", f"package {LONG_NAME[:5000]};", "message A { required required = 1; }",
        "message A { int32 a = 1 [",
    )],
    ("message A {" * 100 + "}" * 100, DEEP),
    ("message A {" + "".join(f"optional int32 f{n} = {n + 1};" for n in range(1_200)) + "}", LARGE),
    ("enum E {" + "".join(f"V{n} = {n};" for n in range(1_200)) + "}", LARGE),
]  # fmt: skip
JSON_SCHEMAS: list[tuple[str, str]] = [
    *[(text, INVALID) for text in (
        "", "{", "[]", "1", '"x"', "null", '{"$ref": 1}', '{"$ref": "#/x"}', '{"$ref": "http://far/x.json"}',
        '{"$ref": "#/$ref/y"}', '{"oneOf": 1}', '{"anyOf": "x"}', '{"anyOf": {}}', '{"properties": {"a": 1}}',
        '{"properties": {"a": null}}', '{"type": "array", "items": 1}', '{"properties": {"": true}}',
        json.dumps({"properties": {LONG_NAME: True}}), '{"type": "object", "additionalProperties": {"$ref": "#/q"}}',
    )],
    ("[" * 100_000, DEEP), ('{"not":' * 1_000 + "1" + "}" * 1_000, DEEP),
    (json.dumps({"properties": {f"p{n}": True for n in range(10_000)}}), LARGE),
    (
        json.dumps({
            "$ref": "#/$defs/d0", "$defs": {"d30": True} | {
                f"d{n}": {"properties": {name: {"$ref": f"#/$defs/d{n + 1}"} for name in "ab"}} for n in range(30)
            },
        }), LARGE,
    ),
]  # fmt: skip
AVRO_VALUES: list[tuple[Any, bytes, str]] = [
    *[("string", size, "VALUE_INVALID") for size in (b"\3x", b"\1x", b"\xfe\xff\xff\xff\x0fx", b"\xff" * 9 + b"\1x")],
    *[("long", content, "VALUE_INVALID") for content in (b"", b"\x80", b"\xff" * 10, b"\xff" * 100, b"\x00\x00")],
    *[("bytes", content, "VALUE_INVALID") for content in (b"", b"\x04a", b"\x05abc", b"\x80" * 20)],
    *[(kind, b"\0\0", "VALUE_INVALID") for kind in ("float", "double", "boolean", "int", "null")],
    *[(["null", "int"], content, "VALUE_INVALID") for content in (b"\4", b"\1", b"", b"\2", b"\xfe\xff\xff\x0f\2")],
    *[({"type": "enum", "name": "E", "symbols": ["A"]}, each, "VALUE_INVALID") for each in (b"\x02", b"\x01", b"")],
    ("string", b"\x02\xff", "VALUE_INVALID"),
    ({"type": "fixed", "name": "F", "size": 1 << 30}, b"abc", "VALUE_INVALID"),
    ({"type": "long", "logicalType": "timestamp-micros"}, b"\xfe" + b"\xff" * 8 + b"\x01", "VALUE_INVALID"),
    ({"type": "int", "logicalType": "date"}, b"\xfe\xff\xff\xff\x0f", "VALUE_INVALID"),
    ({"type": "int", "logicalType": "time-millis"}, b"\x01", "VALUE_INVALID"),
    ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, b"\xa0\x9c\x01" + b"\x7f" * 10_000,
     "VALUE_INVALID"),
    *[
        ({"type": "array", "items": kind}, b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f", "VALUE_TOO_LARGE")
        for kind in ("null", "int", record(), {"type": "fixed", "name": "F", "size": 0})
    ],
    ({"type": "array", "items": "null"}, b"\xff\xff\xff\xff\x0f\0", "VALUE_TOO_LARGE"),
    ({"type": "array", "items": "null"}, b"\xff\xff\xff\xff\x0f\2", "VALUE_TOO_LARGE"),
    ({"type": "array", "items": "int"}, b"\x02\x02", "VALUE_INVALID"),
    ({"type": "map", "values": "null"}, b"\x04\x02a\x02", "VALUE_INVALID"),
    (record("R"), b"", "VALUE_TOO_DEEP"),
    (record(["null", "R"]), b"\x02" * (1 << 20), "VALUE_TOO_DEEP"),
    (record({"type": "array", "items": "R"}), b"\x02" * (1 << 20), "VALUE_TOO_DEEP"),
    (record({"type": "map", "values": "R"}), b"\x02\x00" * (1 << 19), "VALUE_TOO_DEEP"),
    (record(*chain(20, 2)), b"", "VALUE_TOO_LARGE"),
    (chain(100, 1), b"\xc8\x01", "VALUE_TOO_DEEP"),
]  # fmt: skip
PROTOBUF = 'syntax = "proto3"; message A { A a = 1; repeated A many = 2; string s = 3; ' + "".join(
    f"int32 f{n} = {n};" for n in range(4, 104)
) + "}"
PROTOBUF_VALUES: list[tuple[bytes, str]] = [
    *[(content, "VALUE_INVALID") for content in (
        b"", b"\x80", b"\x02", b"\x01", b"\x03", b"\xfe\xff\xff\xff\x0f", b"\x02\x02", b"\x02\x01", b"\x04\x00\x00",
        b"\x00\x0a", b"\x00\x0a\x05", b"\x00\x0a\xff\xff\xff\xff\x0f", b"\x00\x1a\x02\xff\xff", b"\x00\x07",
        b"\x00\x0f", b"\x00" + b"\xff" * 20, b"\x00\x0b", b"\x00\x1a\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
    )],
    (b"\x00" + b"\x12\x00" * 1_000, "VALUE_TOO_LARGE"),
]  # fmt: skip
JSON_VALUES: list[tuple[bytes, str]] = [
    *[(content, "VALUE_INVALID") for content in (
        b"", b"{", b"\xff", b"nul", b"NaN", b"[Infinity]", b"{}{}", b"\0", b'"', b"[1,]", b"1" * 5_000, b"'a'",
        b"\xef\xbb",
    )],
    (b"[" * 100_000, "VALUE_TOO_LARGE"), (b"[" * 1_000, "VALUE_TOO_DEEP"), (b'{"a":' * 1_000, "VALUE_TOO_DEEP"),
    (b"[" + b"1," * 20_000 + b"1]", "VALUE_TOO_LARGE"),
]  # fmt: skip


def code_of(call: Any, *arguments: Any) -> tuple[str, str]:
    with pytest.raises(Undecodable) as refused:
        call(*arguments)
    return refused.value.code, refused.value.reason


def test_a_hostile_schema_is_refused_by_name() -> None:
    for schema, code in AVRO_SCHEMAS:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        found, reason = code_of(compile_avro, text, [], LIMITS)
        assert (found, len(reason) < 400) == (code, True), text[:100]
    for text, code in JSON_SCHEMAS:
        found, reason = code_of(compile_json_schema, text, {}, LIMITS)
        assert (found, len(reason) < 400) == (code, True), text[:100]
    for text, code in PROTOBUF_SCHEMAS:
        found, reason = code_of(ProtobufReader, text, {}, LIMITS)
        assert (found, len(reason) < 400) == (code, True), text[:100]


def test_a_hostile_value_is_refused_by_name() -> None:
    for schema, content, code in AVRO_VALUES:
        reader = compile_avro(json.dumps(schema), [], LIMITS)
        assert code_of(reader.read, memoryview(content), LIMITS)[0] == code, (schema, content[:20])
    protobuf = ProtobufReader(PROTOBUF, {}, LIMITS)
    for content, code in PROTOBUF_VALUES:
        assert code_of(protobuf.read, memoryview(content), LIMITS)[0] == code, content[:20]
    anything = compile_json_schema("true", {}, LIMITS)
    for content, code in JSON_VALUES:
        assert code_of(anything.read, memoryview(content), LIMITS)[0] == code, content[:20]
    for content in (b"", b"\0", b"\0\0\0\0", b"\1\0\0\0\0", b"plain text", b"{}"):
        assert code_of(unframe, content)[0] == "NOT_FRAMED"


def test_there_are_two_hundred_of_them() -> None:
    schemas = len(AVRO_SCHEMAS) + len(PROTOBUF_SCHEMAS) + len(JSON_SCHEMAS)
    assert schemas + len(AVRO_VALUES) + len(PROTOBUF_VALUES) + len(JSON_VALUES) >= 200


def test_files_that_import_each_other_are_refused() -> None:
    references = {"a.proto": 'import "b.proto";', "b.proto": 'import "a.proto";'}
    code, reason = code_of(ProtobufReader, 'import "a.proto"; message A {}', references, LIMITS)
    assert (code, reason) == ("SCHEMA_INVALID", "the file 'a.proto' imports itself")


def test_a_schema_that_names_its_parts_without_end_has_a_shape() -> None:
    messages = "".join(f"message M{n} {{ M{n + 1} a = 1; M{n + 1} b = 2; }}" for n in range(40))
    shape = ProtobufReader(f'syntax = "proto3"; {messages} message M40 {{}}', {}, LIMITS).shape
    assert len(shape.fields) == 2
