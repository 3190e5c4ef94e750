"""Words of a request: found where its body begins as expected, and only as many as a connection keeps."""

import pytest

from pqbroker.broker.kafka.lanes.words import BODY_AT, WORDS_BYTES_MAX, find_words
from pqbroker.protocol.messages.fetch import FetchRequest
from tests.broker.wire import request_frame


def frame_of(client: bytes) -> memoryview:
    """Without the bytes that say how long it is."""
    return memoryview(request_frame(FetchRequest(topics=[]), 12, 7, client_id=client))[4:]


def test_words_reach_from_the_correlation_id_to_where_the_body_may_differ() -> None:
    frame = frame_of(b"c")
    words = find_words(frame, b"\xff\xff\xff\xff")
    assert words is not None
    assert (words.api, words.is_flexible) == (b"\0\x01\0\x0c", True)
    assert words.start == bytes(frame[BODY_AT : words.end])
    assert words.start.endswith(b"c\0\xff\xff\xff\xff")


def test_a_body_that_begins_otherwise_has_no_words() -> None:
    assert find_words(frame_of(b"c"), b"\xff\xff\xff\xfe") is None


@pytest.mark.parametrize("more", [0, 1])
def test_words_over_their_limit_are_none(more: int) -> None:
    least = find_words(frame_of(b""), b"\xff")
    assert least is not None
    client = b"c" * (WORDS_BYTES_MAX - len(least.start) + more)
    assert (find_words(frame_of(client), b"\xff") is None) is bool(more)
