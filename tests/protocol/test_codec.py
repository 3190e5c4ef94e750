"""Decoding refuses what is malformed, quickly and in bounded memory, and never copies record data."""

import contextlib
import time
import tracemalloc
from collections.abc import Callable, Generator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pqbroker.protocol.codec import decoder, encoder, sliced_decoder, sliced_encoder
from pqbroker.protocol.errors import ProtocolError, TooManyElements
from pqbroker.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from pqbroker.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from pqbroker.protocol.messages.delete_topics import DeleteTopicsRequest
from pqbroker.protocol.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from pqbroker.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from pqbroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pqbroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pqbroker.protocol.primitives import ELEMENTS_MAX, unsigned_varint
from tests.protocol.strategies import every_version, values
from tests.support.depth import examples

FUZZED_BYTES_MAX = 1 << 20


def encoded(value: object, version: int) -> bytes:
    return b"".join(encoder(type(value), version)(value))


def decode_metadata(version: int, body: bytes) -> MetadataRequest:
    return decoder(MetadataRequest, version)(memoryview(body))


def produce_request(records: memoryview | None) -> ProduceRequest:
    topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=3, records=records)])
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])


def test_produce_request_version_9_has_these_bytes() -> None:
    expected = "00 ffff 00007530 02 02 74 02 00000003 04 616263 00 00 00"
    assert encoded(produce_request(memoryview(b"abc")), 9) == bytes.fromhex(expected)


def test_produce_request_version_3_has_these_bytes() -> None:
    expected = "ffff ffff 00007530 00000001 0001 74 00000001 00000003 00000003 616263"
    assert encoded(produce_request(memoryview(b"abc")), 3) == bytes.fromhex(expected)


def test_api_versions_response_puts_features_into_tags() -> None:
    features = [FinalizedFeatureKey(name="f", max_version_level=2, min_version_level=1)]
    answer = ApiVersionsResponse(
        api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)],
        finalized_features_epoch=7,
        finalized_features=features,
    )
    expected = "0000 02 0012 0000 0004 00 00000000 02 01 08 0000000000000007 02 08 02 02 66 0002 0001 00"
    assert encoded(answer, 3) == bytes.fromhex(expected)


def test_defaults_are_those_of_kafka() -> None:
    decoded = decode_metadata(0, bytes.fromhex("00000000"))
    assert decoded == MetadataRequest(topics=[], allow_auto_topic_creation=True)


def test_decoded_record_data_is_a_slice_of_the_input() -> None:
    body = memoryview(bytearray(encoded(produce_request(memoryview(b"abc")), 9)))
    records = decoder(ProduceRequest, 9)(body).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    records[0] = ord("x")
    assert b"xbc" in bytes(body)


def test_encoded_record_data_is_the_very_buffers_given() -> None:
    buffers: list[bytearray | bytes | memoryview] = [bytearray(b"one"), memoryview(b"two")]
    partition = PartitionData(partition_index=0, records=buffers)
    answer = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])
    out = encoder(FetchResponse, 12)(answer)
    assert [len(out), out[1] is buffers[0], out[2] is buffers[1]] == [4, True, True]
    records = decoder(FetchResponse, 12)(memoryview(b"".join(out))).responses[0].partitions[0].records
    assert isinstance(records, memoryview)
    assert bytes(records) == b"onetwo"


def test_a_struct_that_may_be_null_starts_with_a_byte_that_tells() -> None:
    request = DescribeTopicPartitionsRequest(response_partition_limit=5)
    assert encoded(request, 0) == bytes.fromhex("01 00000005 ff 00")
    request.cursor = Cursor(topic_name="t", partition_index=3)
    expected = bytes.fromhex("01 00000005 01 02 74 00000003 00 00")
    assert encoded(request, 0) == expected
    assert decoder(DescribeTopicPartitionsRequest, 0)(memoryview(expected)) == request


def test_bytes_are_copied_out_of_the_input() -> None:
    body = memoryview(bytearray(encoded(ConsumerProtocolAssignment(user_data=b"abc"), 0)))
    decoded = decoder(ConsumerProtocolAssignment, 0)(body)
    body[-1] = ord("x")
    assert decoded.user_data == b"abc"


def test_a_subscription_of_the_future_is_read_as_far_as_it_is_known() -> None:
    body = encoded(ConsumerProtocolSubscription(topics=["t"]), 3) + b"later"
    assert decoder(ConsumerProtocolSubscription, 3)(memoryview(body)).topics == ["t"]


def test_unknown_tagged_fields_are_skipped() -> None:
    body = bytes.fromhex("02 74") + bytes.fromhex("02 78") + b"\x02" + b"\x63\x03abc" + b"\x81\x01\x00"
    decoded = decoder(ApiVersionsRequest, 3)(memoryview(body))
    assert decoded == ApiVersionsRequest(client_software_name="t", client_software_version="x")


@pytest.mark.parametrize(
    ("version", "body", "complaint"),
    [
        (4, "00000000", "too early"),
        (4, "", "too early"),
        (0, "ffffffff", "topics"),
        (1, "fffffffe", "topics"),
        (4, "7fffffff 00", "topics"),
        (4, "0000000f 00", "topics"),
        (9, "ffffffff0f 00", "topics"),
        (9, "ffffffffff01 00", "longer than 5 bytes"),
        (4, "00000001 fffe 01", "name"),
        (4, "00000001 ffff 01", "null in name"),
        (9, "02 00 00 01 00 00 00", "null in name"),
        (4, "00000001 0009 7474 01", "name"),
        (4, "00000001 0002 c328 01", "UTF-8"),
        (9, "01 01 00 00 01 05 7f 00", "tagged field"),
        (9, "01 01 00 00 ffffffff0f", "tagged fields"),
    ],
)
def test_a_malformed_request_is_a_protocol_error(version: int, body: str, complaint: str) -> None:
    with pytest.raises(ProtocolError, match=complaint):
        decode_metadata(version, bytes.fromhex(body))


def test_bytes_after_a_request_are_passed_over_as_kafka_does() -> None:
    librdkafka_asks_for_all_topics = bytes.fromhex("00 00 00 00 01 00 00")
    assert decode_metadata(13, librdkafka_asks_for_all_topics).topics is None


def test_bytes_after_a_response_are_a_protocol_error() -> None:
    body = b"".join(encoder(ApiVersionsResponse, 0)(ApiVersionsResponse()))
    with pytest.raises(ProtocolError, match="followed by 1 bytes"):
        decoder(ApiVersionsResponse, 0)(memoryview(body + b"x"))


@pytest.mark.parametrize(
    ("tags", "complaint"),
    [
        ("01 01 09 0000000000000007 00", "finalized_features_epoch is not as long"),
        ("01 63 09 00", "tagged field runs past the end"),
        ("ffffffff0f 63 00", "elements"),
    ],
)
def test_malformed_tagged_fields_beside_known_ones_are_a_protocol_error(tags: str, complaint: str) -> None:
    body = bytes.fromhex("0000 01 00000000" + tags)
    with pytest.raises(ProtocolError, match=complaint):
        decoder(ApiVersionsResponse, 3)(memoryview(body))


def test_null_is_taken_where_the_version_allows_it() -> None:
    assert decode_metadata(1, bytes.fromhex("ffffffff")).topics is None
    by_id = decode_metadata(12, bytes.fromhex("02" + "00" * 16 + "00 00 01 00 00"))
    assert by_id.topics == [MetadataRequestTopic(name=None)]


def test_a_field_that_the_version_has_not_is_not_sent() -> None:
    assert encoded(MetadataRequest(allow_auto_topic_creation=False), 3) == bytes.fromhex("00000000")


def peak_bytes(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def refused(version: int, body: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_metadata(version, body)


def test_a_claimed_count_takes_no_memory() -> None:
    assert peak_bytes(lambda: refused(4, b"\x00\x0f\xff\xff" + bytes(100))) < 100_000


def test_more_elements_than_the_limit_are_refused_before_they_are_made() -> None:
    body = unsigned_varint(ELEMENTS_MAX + 2) + b"\x01" * (3 * ELEMENTS_MAX)
    assert peak_bytes(lambda: refused(9, body)) < 100_000


def test_elements_of_all_arrays_count_together() -> None:
    tags = unsigned_varint(400) + b"\x63\x00" * 400
    topic = b"\x02t" + tags
    body = memoryview(b"\x03" + topic + topic + b"\x01\x00\x00\x00")
    assert len(decoder(MetadataRequest, 9)(body, 802).topics or ()) == 2
    with pytest.raises(TooManyElements, match="more elements"):
        decoder(MetadataRequest, 9)(body, 801)


def test_a_struct_has_at_most_a_thousand_unknown_tagged_fields() -> None:
    tags = unsigned_varint(1001) + b"\x63\x00" * 1001
    with pytest.raises(ProtocolError, match="1001 unknown tagged fields; the most allowed is 1000"):
        decode_metadata(9, b"\x01\x01\x00\x00" + tags)


def test_a_string_is_at_most_as_long_as_kafka_allows() -> None:
    def named(size: int) -> bytes:
        return b"\x02" + unsigned_varint(size + 1) + b"t" * size + b"\x00\x01\x00\x00\x00"

    topics = decode_metadata(9, named(32_767)).topics
    assert topics is not None
    assert len(topics[0].name or "") == 32_767
    with pytest.raises(ProtocolError, match="a string is longer than 32767 bytes"):
        decode_metadata(9, named(32_768))


@settings(max_examples=examples(200), deadline=None, database=None)
@given(data=st.data(), pair=st.sampled_from(every_version()))
def test_in_slices_a_message_is_the_same(data: st.DataObject, pair: tuple[type[Any], int]) -> None:
    declared, version = pair
    value = data.draw(values(declared, version))
    body = encoded(value, version)
    encoding = sliced_encoder(declared, version)(value)
    assert b"".join(map(bytes, result_of(encoding))) == body
    decoded, _ = result_of(sliced_decoder(declared, version)(memoryview(body)))
    assert encoded(decoded, version) == body


def test_a_long_message_pauses_after_each_element() -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=f"t{number}") for number in range(2000)])
    body = encoded(request, 9)
    decoding = sliced_decoder(MetadataRequest, 9)(memoryview(body))
    assert sum(1 for _ in decoding) == 2000
    sizes = list(sliced_encoder(MetadataRequest, 9)(request))
    assert len(sizes) == 2000
    assert len(body) - 4000 < sum(sizes) <= len(body)


def result_of(work: Generator[Any, None, Any]) -> Any:
    while True:
        try:
            next(work)
        except StopIteration as done:
            return done.value


@settings(max_examples=examples(300), deadline=None, database=None)
@given(pair=st.sampled_from(every_version()), body=st.binary(max_size=200))
def test_random_bytes_decode_or_are_a_protocol_error(pair: tuple[type, int], body: bytes) -> None:
    decode_or_refuse(*pair, body)


@settings(max_examples=examples(300), deadline=None, database=None)
@given(data=st.data(), pair=st.sampled_from(every_version()))
def test_damaged_messages_decode_or_are_a_protocol_error(data: st.DataObject, pair: tuple[type, int]) -> None:
    body = bytearray(encoded(data.draw(values(*pair)), pair[1]))
    for _ in range(data.draw(st.integers(1, 4))):
        if body:
            body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
    decode_or_refuse(*pair, bytes(body[: data.draw(st.integers(0, len(body)))]))


def decode_or_refuse(declared: type[object], version: int, body: bytes) -> None:
    decode = decoder(declared, version)
    started = time.thread_time()

    def attempt() -> None:
        with contextlib.suppress(ProtocolError):
            decode(memoryview(body))

    assert peak_bytes(attempt) < FUZZED_BYTES_MAX
    assert time.thread_time() - started < 1


def test_array_of_strings_round_trips() -> None:
    sent = DeleteTopicsRequest(topic_names=["a", "bé", ""], timeout_ms=5)
    assert decoder(DeleteTopicsRequest, 4)(memoryview(encoded(sent, 4))) == sent
