"""Decoders of keys and values by the schemas of a registry. Workers, commands and Spark all call
`ContentDecoder.decode`.

Schemas are compiled once. Where the registry does not give a schema, the failure is remembered for a time, so that
the registry is not asked again for each record. A decoder blocks while it asks, so the broker's loop never calls it.
"""

import json
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any, Final, NamedTuple, Protocol

from pqbroker.registry.avro_values import compile_avro
from pqbroker.registry.client import RegistryClient, SchemaKind, StoredSchema
from pqbroker.registry.json_schemas import compile_json_schema
from pqbroker.registry.limits import DecodingLimits, read_limits
from pqbroker.registry.named import NamedRegistry
from pqbroker.registry.shapes import ValueShape
from pqbroker.registry.undecodable import INVALID_SCHEMA, NOT_INSTALLED, UNAVAILABLE, Undecodable
from pqbroker.registry.wire_format import unframe

_LIBRARIES: Final = ("google.protobuf", "proto_schema_parser")


class SchemaReader(Protocol):
    """A compiled schema of any format."""

    @property
    def shape(self) -> ValueShape: ...

    def read(self, body: memoryview, limits: DecodingLimits) -> Any: ...


class Compiled(NamedTuple):
    """A schema of a registry, ready to read values."""

    schema_id: int
    kind: str
    reader: SchemaReader


class Decoded(NamedTuple):
    """A value, which is JSON, with the number and the kind of its schema: AVRO, PROTOBUF or JSON."""

    schema_id: int
    kind: str
    value: Any

    def text(self) -> str:
        """Return the value as JSON on one line."""
        return json.dumps(self.value, ensure_ascii=False, separators=(",", ":"))

    def document(self) -> dict[str, Any]:
        """Return {schema, type, content}, as answers show a part that is decoded."""
        return {"schema": self.schema_id, "type": self.kind, "content": self.value}


class ContentDecoder:
    """Decodes what producers wrote with one registry."""

    def __init__(
        self, registry: NamedRegistry, limits: DecodingLimits = DecodingLimits(),  # noqa: B008 - it is frozen
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._client = RegistryClient(registry, limits)
        self._limits = limits
        self._clock = clock
        self._kept: OrderedDict[int | str, tuple[Compiled | Undecodable, float]] = OrderedDict()
        """Schemas by number or subject, with the time up to which they hold."""
        self._down: tuple[Undecodable, float] | None = None
        """Reason why the registry did not answer, and the time up to which it is not asked for other schemas."""

    def decode(self, content: bytes) -> Decoded:
        """Return the value that a key or a value of a record stands for. Undecodable says why it stays raw."""
        schema_id, body = unframe(content)
        compiled = self._compiled(schema_id, lambda: self._client.schema(schema_id))
        return Decoded(schema_id, compiled.kind, compiled.reader.read(body, self._limits))

    def latest(self, subject: str) -> Compiled:
        """Return the schema of a subject's latest version, which is asked for again after
        `DecodingLimits.failure_ms`. Undecodable."""
        return self._compiled(subject, lambda: self._client.latest(subject))

    def _compiled(self, key: int | str, fetch: Callable[[], StoredSchema]) -> Compiled:
        if self._down is not None and self._clock() >= self._down[1]:
            self._down = None
        kept = self._kept.get(key) or self._down
        if kept is not None and self._clock() < kept[1]:
            if isinstance(kept[0], Undecodable):
                raise Undecodable(kept[0].code, kept[0].reason)
            self._kept.move_to_end(key)
            return kept[0]
        found: Compiled | Undecodable
        try:
            found = _compile(fetch(), self._limits)
        except Undecodable as refusal:
            if refusal.code == UNAVAILABLE:
                self._down = (refusal, self._clock() + self._limits.failure_ms / 1000)
            else:
                self._keep(key, refusal, self._limits.failure_ms)
            raise
        self._keep(key, found, self._limits.failure_ms if isinstance(key, str) else None)
        return found

    def _keep(self, key: int | str, found: Compiled | Undecodable, time_ms: int | None) -> None:
        until_s = float("inf") if time_ms is None else self._clock() + time_ms / 1000
        self._kept[key] = (found, until_s)
        self._kept.move_to_end(key)
        while len(self._kept) > self._limits.schemas_max:
            self._kept.popitem(last=False)


class TopicDecoders:
    """The decoders of a topic's keys and values, by "key" and "value"; a part without a registry has none."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        """`document`: as `topic_document` made it."""
        limits = read_limits(document["limits"])
        self._decoders = {part: _decoder(NamedRegistry(*named), limits) for part, named in document["parts"].items()}

    def find(self, part: str) -> ContentDecoder | None:
        """Return the decoder of a part."""
        return self._decoders.get(part)

    def show(self, part: str, content: bytes | None) -> dict[str, Any] | None:
        """Return a part as JSON: {schema, type, content} or {code, reason}; None where there is nothing to decode."""
        decoder = self._decoders.get(part)
        if decoder is None or content is None:
            return None
        try:
            return decoder.decode(content).document()
        except Undecodable as refusal:
            return refusal.document()


def topic_document(
    parts: Mapping[str, NamedRegistry], limits: DecodingLimits, subjects: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return what `TopicDecoders` are made of, as a message to a worker has it. Credentials stay in their file.
    `subjects`: those of parts that are not named after their topic."""
    named = {part: list(each) for part, each in parts.items()}
    return {"parts": named, "limits": limits.document(), "subjects": dict(subjects or {})}


def subject_of(document: Mapping[str, Any], topic: str, part: str) -> str:
    """Return the subject whose latest schema a topic's part has: the one that is set, or TOPIC-key, TOPIC-value."""
    return document["subjects"].get(part) or f"{topic}-{part}"


_DECODERS_MAX: Final = 32
_decoders: OrderedDict[tuple[NamedRegistry, DecodingLimits], ContentDecoder] = OrderedDict()


def _decoder(registry: NamedRegistry, limits: DecodingLimits) -> ContentDecoder:
    """Return the one of this process, with the schemas that it knows."""
    found = _decoders.get((registry, limits))
    if found is None:
        found = _decoders[registry, limits] = ContentDecoder(registry, limits)
        while len(_decoders) > _DECODERS_MAX:
            _decoders.popitem(last=False)
    return found


def _compile(stored: StoredSchema, limits: DecodingLimits) -> Compiled:
    kind = stored.kind.upper()
    reader: SchemaReader
    if kind == SchemaKind.AVRO.value:
        reader = compile_avro(stored.text, list(stored.references.values()), limits)
    elif kind == SchemaKind.JSON.value:
        reader = compile_json_schema(stored.text, stored.references, limits)
    elif kind == SchemaKind.PROTOBUF.value:
        reader = _protobuf(stored, limits)
    else:
        known = ", ".join(each.value for each in SchemaKind)
        text = f"the type of schema {stored.schema_id} is {stored.kind[:40]}; types that are read: {known}"
        raise Undecodable(INVALID_SCHEMA, text)
    return Compiled(stored.schema_id, kind, reader)


def _protobuf(stored: StoredSchema, limits: DecodingLimits) -> SchemaReader:
    if not all(_is_installed(name) for name in _LIBRARIES):
        text = "values in Protobuf need protobuf and proto-schema-parser; at least one is not installed"
        raise Undecodable(NOT_INSTALLED, f"{text}. Install pqbroker with its extra `schemas`.")
    from pqbroker.registry.protobuf_values import ProtobufReader  # takes 0.2 s, and an extra

    return ProtobufReader(stored.text, stored.references, limits)


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False
