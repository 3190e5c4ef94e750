"""Requests that another node answers: what a node whose knowledge is old does, and callers that are none."""

import asyncio
from typing import Any, cast

import pytest

from pqbroker.broker.ground.access import Principal
from pqbroker.broker.kafka.apis.context import Peer
from pqbroker.broker.kafka.net.forwarding import ANSWERS, CLOSES, Forwarder, answer_forwarded
from pqbroker.broker.kafka.net.mirrored_topics import TOPICS_MAX, knows_all
from pqbroker.broker.peers.peer_frames import LinkBroken
from pqbroker.broker.peers.peer_link import PeerRefused
from pqbroker.conf.addresses import Address
from pqbroker.protocol.codec import encoder
from pqbroker.protocol.errors import ProtocolError
from pqbroker.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from pqbroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

CALLER = {"principal": ["User", "me"], "host": "192.0.2.7", "port": 5000, "address": ["127.0.0.1", 9092]}
PEER = Peer(cast(Any, None), Address("127.0.0.1", 9092), "192.0.2.7", 5000, principal=Principal("User", "me"))
METADATA = memoryview(b"\0\3\0\0rest")


class Other:
    """The way to another node, which answers `answer`."""

    def __init__(self, answer: bytes | Exception, *, is_fresh: bool = True) -> None:
        self.is_fresh = is_fresh
        self._answer = answer
        self.asked: list[Any] = []

    async def forward(self, caller: dict[str, Any], frame: memoryview) -> bytes:
        self.asked.append((caller, bytes(frame)))
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


async def _exchange(other: Other) -> tuple[bytes | None, bool]:
    exchange = Forwarder(cast(Any, None), other).begin(PEER, METADATA)
    done = asyncio.Event()
    exchange.listener = done.set
    await done.wait()
    output = None if exchange.output is None else b"".join(cast(Any, exchange.output))
    return output, exchange.must_close


async def test_a_request_goes_with_its_caller_and_the_answer_comes_as_it_is() -> None:
    other = Other(ANSWERS + b"\0\0\0\1x")
    assert await _exchange(other) == (b"\0\0\0\1x", False)
    assert other.asked == [(CALLER, bytes(METADATA))]


@pytest.mark.parametrize(
    ("answer", "output"), [(CLOSES, None), (CLOSES + b"last", b"last"), (PeerRefused("gone"), None)]
)
async def test_the_connection_closes_where_the_other_node_says_so_or_does_not_answer(
    answer: bytes | Exception, output: bytes | None
) -> None:
    assert await _exchange(Other(answer)) == (output, True)


async def test_a_node_that_has_heard_nothing_for_too_long_answers_nothing() -> None:
    forwarder = Forwarder(cast(Any, None), Other(ANSWERS, is_fresh=False))
    for frame in (METADATA, memoryview(b"\0\0\0\x09produce"), memoryview(b"\0\1\0\x0cfetch")):
        with pytest.raises(ProtocolError, match="has not heard of the first one for too long"):
            forwarder.begin(PEER, frame)


@pytest.mark.parametrize(
    "change",
    [
        {"principal": "somebody"}, {"principal": ["User", 5]}, {"host": None}, {"port": -1}, {"port": 65_536},
        {"port": "x"}, {"address": ["h"]}, {"address": [1, 2]},
    ],
)  # fmt: skip
async def test_a_caller_that_is_none_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(LinkBroken):
        await answer_forwarded(cast(Any, None), cast(Any, None), {**CALLER, **change}, METADATA)
    with pytest.raises(LinkBroken):
        await answer_forwarded(cast(Any, None), cast(Any, None), [], METADATA)


class Known:
    """Topics of a mirror: one."""

    def get(self, name: str, *, or_static: bool) -> str | None:
        return name if name == "known" else None

    def by_id(self, topic_id: bytes) -> bytes | None:
        return topic_id if topic_id == b"\1" * 16 else None


def _frame(key: int, version: int, request: Any) -> memoryview:
    header = key.to_bytes(2) + version.to_bytes(2) + b"\0\0\0\7\xff\xff" + (b"\0" if version > 8 or key == 75 else b"")
    return memoryview(header + b"".join(encoder(type(request), version)(request)))


@pytest.mark.parametrize(
    ("frame", "is_known"),
    [
        (_frame(3, 5, MetadataRequest(topics=None)), True),
        (_frame(3, 5, MetadataRequest(topics=[MetadataRequestTopic(name="known")])), True),
        (_frame(3, 5, MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in ("known", "new")])), False),
        (_frame(3, 12, MetadataRequest(topics=[MetadataRequestTopic(topic_id=b"\1" * 16, name=None)])), True),
        (_frame(3, 12, MetadataRequest(topics=[MetadataRequestTopic(topic_id=b"\2" * 16, name=None)])), False),
        (_frame(3, 12, MetadataRequest(topics=[MetadataRequestTopic(name="known")] * (TOPICS_MAX + 1))), False),
        (_frame(75, 0, DescribeTopicPartitionsRequest()), True),
        (_frame(75, 0, DescribeTopicPartitionsRequest(topics=[TopicRequest(name="new")])), False),
        (memoryview(b"\0\3\0\x63\0\0\0\7\xff\xff"), False),
        (memoryview(b"\0\3\0\5\0\0\0\7\xff\xff\0"), False),
        (memoryview(b"\0\1"), False),
    ],
)
def test_a_node_answers_for_topics_that_its_mirror_has(frame: memoryview, is_known: bool) -> None:
    assert knows_all(lambda: cast(Any, Known()), frame) is is_known
