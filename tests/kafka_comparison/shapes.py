"""Registers scripts, and makes cases of them, each at every version of its API.

Ordinary requests take border values of their fields at the earliest and the latest version.
"""

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from pqbroker.broker.kafka.apis.api import Api
from pqbroker.protocol.codec import encoder
from pqbroker.protocol.schema import (
    BOOL,
    BYTES,
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UUID,
    Field,
    Kind,
    wire_fields,
)
from tests.kafka_comparison.rendering import UNKNOWN_ID
from tests.kafka_comparison.side import Side

Change = Callable[[Any], None]
Script = Callable[[Side], None]

_BITS: Final = {INT8: 8, INT16: 16, INT32: 32, INT64: 64}
_TEXTS: Final = {"empty": "", "unknown": "nobody", "long": "n" * 250, "odd": "a b/é"}
_BLOBS: Final = {"empty": b"", "garbage": b"\xff\x00garbage"}


@dataclass(frozen=True, slots=True)
class Case:
    """One script at one version; `shape` names it among those of its API."""

    api: Api
    version: int
    shape: str
    play: Script

    @property
    def name(self) -> str:
        """A name that serves as one of topics and groups: at most 249 letters that Kafka takes."""
        text = f"{self.api.name}-v{self.version}-{self.shape}"
        return "".join(each if each.isalnum() or each in "-_" else "-" for each in text)


_scripts: list[tuple[Api, str, Script, range]] = []
_varied: list[tuple[Api, str, Callable[[Side], Any], frozenset[str]]] = []


def script(api: Api, *, since: int = 0, until: int = 99) -> Callable[[Script], Script]:
    """Register a script that compares what it likes, for each version of the API in the range."""

    def register(play: Script) -> Script:
        versions = range(max(since, api.version_min), min(until, api.version_max) + 1)
        _scripts.append((api, play.__name__, play, versions))
        return play

    return register


def once(api: Api, version: int) -> Callable[[Script], Script]:
    """Register a script for one version, which the API need not have."""

    def register(play: Script) -> Script:
        _scripts.append((api, play.__name__, play, range(version, version + 1)))
        return play

    return register


def varied(api: Api, *, fixed: tuple[str, ...] = ()) -> Callable[[Callable[[Side], Any]], Callable[[Side], Any]]:
    """Register what makes an ordinary request; each of its fields takes border values in turn, but for `fixed`."""

    def register(make: Callable[[Side], Any]) -> Callable[[Side], Any]:
        _varied.append((api, make.__name__, make, frozenset(fixed)))
        return make

    return register


def cases() -> Iterator[Case]:
    """Yield every case."""
    for api, name, play, versions in _scripts:
        for version in versions:
            yield Case(api, version, name, play)
    for api, name, make, fixed in _varied:
        for version in range(api.version_min, api.version_max + 1):
            yield Case(api, version, name, _asking(make, "", lambda _: None))
            if version in (api.version_min, api.version_max):
                for label, change in _changes(api.request, version, fixed):
                    yield Case(api, version, f"{name}:{label}", _asking(make, label, change))


def _asking(make: Callable[[Side], Any], label: str, change: Change) -> Script:
    def play(side: Side) -> None:
        request = make(side)
        before = _bytes(request, side.version)
        change(request)
        if not label or _bytes(request, side.version) != before:
            side.compare(request)

    return play


def _bytes(request: Any, version: int) -> bytes:
    return b"".join(map(bytes, encoder(type(request), version)(request)))


def _changes(declared: type, version: int, fixed: frozenset[str], path: str = "") -> Iterator[tuple[str, Change]]:
    """Yield label and change for each border value of each field of a struct, and of the first element of an array."""
    for field in wire_fields(declared, version):
        place = f"{path}{field.name}"
        if place in fixed:
            continue
        for label, value in _values(field, version):
            yield f"{place}={label}", _setting(field.name, value)
        element = field.kind.element if isinstance(field.kind, Kind) else field.kind
        if isinstance(element, type):
            for label, change in _changes(element, version, fixed, f"{place}."):
                yield label, _inside(field.name, change)


def _values(field: Field, version: int) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """Yield label and border value, which may depend on the ordinary one."""
    kind = field.kind
    if field.is_nullable(version):
        yield "null", lambda _: None
    if kind is BOOL:
        yield "other", lambda value: not value
    elif kind in _BITS:
        most = 1 << _BITS[kind] - 1
        for number in (-most, -1, 0, 1, most - 1):
            yield str(number), _always(number)
    elif kind is STRING:
        yield from ((label, _always(text)) for label, text in _TEXTS.items())
    elif kind is BYTES or kind is RECORDS:
        yield from ((label, _always(data)) for label, data in _BLOBS.items())
    elif kind is UUID:
        yield "zero", lambda _: b"\0" * 16
        yield "unknown", lambda _: UNKNOWN_ID
    elif isinstance(kind, Kind) and kind.element is not None:
        yield "none", lambda _: []
        yield "twice", lambda value: [*value, *value]
        if not isinstance(kind.element, type):
            element = dataclasses.replace(field, kind=kind.element, nullable=None)
            yield from ((label, _alone(value)) for label, value in _values(element, version))


def _always(value: Any) -> Callable[[Any], Any]:
    return lambda _: value


def _alone(value: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda _: [value(None)]


def _setting(name: str, value: Callable[[Any], Any]) -> Change:
    return lambda request: setattr(request, name, value(getattr(request, name)))


def _inside(name: str, change: Change) -> Change:
    def apply(request: Any) -> None:
        inner = getattr(request, name)
        first = inner[0] if isinstance(inner, list) and inner else inner
        if dataclasses.is_dataclass(first):
            change(first)

    return apply
