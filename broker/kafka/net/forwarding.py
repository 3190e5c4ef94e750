"""Requests that another node of the broker answers: handed over as they came, with their caller, and handed back.

A node forwards what it does not serve itself, by API key. The other node serves the request as one of its own
connections would, with the caller's principal and host; its answer goes to the client byte for byte. Without an answer
the connection closes, so that the client asks again. Where nothing is forwarded none of this is loaded.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from pqbroker.broker.ground.access import Principal
from pqbroker.broker.kafka.apis.context import KafkaNode, Peer
from pqbroker.broker.kafka.apis.exchange import Exchange
from pqbroker.broker.kafka.net.awaited_answer import AwaitedAnswer, AwaitedEnding
from pqbroker.broker.kafka.net.dispatch import Dispatcher
from pqbroker.broker.peers.link_rules import LinkBusy
from pqbroker.broker.peers.peer_frames import LinkBroken
from pqbroker.broker.peers.peer_link import PeerRefused
from pqbroker.conf.addresses import Address
from pqbroker.conf.shares import holder_of
from pqbroker.protocol.errors import ProtocolError

if TYPE_CHECKING:
    from pqbroker.broker.kafka.net.connection import Connection

_OF_PARTITIONS: Final = (0, 1, 2, 17, 18, 21, 23, 35, 36, 60, 61)
"""Produce, Fetch, ListOffsets, SaslHandshake, ApiVersions, DeleteRecords, OffsetForLeaderEpoch, DescribeLogDirs,
SaslAuthenticate, DescribeCluster, DescribeProducers: asked of a partition's node, or of each, or with the same answer
everywhere."""
_OF_COORDINATORS: Final = (8, 9, 11, 12, 13, 14, 16, 24, 25, 26, 28, 66, 68)
"""OffsetCommit, OffsetFetch, JoinGroup, Heartbeat, LeaveGroup, SyncGroup, ListGroups, AddPartitionsToTxn,
AddOffsetsToTxn, EndTxn, TxnOffsetCommit, ListTransactions, ConsumerGroupHeartbeat: NOT_COORDINATOR, or nothing to list,
where another node coordinates. Some wait for minutes, which a forwarded request may not."""
OWN_APIS: Final = frozenset((*_OF_PARTITIONS, *_OF_COORDINATORS))
"""Keys of the APIs that every node serves itself."""
KNOWN_APIS: Final = frozenset((3, 32, 75))
"""Keys of Metadata and DescribeTopicPartitions, which a node serves itself if it knows all topics that they name, and
of DescribeConfigs, which it serves for itself."""


class OtherNode(Protocol):
    """The way to the node that answers everything else."""

    @property
    def is_fresh(self) -> bool:
        """Return False once so little is known of the other nodes that this one must not answer."""

    async def forward(self, caller: dict[str, Any], frame: memoryview) -> bytes:
        """Have a request answered: its caller and its frame. PeerRefused, LinkBusy."""


CLOSES, ANSWERS = b"\1", b"\0"
"""First byte of a forwarded answer: the connection closes behind it, or stays."""


class Forwarder:
    """Stands before a dispatcher, and forwards the requests of all APIs but those of OWN_APIS and, where the node can
    answer, of KNOWN_APIS."""

    def __init__(
        self, dispatcher: Dispatcher, other: OtherNode, knows: Callable[[memoryview], bool] = lambda frame: False
    ) -> None:
        """`knows`: returns True for a request of KNOWN_APIS that this node can answer."""
        self._dispatcher = dispatcher
        self._other = other
        self._knows = knows

    def enter(self, _: "Connection") -> "Forwarder":
        """Return what serves a new connection's requests."""
        return self

    def begin(self, peer: Peer, frame: memoryview) -> Exchange:
        """Serve a request, or have it served. ProtocolError when the connection must close."""
        if not self._other.is_fresh:
            raise ProtocolError("this node has not heard of the first one for too long, so it answers nothing")
        key = int.from_bytes(frame[:2]) if len(frame) > 1 else None
        if key is None or key in OWN_APIS or (key in KNOWN_APIS and self._knows(frame)):
            return self._dispatcher.begin(peer, frame)
        return AwaitedAnswer(len(frame), _ending(self._other, _caller_of(peer), frame))


async def _ending(other: OtherNode, caller: dict[str, Any], frame: memoryview) -> AwaitedEnding:
    """Return what the other node has answered; without an answer the connection closes."""
    try:
        answered = memoryview(await other.forward(caller, frame))
    except (PeerRefused, LinkBusy):
        return None, True
    return [answered[1:]] if len(answered) > 1 else None, answered[:1] == CLOSES


async def answer_forwarded(node: KafkaNode, dispatcher: Dispatcher, caller: Any, frame: memoryview) -> bytes:
    """Serve a request of another node's client, and return what `_ending` takes. LinkBroken for a caller that is
    none."""
    peer = _peer_of(node, caller)
    try:
        exchange = dispatcher.begin(peer, memoryview(bytearray(frame)))
        await _until_done(exchange)
    except ProtocolError:
        return CLOSES
    finally:
        peer.leave()
    output: Any = exchange.output or ()
    return b"".join((CLOSES if exchange.must_close else ANSWERS, *output))


async def _until_done(exchange: Exchange) -> None:
    changed = asyncio.Event()
    exchange.listener = changed.set
    try:
        while not exchange.is_done:
            await changed.wait()
            changed.clear()
    except asyncio.CancelledError:
        exchange.leave()
        raise


def _caller_of(peer: Peer) -> dict[str, Any]:
    return {
        "principal": list(peer.principal), "host": peer.host, "port": peer.port,
        "address": [peer.address.host, peer.address.port],
    }  # fmt: skip


def _peer_of(node: KafkaNode, caller: Any) -> Peer:
    try:
        kind, name = caller["principal"]
        host, port = caller["address"]
        client_host, client_port = caller["host"], caller["port"]
    except (LookupError, TypeError, ValueError) as bad:
        raise LinkBroken(f"a forwarded request has no caller: {bad!r}") from None
    if not all(isinstance(text, str) for text in (kind, name, host, client_host)):
        raise LinkBroken("the caller of a forwarded request is no text")
    if not all(isinstance(number, int) and 0 <= number <= 65_535 for number in (port, client_port)):
        raise LinkBroken("the caller of a forwarded request has no port")
    return Peer(
        node=node, address=Address(host, port), host=client_host, port=client_port,
        holder=holder_of(client_host, client_port), principal=Principal(kind, name),
    )  # fmt: skip
