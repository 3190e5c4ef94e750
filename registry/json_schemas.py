"""JSON Schema: its shape, and values, which are JSON already.

Values are not held against the schema: a producer's serializer did so, and its rules may take any time.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, NoReturn
from urllib.parse import urldefrag

from pqbroker.registry.limits import SCHEMA_LEVELS_MAX, VALUE_LEVELS_MAX, DecodingLimits
from pqbroker.registry.schema_documents import check_levels, check_name, parse_document, shorten
from pqbroker.registry.shapes import ANY_SHAPE, ValueShape
from pqbroker.registry.shapes import ShapeKind as Kind
from pqbroker.registry.undecodable import (
    DEEP_SCHEMA,
    DEEP_VALUE,
    INVALID_SCHEMA,
    INVALID_VALUE,
    LARGE_SCHEMA,
    LARGE_VALUE,
    Undecodable,
)

_DOCUMENT_LEVELS_MAX: Final = 4 * SCHEMA_LEVELS_MAX
"""Brackets of a schema: a type takes about three of them."""
_SCALARS: Final[Mapping[str, Kind]] = {
    "boolean": Kind.BOOLEAN, "integer": Kind.LONG, "number": Kind.DOUBLE, "string": Kind.STRING,
}  # fmt: skip


class JsonReader(NamedTuple):
    """A schema that was read for its shape alone."""

    shape: ValueShape

    def read(self, body: memoryview, limits: DecodingLimits) -> Any:
        """Return a value, which takes the whole body. Undecodable."""
        try:
            text = str(body, "utf-8")
        except UnicodeDecodeError as error:
            raise Undecodable(INVALID_VALUE, f"the value is no UTF-8 at byte {error.start}") from None
        _check_parts(text, limits.value_parts_max)
        try:
            check_levels(text, VALUE_LEVELS_MAX)
        except Undecodable:
            raise Undecodable(DEEP_VALUE, f"the value has more than {VALUE_LEVELS_MAX} levels") from None
        try:
            return json.loads(text, parse_constant=_refuse)
        except ValueError as error:
            raise Undecodable(INVALID_VALUE, f"the value is no JSON: {error}") from None


def compile_json_schema(text: str, references: Mapping[str, str], limits: DecodingLimits) -> JsonReader:
    """Compile a schema; `references` are texts of others by the names that it uses for them. Undecodable."""
    documents = {name: parse_document(each, _DOCUMENT_LEVELS_MAX) for name, each in references.items()}
    document = parse_document(text, _DOCUMENT_LEVELS_MAX)
    return JsonReader(_Shaping(document, documents, limits.schema_types_max).shape(document, document, ()))


def _check_parts(text: str, parts_max: int) -> None:
    if text.count(",") + text.count("[") + text.count("{") > parts_max:
        reason = f"the value has more than pqbroker.registry.value.parts.max = {parts_max} fields and elements"
        raise Undecodable(LARGE_VALUE, reason)


def _refuse(name: str) -> NoReturn:
    raise Undecodable(INVALID_VALUE, f"the value is no JSON: {name} is none of its numbers")


class _Shaping:
    """Finds the shape of a schema's parts."""

    def __init__(self, document: Any, documents: Mapping[str, Any], types_max: int) -> None:
        self._main = document
        self._documents = documents
        self._types_max = types_max
        self._types = 0

    def shape(self, schema: Any, document: Any, path: tuple[int, ...]) -> ValueShape:
        """Return the shape of a part of a document; `path`: the parts that it lies in, by identity."""
        self._types += 1
        if self._types > self._types_max:
            text = f"the schema has more than pqbroker.registry.schema.types.max = {self._types_max} types and fields"
            raise Undecodable(LARGE_SCHEMA, text)
        if len(path) > SCHEMA_LEVELS_MAX:
            raise Undecodable(DEEP_SCHEMA, f"the schema has more than {SCHEMA_LEVELS_MAX} levels of types")
        if isinstance(schema, bool):
            return ANY_SHAPE
        if not isinstance(schema, Mapping):
            raise Undecodable(INVALID_SCHEMA, f"a type is {shorten(schema)}; it is an object, true or false")
        if id(schema) in path:
            return ANY_SHAPE
        inner = (*path, id(schema))
        if "$ref" in schema:
            found, place = self._find(schema["$ref"], document)
            return self.shape(found, place, inner)
        for word in ("oneOf", "anyOf"):
            if word in schema:
                return self._choice(schema[word], document, inner)
        return self._typed(schema, document, inner)

    def _typed(self, schema: Mapping[str, Any], document: Any, path: tuple[int, ...]) -> ValueShape:
        kinds = schema.get("type")
        named = [kinds] if isinstance(kinds, str) else kinds if isinstance(kinds, list) else []
        known = [each for each in named if each != "null"]
        kind = known[0] if len(known) == 1 else "object" if not named and "properties" in schema else None
        if isinstance(kind, str) and kind in _SCALARS:
            return ValueShape(_SCALARS[kind])
        if kind == "array":
            items = schema.get("items", True)
            each = ANY_SHAPE if isinstance(items, list) else self.shape(items, document, path)
            return ValueShape(Kind.ARRAY, items=each)
        if kind == "object":
            return self._object(schema, document, path)
        return ANY_SHAPE

    def _object(self, schema: Mapping[str, Any], document: Any, path: tuple[int, ...]) -> ValueShape:
        properties, rest = schema.get("properties"), schema.get("additionalProperties")
        if isinstance(properties, Mapping) and properties:
            required = schema.get("required")
            names = {each for each in required if isinstance(each, str)} if isinstance(required, list) else set()
            fields = []
            for name, each in properties.items():
                found = self.shape(each, document, path)
                is_required = name in names and not _allows_null(each)
                fields.append((check_name(name, "an object"), replace(found, is_optional=not is_required)))
            return ValueShape(Kind.RECORD, fields=tuple(fields))
        if isinstance(rest, Mapping) and rest:
            return ValueShape(Kind.MAP, items=self.shape(rest, document, path))
        return ANY_SHAPE

    def _choice(self, branches: Any, document: Any, path: tuple[int, ...]) -> ValueShape:
        if not isinstance(branches, Sequence) or isinstance(branches, str):
            raise Undecodable(INVALID_SCHEMA, f"a choice is {shorten(branches)}; it is an array of types")
        known = [each for each in branches if not (isinstance(each, Mapping) and each.get("type") == "null")]
        self._types += len(branches)
        return self.shape(known[0], document, path) if len(known) == 1 else ANY_SHAPE

    def _find(self, reference: Any, document: Any) -> tuple[Any, Any]:
        """Return what a $ref names, and the document in which it stands."""
        if not isinstance(reference, str):
            raise Undecodable(INVALID_SCHEMA, f"a $ref is {shorten(reference)}; it is a text")
        name, fragment = urldefrag(reference)
        if name:
            document = self._documents.get(name)
            if document is None:
                text = f"the schema refers to {shorten(name)}, which is none of its references in the registry"
                raise Undecodable(INVALID_SCHEMA, text)
        found = document
        for step in fragment.split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, Mapping) or name not in found:
                raise Undecodable(INVALID_SCHEMA, f"the schema has nothing at {shorten(reference)}")
            found = found[name]
        return found, document


def _allows_null(schema: Any) -> bool:
    if not isinstance(schema, Mapping):
        return True
    kinds = schema.get("type")
    return "$ref" in schema or "oneOf" in schema or "anyOf" in schema or (isinstance(kinds, list) and "null" in kinds)
