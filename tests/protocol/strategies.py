"""Random messages built from their declarations, and which messages there are."""

import importlib
import pkgutil
import re
from dataclasses import MISSING
from typing import Any

from hypothesis import strategies as st
from kio.schema.index import api_key_map

from pqbroker.protocol import messages
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.records import Record, encode_batch
from pqbroker.protocol.schema import (
    BOOL,
    BYTES,
    ERROR_CODE,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UINT16,
    UUID,
    Field,
    Kind,
    message,
    wire_fields,
)

SCALARS: dict[Kind[Any], st.SearchStrategy[Any]] = {
    BOOL: st.booleans(),
    INT8: st.integers(-(1 << 7), (1 << 7) - 1),
    INT16: st.integers(-(1 << 15), (1 << 15) - 1),
    UINT16: st.integers(0, (1 << 16) - 1),
    ERROR_CODE: st.sampled_from(ErrorCode),
    INT32: st.integers(-(1 << 31), (1 << 31) - 1),
    INT64: st.integers(-(1 << 63), (1 << 63) - 1),
    UUID: st.binary(min_size=16, max_size=16),
    STRING: st.text(max_size=20) | st.text("aé€𝄞", min_size=100, max_size=200),
    BYTES: st.binary(max_size=200),
    FLOAT64: st.floats(allow_nan=False),
    RECORDS: st.binary(max_size=300).map(memoryview),
}

# The oracle kio knows times of day only.
BY_NAME = {
    "session_lifetime_ms": st.integers(-1, 1 << 41),
    "retention_time_ms": st.integers(-1, 1 << 41),
    "transaction_start_time_ms": st.integers(0, 1 << 41),
    "log_append_time_ms": st.just(-1) | st.integers(0, 1 << 41),
}


def message_classes() -> list[type]:
    """Every declared request and response, and the data that consumers put into those of groups."""
    found = []
    for module in pkgutil.iter_modules(messages.__path__, messages.__name__ + "."):
        names = vars(importlib.import_module(module.name))
        found += [item for item in names.values() if isinstance(item, type) and is_message(item)]
    return found


def is_message(declared: type) -> bool:
    try:
        return bool(message(declared))
    except KeyError:
        return False


def every_version() -> list[tuple[type, int]]:
    return [
        (declared, version)
        for declared in message_classes()
        for version in range(message(declared).versions.low, message(declared).versions.high + 1)
    ]


def kio_class(declared: type, version: int) -> Any:
    """kio's class for a message at a version; None below the versions of Kafka 4, which it has not."""
    key = message(declared).api_key
    if key is None:
        name = re.sub("(?<=[a-z])(?=[A-Z])", "_", declared.__name__).lower()
        return getattr(importlib.import_module(f"kio.schema.{name}.v{version}.data"), declared.__name__)
    api = api_key_map[key]
    kind = "request" if declared.__name__.endswith("Request") else "response"
    try:
        return getattr(importlib.import_module(f"kio.schema.{api}.v{version}.{kind}"), declared.__name__)
    except ModuleNotFoundError:
        return None


def values(declared: type, version: int) -> st.SearchStrategy[Any]:
    """Objects of a struct with random values in the fields that the version has, defaults elsewhere."""
    return st.builds(declared, **{item.name: field_values(item, version) for item in wire_fields(declared, version)})


def field_values(item: Field, version: int) -> st.SearchStrategy[Any]:
    if item.name in BY_NAME:
        return BY_NAME[item.name]
    if not isinstance(item.kind, Kind):
        sent = values(item.kind, version)
        if item.tag is not None:
            # Kafka does not send a tagged struct of defaults; ours is None then.
            sent = sent.filter(lambda made: made != type(made)())
        return sent if item.default is MISSING else st.none() | sent
    content = kind_values(item.kind, version)
    return st.none() | content if item.is_nullable(version) else content


def kind_values(kind: Kind[Any] | type, version: int) -> st.SearchStrategy[Any]:
    if not isinstance(kind, Kind):
        return values(kind, version)
    if kind.element is not None:
        return st.lists(kind_values(kind.element, version), max_size=3)
    return SCALARS[kind]


small_bytes = st.none() | st.binary(max_size=40)
records = st.builds(
    Record,
    timestamp=st.integers(0, 1 << 42),
    key=small_bytes,
    value=small_bytes,
    headers=st.lists(st.tuples(st.text(max_size=10), small_bytes), max_size=3).map(tuple),
)
record_batches = st.builds(
    encode_batch,
    st.lists(records, min_size=1, max_size=8),
    base_offset=st.integers(0, 1 << 50),
    codec=st.integers(0, 4),
)
