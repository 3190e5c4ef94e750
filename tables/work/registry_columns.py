"""Columns of a topic that names a registry: those of the latest schema of its subjects, TOPIC-key and TOPIC-value
unless it names others.

Each record is read by the schema that it was written by, and its fields go to the columns of their names. What is made
of parts itself is JSON. A record that is not decoded has null there, and `$error` says why.
"""

import json
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

import pyarrow

from pqbroker.registry.decoding import TopicDecoders, subject_of
from pqbroker.registry.shapes import ShapeKind as Kind
from pqbroker.registry.shapes import ValueShape
from pqbroker.registry.undecodable import NOT_INSTALLED, UNAVAILABLE, UNKNOWN, Undecodable
from pqbroker.tables.rows import ERROR
from pqbroker.tables.work.typed import JSON_TYPE

_PARTS: Final = ("key", "value")
_PASSING: Final = frozenset((UNAVAILABLE, UNKNOWN, NOT_INSTALLED))
"""Codes of refusals that another query may not meet."""
_DIGITS_MAX: Final = 38
_TYPES: Final[Mapping[Kind, Any]] = {
    Kind.BOOLEAN: pyarrow.bool_(), Kind.INT: pyarrow.int32(), Kind.LONG: pyarrow.int64(),
    Kind.UNSIGNED_LONG: pyarrow.uint64(), Kind.FLOAT: pyarrow.float32(), Kind.DOUBLE: pyarrow.float64(),
    Kind.STRING: pyarrow.string(), Kind.BINARY: pyarrow.binary(), Kind.TIMESTAMP: pyarrow.timestamp("us"),
    Kind.LOCAL_TIMESTAMP: pyarrow.timestamp("us"), Kind.DATE: pyarrow.date32(),
}  # fmt: skip
_dump = json.JSONEncoder(separators=(",", ":")).encode
_CONVERTED: Final[Mapping[Kind, Callable[[Any], Any]]] = {
    Kind.FLOAT: float, Kind.DOUBLE: float, Kind.BINARY: b64decode, Kind.DECIMAL: Decimal,
    Kind.TIMESTAMP: lambda text: datetime.fromisoformat(text).replace(tzinfo=None),
    Kind.LOCAL_TIMESTAMP: datetime.fromisoformat, Kind.DATE: date.fromisoformat,
}  # fmt: skip
_UNFIT: Final = (pyarrow.ArrowException, AttributeError, ArithmeticError, TypeError, ValueError)


class RegistryColumns:
    """Makes the columns, and `$error`. `identity` tells schemas apart, `reason` says why there are none."""

    def __init__(self, topic: str, decoding: Mapping[str, Any], columns_max: int) -> None:
        self._decoders = TopicDecoders(decoding)
        self._shapes: dict[str, tuple[str, str, ValueShape]] = {}
        """Part, field and shape by column; without a field it is the part as a whole."""
        self.reason = ""
        self.is_whole = True
        """False once a record was not decoded for a reason that may pass."""
        identity: list[Any] = [decoding]
        for part in _PARTS:
            decoder = self._decoders.find(part)
            if decoder is None:
                continue
            try:
                latest = decoder.latest(subject_of(decoding, topic, part))
            except Undecodable as refusal:
                self.reason = f"the {part}s of {topic} have no columns: {refusal.reason}"
                continue
            identity.append(latest.schema_id)
            self._add(part, latest.reader.shape)
        if len(self._shapes) > columns_max:
            self.reason = f"the schemas of {topic} have more than pqbroker.table.columns.max = {columns_max} fields"
            self._shapes.clear()
        self.identity = json.dumps(identity)
        self.types = {name: _arrow_type(shape) for name, (_, _, shape) in self._shapes.items()}
        self.types[ERROR] = pyarrow.string()

    @property
    def parts(self) -> tuple[str, ...]:
        """Return the parts of a record that columns come from."""
        return tuple(part for part in _PARTS if self._decoders.find(part) is not None)

    def make(self, parts: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return arrays by name from the parts, binary arrays by name."""
        errors: list[str | None] = [None] * len(next(iter(parts.values())))
        decoded = {part: self._decode(part, contents.to_pylist(), errors) for part, contents in parts.items()}
        arrays = {
            name: _array(name, self.types[name], shape, _fields(decoded[part], field), errors)
            for name, (part, field, shape) in self._shapes.items()
        }
        return {**arrays, ERROR: pyarrow.array(errors, pyarrow.string())}

    def _add(self, part: str, shape: ValueShape) -> None:
        if part == "value" and shape.kind == Kind.RECORD and shape.fields:
            self._shapes |= {name: (part, name, each) for name, each in shape.fields if name != ERROR}
        else:
            self._shapes[part] = (part, "", shape)

    def _decode(self, part: str, contents: Sequence[bytes | None], errors: list[str | None]) -> Sequence[Any]:
        decoder = self._decoders.find(part)
        if decoder is None:
            return [None] * len(contents)
        found = []
        for index, content in enumerate(contents):
            value = None
            if content is not None:
                try:
                    value = decoder.decode(content).value
                except Undecodable as refusal:
                    errors[index] = errors[index] or f"the {part}: {refusal.reason}"
                    self.is_whole = self.is_whole and refusal.code not in _PASSING
            found.append(value)
        return found


def _fields(decoded: Sequence[Any], field: str) -> list[Any]:
    if not field:
        return list(decoded)
    return [each.get(field) if isinstance(each, dict) else None for each in decoded]


def _arrow_type(shape: ValueShape) -> Any:
    if shape.kind == Kind.DECIMAL:
        fits = 0 < shape.precision <= _DIGITS_MAX and shape.scale <= shape.precision
        return pyarrow.decimal128(shape.precision, shape.scale) if fits else pyarrow.string()
    return _TYPES.get(shape.kind, JSON_TYPE)


def _array(name: str, kind: Any, shape: ValueShape, values: list[Any], errors: list[str | None]) -> Any:
    """Return the array of a column. A value of an older schema may not fit; it is null, and an error."""
    if kind == JSON_TYPE:
        texts = pyarrow.array([None if each is None else _dump(each) for each in values], pyarrow.string())
        return pyarrow.ExtensionArray.from_storage(JSON_TYPE, texts)
    convert = _same if pyarrow.types.is_string(kind) else _CONVERTED.get(shape.kind, _same)
    try:
        return pyarrow.array([None if each is None else convert(each) for each in values], kind)
    except _UNFIT:
        return pyarrow.array(_fitting(name, (kind, convert), values, errors), kind)


def _fitting(
    name: str, made: tuple[Any, Callable[[Any], Any]], values: list[Any], errors: list[str | None]
) -> list[Any]:
    kind, convert = made
    fitting: list[Any] = []
    for index, value in enumerate(values):
        try:
            fitting.append(None if value is None else pyarrow.scalar(convert(value), kind).as_py())
        except _UNFIT:
            fitting.append(None)
            errors[index] = errors[index] or f"the field {name} is no {kind}, as the latest schema has it"
    return fitting


def _same(value: Any) -> Any:
    return value
