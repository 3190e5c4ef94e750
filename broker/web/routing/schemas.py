"""Schemas of a request's JSON: the part of JSON Schema that our routes use, checked here and shown in OpenAPI.

Types (one or several), properties with required and additional ones, items, minimum and maximum. Nothing else.
"""

import difflib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

Schema = Mapping[str, Any]

NESTING_MAX: Final = 256
"""Levels of objects and arrays within one another: fewer than the parsers and writers behind can take."""
_TYPE_NAMES: Mapping[type, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    dict: "object",
    list: "array",
    type(None): "null",
}

_TOO_DEEP = f"is nested too deeply; at most {NESTING_MAX} objects and arrays may lie within one another"
SHOWN = 100
"""Characters of a wrong name that a refusal shows."""

OFFSET: Schema = {"type": "integer", "minimum": 0}
COUNT: Schema = {"type": "integer", "minimum": 0}
TEXT: Schema = {"type": "string"}


_BOOLEANS = {"true": True, "false": False}


class SchemaError(ValueError):
    """A value that the schema does not allow; the text names its place and the reason."""


class TooManyObjects(ValueError):
    """A body has more objects and arrays than it may have: it is not parsed."""


class _Misfit(Exception):
    """The reason of a SchemaError, and its place from the inside to the outside. Places of what fits are never made."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        self.place: list[str] = []


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


def parse_json(data: bytes, objects_max: int) -> Any:
    """The value of a JSON document; SchemaError for what is none, or names a field twice. TooManyObjects."""
    text = _text(data)
    _check_objects(text, objects_max)
    return _parsed(text)


def parse_json_lines(data: bytes, objects_max: int) -> Iterator[Any]:
    """The values of JSON documents, one a line, each parsed when it is asked for; empty lines are left out.

    SchemaError names the line. TooManyObjects, before the first.
    """
    text = _text(data)
    _check_objects(text, objects_max)
    for line in _LINE.finditer(text):
        if not line[0].isspace():
            try:
                yield _parsed(line[0])
            except SchemaError as error:
                number = text.count("\n", 0, line.start()) + 1
                raise SchemaError(f"line {number}: {error}") from None


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
    try:
        _check(value, schema, NESTING_MAX)
    except _Misfit as misfit:
        raise SchemaError(f"{where}{''.join(reversed(misfit.place))} {misfit.reason}") from None


def _check(value: Any, schema: Schema, levels: int) -> None:
    """Check a value in which at most `levels` objects and arrays lie within one another."""
    types, name = schema.get("type"), _TYPE_NAMES[type(value)]
    if types is not None and types != name and not _is_one(name, types):
        raise _Misfit(f"is {name}; give {types if isinstance(types, str) else ' or '.join(types)}")
    if name == "object":
        _check_fields(value, schema, levels - 1)
    elif name == "array":
        _check_items(value, schema.get("items", _ANYTHING), levels - 1)
    elif name in ("integer", "number"):
        if value < schema.get("minimum", value):
            raise _Misfit(f"is {value}; the least allowed is {schema['minimum']}")
        if value > schema.get("maximum", value):
            raise _Misfit(f"is {value}; the most allowed is {schema['maximum']}")


def _check_fields(value: Mapping[str, Any], schema: Schema, levels: int) -> None:
    known = schema.get("properties", _ANYTHING)
    others = schema.get("additionalProperties", _ANYTHING)
    for name in schema.get("required", ()):
        if name not in value:
            raise _Misfit(f"has no field {name!r}, which it needs")
    if others is False and not known.keys() >= value.keys():
        unknown = next(name for name in value if name not in known)
        raise _Misfit(f"has an unknown field {unknown[:SHOWN]!r}; {_hint(unknown[:SHOWN], known)}")
    if levels < 0:
        raise _Misfit(_TOO_DEEP)
    name = ""
    try:
        for name, item in value.items():
            wanted = known.get(name, others)
            if wanted or isinstance(item, dict | list):  # columns of rows are free, and most are plain values
                _check(item, wanted, levels)
    except _Misfit as misfit:
        misfit.place.append(f".{name[:SHOWN]}")
        raise


def _check_items(value: list[Any], schema: Schema, levels: int) -> None:
    if levels < 0:
        raise _Misfit(_TOO_DEEP)
    number = 0
    try:
        for number, item in enumerate(value):  # noqa: B007 (the place of the one that does not fit)
            _check(item, schema, levels)
    except _Misfit as misfit:
        misfit.place.append(f"[{number}]")
        raise


def _is_one(name: str, types: str | list[str]) -> bool:
    """Return True if the type is one of those; an integer is a number too."""
    some = (types,) if isinstance(types, str) else types
    return name in some or (name == "integer" and "number" in some)


def _hint(name: str, known: Mapping[str, Schema]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"it may have {', '.join(known) or 'none'}"


def _types(schema: Schema) -> list[str]:
    types = schema.get("type", [])
    return [types] if isinstance(types, str) else list(types)


def _fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        (twice, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise SchemaError(f"the body names the field {twice[:SHOWN]!r} twice")
    return fields


def _no_number(text: str) -> None:
    raise SchemaError(f"the body is no JSON: it has {text} for a number")


_ANYTHING: Schema = {}
_DECODER: Final = json.JSONDecoder(object_pairs_hook=_fields, parse_constant=_no_number)
_LINE: Final = re.compile(r"[^\r\n]+")
_OPENING: Final = re.compile(r'[\[{]|"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
"""The beginning of an object or array; or a whole string, which is passed over."""


def _text(data: bytes) -> str:
    try:
        return data.decode(json.detect_encoding(data), "surrogatepass")
    except UnicodeDecodeError as error:
        raise SchemaError(f"the body is no JSON: {error}") from None


def _check_objects(text: str, objects_max: int) -> None:
    """TooManyObjects, at the cost of a search: parsed they take up to thirty times their text."""
    if text.count("{") + text.count("[") <= objects_max:
        return
    openings = (found for found in _OPENING.finditer(text) if text[found.start()] != '"')
    if next(islice(openings, objects_max, None), None) is not None:
        raise TooManyObjects(
            f"the body has more objects and arrays than pqbroker.http.body.objects.max = {objects_max}"
        )


def _parsed(text: str) -> Any:
    try:
        return _DECODER.decode(text)
    except RecursionError:
        raise SchemaError("the body is nested too deeply") from None
    except SchemaError:
        raise
    except ValueError as error:
        raise SchemaError(f"the body is no JSON: {error}") from None
