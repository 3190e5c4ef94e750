"""Every message at every version against kafka-python and kio, which read and write the same bytes."""

import io
import re
from collections import defaultdict
from typing import Any

import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.consumer.metadata
import kafka.protocol.metadata
import kafka.protocol.producer
import kafka.protocol.sasl
import pytest
from hypothesis import given, note, settings
from kio.serial import entity_reader, entity_writer

from pqbroker.protocol.codec import decoder, encoder
from pqbroker.protocol.primitives import ZERO_UUID
from pqbroker.protocol.schema import INT32, INT32_MIN, UUID, Field, Kind, message, wire_fields
from tests.protocol.strategies import every_version, kio_class, values
from tests.support.depth import examples

# Where ours differs from an oracle, with the reason. Empty: it differs nowhere.
DEVIATIONS: dict[tuple[str, int], str] = {}

KAFKA_PYTHON_MODULES = (
    kafka.protocol.admin,
    kafka.protocol.consumer,
    kafka.protocol.consumer.metadata,
    kafka.protocol.metadata,
    kafka.protocol.producer,
    kafka.protocol.sasl,
)

# What kafka-python has no message for; kio has.
UNKNOWN_TO_KAFKA_PYTHON = ("ConsumerGroupHeartbeat", "ConsumerGroupDescribe", "ShareGroupHeartbeat")
VERSIONS: defaultdict[type, list[int]] = defaultdict(list)
"""The versions of each message that are compared."""
for _declared, _version in every_version():
    if (_declared.__name__, _version) not in DEVIATIONS:
        VERSIONS[_declared].append(_version)
FEW = settings(max_examples=examples(5, least=2), deadline=None, database=None)


@pytest.mark.parametrize("declared", VERSIONS, ids=lambda declared: declared.__name__)
def test_oracles_read_what_we_write_and_write_what_we_read_in_each_version(declared: type) -> None:
    for version in VERSIONS[declared]:
        compare(declared, version)


def compare(declared: type, version: int) -> None:
    """Compare some values of a message at a version with each oracle that has it."""

    @FEW
    @given(ours=values(declared, version))
    def compare_one(ours: Any) -> None:
        note(f"version {version}")
        if not declared.__name__.startswith(UNKNOWN_TO_KAFKA_PYTHON):
            compare_with_kafka_python(ours, version)
        oracle = kio_class(declared, version)
        if oracle is not None:  # kio has no versions below those of Kafka 4
            compare_with_kio(ours, version, oracle)

    compare_one()


def compare_with_kafka_python(ours: Any, version: int) -> None:
    declared = type(ours)
    theirs = kafka_python_reads(encoded(ours, version), declared, version)
    assert plain(theirs, declared, version) == plain(ours, declared, version)
    written = kafka_python_writes(theirs, declared, version)
    assert decoder(declared, version)(memoryview(written)) == ours


def compare_with_kio(ours: Any, version: int, oracle: Any) -> None:
    ours_encoded = encoded(ours, version)
    theirs, size = entity_reader(oracle)(ours_encoded, 0)
    assert size == len(ours_encoded)
    written = io.BytesIO()
    entity_writer(oracle)(written, theirs)
    assert decoder(type(ours), version)(memoryview(written.getvalue())) == ours


def kafka_python_class(declared: type) -> Any:
    return next(found for module in KAFKA_PYTHON_MODULES if (found := getattr(module, declared.__name__, None)))


def kafka_python_reads(encoded: bytes, declared: type, version: int) -> Any:
    """Decode with its compiled struct: its own `decode` reads an ApiVersions response with an error as version 0."""
    oracle, flexible = kafka_python_class(declared), version in message(declared).flexible
    read = oracle._struct.compiled_decode_from(version, compact=flexible, tagged=flexible, data_class=oracle)
    theirs, size = read(memoryview(encoded), 0)
    assert size == len(encoded)
    return theirs


def kafka_python_writes(theirs: Any, declared: type, version: int) -> bytes:
    flexible = version in message(declared).flexible
    return bytes(theirs._struct.encode(theirs, version=version, compact=flexible, tagged=flexible))


def encoded(value: object, version: int) -> bytes:
    return b"".join(encoder(type(value), version)(value))


def plain(value: Any, declared: type, version: int) -> dict[str, Any]:
    """The fields that travel, as dicts and lists: the same for an oracle's object and for ours.

    kafka-python says None for a zero id, and has the bits of authorized operations as a set under another name.
    """
    fields = {}
    for item in wire_fields(declared, version):
        name = item.name if hasattr(value, item.name) else re.sub("^(cluster|topic)_", "", item.name)
        fields[item.name] = plain_field(getattr(value, name), item, version)
    return fields


def plain_field(value: Any, item: Field, version: int) -> Any:
    kind = item.kind
    if not isinstance(kind, Kind):
        if value is None or item.tag is None:
            return None if value is None else plain(value, kind, version)
        return None if value == kind() else plain_struct(value, kind, version)
    if isinstance(kind.element, type) and value is not None:
        return [plain(element, kind.element, version) for element in value]
    if kind is UUID and not isinstance(value, bytes):
        return ZERO_UUID if value is None else value.bytes
    if kind is INT32 and not isinstance(value, int):
        return INT32_MIN if value is None else signed(sum(1 << bit for bit in value))
    return bytes(value) if isinstance(value, memoryview) else value


def signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value


def plain_struct(value: Any, declared: type, version: int) -> dict[str, Any] | None:
    fields = plain(value, declared, version)
    return None if fields == plain(declared(), declared, version) else fields
