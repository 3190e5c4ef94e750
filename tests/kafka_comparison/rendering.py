"""Answers as lines that can be compared: a path for each field, and values in which what must differ has a name.

Elements of an array are named by what identifies them (a topic's name, a partition's number), so that their order does
not count. Ids, addresses, directories, sizes, times of now and texts are replaced (`_REPLACED`, and `Facts`).
"""

import dataclasses
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from pqbroker.protocol.errors import KafkaError
from pqbroker.protocol.records import CONTROL, batches
from pqbroker.protocol.schema import ERROR_CODE, RECORDS, STRING, UUID, Field, Kind, wire_fields

NOT_COMPARED: Final = {"throttle_time_ms"}
_IDENTITIES: Final = (
    "name", "topic_name", "topic", "topic_id", "group_id", "resource_name", "user", "log_dir", "partition_index",
    "partition", "index", "node_id", "broker_id", "replica_id", "group_instance_id", "member_id", "api_key", "key",
    "principal", "producer_id",
)  # fmt: skip
"""Fields that identify an element of an array, the first that it has and that is not empty."""
UNKNOWN_ID: Final = bytes(range(16, 32))
"""A topic id that no broker gave."""
_MEANT: Final = {b"\0" * 16, UNKNOWN_ID}
_DAY_MS: Final = 86_400_000
_MARKER_BYTES: Final = 12
"""Bytes of a marker's record before the coordinator's epoch, which is the broker's own."""
_GENERATED: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def _number(word: str) -> Callable[[Any], Any]:
    """Return what replaces a number that is the broker's own; negative ones and zero mean something and stay."""
    return lambda value: f"<{word}>" if value > 0 else value


_REPLACED: Final[dict[str, Callable[[Any], Any]]] = {
    "error_message": lambda value: "<text>" if value else value,
    "cluster_id": lambda value: "<cluster>" if value else value,
    "producer_id": lambda value: "<producer>" if value >= 0 else value,
    "session_id": _number("session"),
    "log_dir": lambda value: "<directory>" if value else value,
    "total_bytes": _number("bytes"),
    "usable_bytes": _number("bytes"),
    "partition_size": _number("bytes"),
    "documentation": lambda value: "<text>" if value else value,
}


@dataclass(slots=True)
class Facts:
    """What a broker gave of its own, by which answers are rendered: topic ids, its port, its first leader epoch."""

    port: int
    first_epoch: int = 0
    names: dict[bytes, str] = field(default_factory=dict)


def rendered(answer: Any, version: int, facts: Facts) -> dict[str, str]:
    """Return path and value of each field of an answer; one line without a path for a text in its place."""
    if not dataclasses.is_dataclass(answer):
        return {"": str(answer)}
    return dict(_struct(answer, version, "", facts))


def _struct(value: Any, version: int, path: str, facts: Facts) -> Iterator[tuple[str, str]]:
    for declared in wire_fields(type(value), version):
        if declared.name not in NOT_COMPARED:
            place = f"{path}.{declared.name}" if path else declared.name
            yield from _field(declared, getattr(value, declared.name), version, place, facts)


def _field(declared: Field, value: Any, version: int, path: str, facts: Facts) -> Iterator[tuple[str, str]]:
    if dataclasses.is_dataclass(value):
        yield from _struct(value, version, path, facts)
    elif declared.kind is RECORDS:
        yield path, _records(value, facts)
    elif isinstance(value, list):
        yield from _array(declared, value, version, path, facts)
    else:
        yield path, repr(_scalar(declared, value, facts))


def _array(declared: Field, values: list[Any], version: int, path: str, facts: Facts) -> Iterator[tuple[str, str]]:
    yield f"{path}[].count", str(len(values))
    assert isinstance(declared.kind, Kind)
    if not isinstance(declared.kind.element, type):
        element = dataclasses.replace(declared, kind=declared.kind.element or declared.kind)
        yield path, repr(sorted((_scalar(element, value, facts) for value in values), key=repr))
        return
    seen: Counter[str] = Counter()
    for value in values:
        name = _identity(value, version, facts)
        seen[name] += 1
        again = f"#{seen[name]}" if seen[name] > 1 else ""
        yield f"{path}[{name}{again}]", "present"
        yield from _struct(value, version, f"{path}[{name}{again}]", facts)


def _identity(value: Any, version: int, facts: Facts) -> str:
    """Return what names an element among its like; empty where its struct has nothing that could."""
    fields = {each.name: each for each in wire_fields(type(value), version)}
    for name in _IDENTITIES:
        if name in fields and getattr(value, name) not in (None, "", b"\0" * 16):
            kind = f"{value.resource_type}:" if name == "resource_name" else ""
            return f"{kind}{_scalar(fields[name], getattr(value, name), facts)}"
    return ""


def _scalar(declared: Field, value: Any, facts: Facts) -> Any:
    if value is None:
        return None
    name, kind = declared.name, declared.kind
    if kind is ERROR_CODE:
        return value.name if hasattr(value, "name") else value
    if kind is UUID:
        return facts.names.get(value) or (value.hex() if value in _MEANT else "<new id>")
    if name in _REPLACED:
        return _REPLACED[name](value)
    if name == "port":
        return "<port>" if value == facts.port else value
    if "leader_epoch" in name:
        return value - facts.first_epoch if value >= 0 else value
    if kind is STRING:
        return _GENERATED.sub("<id>", value)
    if isinstance(value, int) and abs(value - time.time() * 1000) < _DAY_MS:
        return "<now>"
    return value


def _records(value: Any, facts: Facts) -> str:
    """Return what a client sees of batches: header by header, without what a broker stamps of its own."""
    if value is None:
        return "None"
    found = []
    try:
        for position, header in batches(memoryview(value)):
            body = bytes(value[position + 61 : position + header.size_bytes])
            if header.attributes & CONTROL:
                body = body[:_MARKER_BYTES]
            found.append(
                f"{header.base_offset}+{header.last_offset_delta} attributes={header.attributes}"
                f" count={header.record_count} sequence={header.base_sequence}"
                f" epoch={header.partition_leader_epoch - facts.first_epoch} {body.hex()[:80]}"
            )
    except KafkaError:
        found.append("a cut batch")
    return " | ".join(found)
