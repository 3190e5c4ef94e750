"""Every list of every request as long as it may be: elements that are the same, that differ, that hold lists too."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.served import APIS
from pqbroker.protocol.schema import BYTES, RECORDS, STRING, UUID, Kind, wire_fields
from tests.broker.conftest import make_batch
from tests.broker.wire import request_frame
from tests.grammar.attacks import MANY
from tests.support.attacked import Attacked

ANSWER_WAIT_S = 20.0
NESTED_PER_ELEMENT = 4
"""Elements of a request at most for one that holds lists of one element each."""
STRINGS = {"member_id": "", "name": "t", "topic": "t", "topic_name": "t", "protocol_type": "consumer"}
NUMBERS = {"resource_type": 2, "replication_factor": 1, "num_partitions": 1, "timestamp": 1, "replica_id": -1}


class Shape(Enum):
    """What the elements of the list are."""

    SAME = "the same element"
    DIFFERENT = "elements that differ"
    NESTED = "elements that differ, each with lists of one element"


@dataclass(frozen=True, slots=True)
class LongList:
    """A list of a request: the fields that lead to it."""

    api: Api
    version: int
    path: tuple[str, ...]
    shape: Shape

    def __str__(self) -> str:
        return f"{self.api.name} {self.version} {'.'.join(self.path)}: {self.shape.value}"

    def frame(self) -> bytes:
        """The request, valid but for what its names say."""
        request = _struct(self.api.request, self.version, 0, 1)
        owner = request
        for name in self.path[:-1]:
            (owner,) = getattr(owner, name)
        kind = _element_kind(type(owner), self.version, self.path[-1])
        count, inner = (MANY // NESTED_PER_ELEMENT, 1) if self.shape is Shape.NESTED else (MANY, 0)
        numbers = [0] * count if self.shape is Shape.SAME else range(count)
        setattr(owner, self.path[-1], [_value(kind, self.path[-1], self.version, number, inner) for number in numbers])
        return request_frame(request, self.version)


def long_lists() -> Iterator[LongList]:
    """Every list of every request, in its oldest and its newest version."""
    for api in APIS:
        for version in sorted({api.version_min, api.version_max}):
            for path in _paths(api.request, version):
                for shape in Shape:
                    yield LongList(api, version, path, shape)


def ask(node: Attacked, asked: LongList) -> int:
    """Send the request; returns the size of the answer, 0 when the broker closed the connection or keeps it waiting."""
    with node.connect(ANSWER_WAIT_S) as caller:
        try:
            caller.socket.sendall(asked.frame())
            return caller.skip()
        except OSError:
            return 0


def _paths(declared: type, version: int) -> Iterator[tuple[str, ...]]:
    for item in wire_fields(declared, version):
        if item.tag is None and isinstance(item.kind, Kind) and item.kind.element is not None:
            yield (item.name,)
            if not isinstance(item.kind.element, Kind):
                for rest in _paths(item.kind.element, version):
                    yield (item.name, *rest)


def _element_kind(declared: type, version: int, name: str) -> Any:
    (kind,) = (item.kind for item in wire_fields(declared, version) if item.name == name)
    assert isinstance(kind, Kind)
    return kind.element


def _struct(declared: type, version: int, number: int, inner: int) -> Any:
    """`inner`: how many elements each list in it has."""
    value = declared()
    for item in wire_fields(declared, version):
        if item.tag is None:
            setattr(value, item.name, _value(item.kind, item.name, version, number, inner))
    return value


def _value(kind: Any, name: str, version: int, number: int, inner: int) -> Any:
    if isinstance(kind, type):
        return _struct(kind, version, number, inner)
    if kind.element is not None:
        return [_value(kind.element, name, version, 0, inner) for _ in range(inner)]
    if kind is STRING:
        return f"{STRINGS.get(name, 'g')}{number or ''}"
    if kind is BYTES:
        return b""
    if kind is RECORDS:
        return memoryview(make_batch(b"v"))
    if kind is UUID:
        return number.to_bytes(16, "big")
    if kind.code == "?":
        return False
    if name in NUMBERS:
        return NUMBERS[name]
    return number if name.endswith(("index", "indexes", "partition", "partitions")) else 0
