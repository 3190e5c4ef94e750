"""Requests that another node answers: what a node whose knowledge is old does, and callers that are none."""

import asyncio
from typing import Any, cast

import pytest

from pqbroker.broker.ground.access import Principal
from pqbroker.broker.kafka.apis.context import Peer
from pqbroker.broker.kafka.net.forwarding import ANSWERS, CLOSES, Forwarder, answer_forwarded
from pqbroker.broker.peers.peer_frames import LinkBroken
from pqbroker.broker.peers.peer_link import PeerRefused
from pqbroker.conf.addresses import Address
from pqbroker.protocol.errors import ProtocolError

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
