"""What a request's JSON may look like: the part of JSON Schema that our routes use, checked here and shown in OpenAPI.

Types (one or several), properties with required and additional ones, items, minimum and maximum. Nothing else.
"""

import difflib
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]

_PYTHON_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}

SHOWN = 100
"""Characters of a wrong name that a refusal shows."""

OFFSET: Schema = {"type": "integer", "minimum": 0}
COUNT: Schema = {"type": "integer", "minimum": 0}
TEXT: Schema = {"type": "string"}


_BOOLEANS = {"true": True, "false": False}


class SchemaError(ValueError):
    """A value that the schema does not allow; the text names its place and the reason."""


def object_of(required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    """An object with these fields and no others."""
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        "additionalProperties": False,
    }


def array_of(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def nullable(schema: Schema) -> Schema:
    return {**schema, "type": [*_types(schema), "null"]}


def parse_json(data: bytes) -> Any:
    """The value of a JSON document; SchemaError for what is none, or names a field twice."""
    try:
        return json.loads(data, object_pairs_hook=_fields, parse_constant=_no_number)
    except RecursionError:
        raise SchemaError("the body is nested too deeply") from None
    except SchemaError:
        raise
    except ValueError as error:
        raise SchemaError(f"the body is no JSON: {error}") from None


def parse_json_lines(data: bytes) -> list[Any]:
    """The values of JSON documents, one a line; empty lines are left out. SchemaError names the line."""
    values = []
    for number, line in enumerate(data.splitlines(), start=1):
        if line.strip():
            try:
                values.append(parse_json(line))
            except SchemaError as error:
                raise SchemaError(f"line {number}: {error}") from None
    return values


def parse_text(text: str, schema: Schema, where: str) -> Any:
    """The value of a query parameter, checked; SchemaError."""
    value: Any = _BOOLEANS.get(text, text) if "boolean" in _types(schema) else text
    if "integer" in _types(schema):
        try:
            value = int(text)
        except ValueError:
            value = None
        if value is None or "_" in text:
            raise SchemaError(f"{where} is {text!r}; give an integer")
    check(value, schema, where)
    return value


def check(value: Any, schema: Schema, where: str) -> None:
    """SchemaError unless the schema allows the value; `where` is its place for the reader."""
    types = _types(schema)
    if types and not any(_is(value, name) for name in types):
        raise SchemaError(f"{where} is {_type_name(value)}; give {' or '.join(types)}")
    if isinstance(value, dict):
        _check_fields(value, schema, where)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            check(item, schema.get("items", {}), f"{where}[{number}]")
    elif _is(value, "number"):
        if value < schema.get("minimum", value):
            raise SchemaError(f"{where} is {value}; the least allowed is {schema['minimum']}")
        if value > schema.get("maximum", value):
            raise SchemaError(f"{where} is {value}; the most allowed is {schema['maximum']}")


def _check_fields(value: Mapping[str, Any], schema: Schema, where: str) -> None:
    known = schema.get("properties", {})
    others = schema.get("additionalProperties", {})
    missing = [name for name in schema.get("required", ()) if name not in value]
    if missing:
        raise SchemaError(f"{where} has no field {missing[0]!r}, which it needs")
    for name, item in value.items():
        if name not in known and others is False:
            raise SchemaError(f"{where} has an unknown field {name[:SHOWN]!r}; {_hint(name[:SHOWN], known)}")
        check(item, known.get(name, others), f"{where}.{name}")


def _hint(name: str, known: Mapping[str, Schema]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"it may have {', '.join(known) or 'none'}"


def _types(schema: Schema) -> list[str]:
    types = schema.get("type", [])
    return [types] if isinstance(types, str) else list(types)


def _is(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, _PYTHON_TYPES[name])


def _type_name(value: Any) -> str:
    return next(name for name in _PYTHON_TYPES if _is(value, name))


def _fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        (twice, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise SchemaError(f"the body names the field {twice[:SHOWN]!r} twice")
    return fields


def _no_number(text: str) -> None:
    raise SchemaError(f"the body is no JSON: it has {text} for a number")
