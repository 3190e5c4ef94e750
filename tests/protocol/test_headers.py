"""Headers follow from the API's key and version."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pqbroker.protocol.errors import ProtocolError
from pqbroker.protocol.headers import RequestHeader, decode_request_header, encode_response_header
from pqbroker.protocol.schema import message
from tests.protocol.strategies import every_version, kio_class
from tests.support.depth import examples

REQUESTS = [(declared, version) for declared, version in every_version() if declared.__name__.endswith("Request")]


def test_a_flexible_request_keeps_a_plain_client_id_before_its_tags() -> None:
    frame = memoryview(bytes.fromhex("0000 0009 00000007 0002 6162 01 05 02 7878 ee"))
    assert decode_request_header(frame) == (RequestHeader(0, 9, 7, "ab"), len(frame) - 1)


def test_an_older_request_has_no_tags() -> None:
    frame = memoryview(bytes.fromhex("0000 0008 00000007 0002 6162 01"))
    assert decode_request_header(frame) == (RequestHeader(0, 8, 7, "ab"), len(frame) - 1)


def test_a_client_id_may_be_null() -> None:
    assert decode_request_header(memoryview(bytes.fromhex("0000 0008 00000007 ffff")))[0].client_id is None


def test_an_api_versions_request_of_the_future_has_a_flexible_header() -> None:
    frame = memoryview(bytes.fromhex("0012 0063 00000007 0000 00 ff"))
    assert decode_request_header(frame) == (RequestHeader(18, 99, 7, ""), len(frame) - 1)


def test_an_unknown_api_is_read_as_an_older_one() -> None:
    frame = memoryview(bytes.fromhex("7fff 0063 00000007 0000 00"))
    assert decode_request_header(frame) == (RequestHeader(32_767, 99, 7, ""), len(frame) - 1)


def test_a_response_of_a_flexible_version_has_tags() -> None:
    assert encode_response_header(0, 9, 7) == bytes.fromhex("00000007 00")
    assert encode_response_header(0, 8, 7) == bytes.fromhex("00000007")


def test_an_api_versions_response_never_has_tags() -> None:
    assert encode_response_header(18, 3, 7) == bytes.fromhex("00000007")


@pytest.mark.parametrize(
    "frame",
    [
        "",
        "0000 0008 000000",
        "0000 0008 00000007 0003 6162",
        "0000 0008 00000007 fffe",
        "0000 0008 00000007 0002 c328",
        "0000 0009 00000007 0000",
        "0000 0009 00000007 0000 01 05 03 7878",
        "0000 0009 00000007 0000 ffffffffff",
    ],
)
def test_a_malformed_header_is_a_protocol_error(frame: str) -> None:
    with pytest.raises(ProtocolError):
        decode_request_header(memoryview(bytes.fromhex(frame)))


@settings(max_examples=examples(200), deadline=None, database=None)
@given(frame=st.binary(max_size=40))
def test_random_bytes_are_a_header_or_a_protocol_error(frame: bytes) -> None:
    try:
        _, position = decode_request_header(memoryview(frame))
    except ProtocolError:
        return
    assert position <= len(frame)


def test_kio_takes_the_same_header_version() -> None:
    compared = 0
    for declared, version in REQUESTS:
        oracle = kio_class(declared, version)
        if oracle is not None:  # kio has no versions below those of Kafka 4
            compared += 1
            expected = 2 if version in message(declared).flexible else 1
            assert oracle.__header_schema__.__version__ == expected, (declared, version)
    assert compared > len(REQUESTS) // 4
