"""Error codes are fields of a kind of their own: the encoder reports each one that is sent, clients read any."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pqbroker.protocol.codec import decoder, encoder, sliced_encoder
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.elect_leaders import ElectLeadersResponse
from pqbroker.protocol.messages.heartbeat import HeartbeatResponse
from pqbroker.protocol.schema import ERROR_CODE, Field, Kind, message, wire_fields
from tests.protocol.strategies import every_version, message_classes, values
from tests.support.depth import examples

RESPONSES = [declared for declared in message_classes() if declared.__name__.endswith("Response")]


def declared_fields(declared: type) -> Iterator[Field]:
    """Every field of a message in any version, at any depth."""
    for version in range(message(declared).versions.low, message(declared).versions.high + 1):
        yield from fields_of(declared, version)


def fields_of(declared: type, version: int) -> Iterator[Field]:
    for item in wire_fields(declared, version):
        yield item
        kind = item.kind.element if isinstance(item.kind, Kind) else item.kind
        if kind is not None and not isinstance(kind, Kind):
            yield from fields_of(kind, version)


def codes_sent(value: Any, version: int) -> list[ErrorCode]:
    """The codes in a message that a version has, found by name and not by kind."""
    if isinstance(value, list):
        return [code for each in value for code in codes_sent(each, version)]
    if not is_dataclass(value):
        return []
    sent = {item.name for item in wire_fields(type(value), version)}
    codes = []
    for item in fields(value):
        found = getattr(value, item.name)
        if item.name in sent and item.name.endswith("error_code"):
            codes += [found] if found else []
        elif item.name in sent:
            codes += codes_sent(found, version)
    return codes


@pytest.mark.parametrize("declared", RESPONSES)
def test_what_is_called_an_error_code_is_declared_as_one(declared: type) -> None:
    named = {item.name for item in declared_fields(declared) if item.name.endswith("error_code")}
    assert named == {item.name for item in declared_fields(declared) if item.kind is ERROR_CODE}


@given(st.data())
@settings(max_examples=examples(100), deadline=None)
def test_both_encoders_report_each_code_that_they_write(data: st.DataObject) -> None:
    declared, version = data.draw(st.sampled_from([one for one in every_version() if one[0] in RESPONSES]))
    response: Any = data.draw(values(declared, version))
    at_once: list[ErrorCode] = []
    encoder(declared, version)(response, at_once.append)
    in_slices: list[ErrorCode] = []
    for _ in sliced_encoder(declared, version)(response, in_slices.append):
        pass
    assert sorted(at_once) == sorted(in_slices) == sorted(codes_sent(response, version))


def test_a_code_that_the_version_does_not_have_is_not_reported() -> None:
    codes: list[ErrorCode] = []
    encoder(ElectLeadersResponse, 0)(ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST), codes.append)
    assert codes == []
    encoder(ElectLeadersResponse, 1)(ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST), codes.append)
    assert codes == [ErrorCode.INVALID_REQUEST]


@pytest.mark.parametrize(("code", "name"), [(42, "INVALID_REQUEST"), (0, "NONE"), (12_345, "UNKNOWN_12345")])
def test_a_client_reads_every_code_known_or_not(code: int, name: str) -> None:
    sent = b"".join(map(bytes, encoder(HeartbeatResponse, 0)(HeartbeatResponse(error_code=ErrorCode(code)))))
    read = decoder(HeartbeatResponse, 0)(memoryview(sent)).error_code
    assert type(read) is ErrorCode
    assert (read, read.name) == (code, name)
    assert read in {ErrorCode(code)}


def test_what_is_no_number_is_no_error_code() -> None:
    with pytest.raises(ValueError, match="timeout"):
        ErrorCode("timeout")  # type: ignore[arg-type]
