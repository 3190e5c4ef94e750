"""Ends of the peer link in a broker of several nodes: node 1 opens the system cell and the door; the others come to it,
and forward what they do not serve themselves.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from pqbroker.broker.kafka.net.dispatch import Dispatcher
from pqbroker.broker.kafka.net.forwarding import Forwarder, answer_forwarded
from pqbroker.broker.node.node_place import FIRST, NodePlace
from pqbroker.broker.node.parts import Node
from pqbroker.broker.peers.peer_frames import LinkBroken
from pqbroker.broker.peers.peer_link import PeerDoor, PeerLink, PeerRefused, come_to_door
from pqbroker.broker.peers.peer_methods import PeerMethod, decode_peer_call, encode_peer_call

log = logging.getLogger(__name__)

OWN_APIS: Final = (17, 18, 36)
"""Keys of the APIs that every node serves itself: SaslHandshake, ApiVersions, SaslAuthenticate."""
_COMES_AGAIN_S: Final = 0.1
"""Seconds between tries to reach the first node."""


class FirstPlace:
    """The link's door at the first node: what the others forward is answered here."""

    def __init__(self, place: NodePlace, node: Node, dispatcher: Dispatcher) -> None:
        self._node = node
        self._dispatcher = dispatcher
        self._path = place.door
        self._door = PeerDoor(place.terms, self, links_max=2 * place.count)
        self.entrance = dispatcher

    async def start(self) -> None:
        """Open the door. OSError."""
        await self._door.open(self._path)

    async def stop(self) -> None:
        await self._door.close()

    def opened(self, link: PeerLink) -> None:
        log.info("node %d is linked", link.node)

    def noted(self, link: PeerLink, payload: bytes) -> None:
        """No note is known."""
        raise LinkBroken("a note came, and the first node takes none")

    async def answer(self, link: PeerLink, payload: bytes) -> bytes:
        """Answer what another node forwards. PeerRefused."""
        try:
            method, head, body = decode_peer_call(payload)
            if method is not PeerMethod.KAFKA:
                raise LinkBroken(f"a request {method.name} came to the first node")
            return await answer_forwarded(self._node, self._dispatcher, head, body)
        except LinkBroken as broken:
            raise PeerRefused(str(broken)) from broken

    def closed(self, link: PeerLink, why: str) -> None:
        log.warning("the link of node %d closed: %s", link.node, why)


class MemberPlace:
    """The link of another node to the first one, which is come to again whenever it closes."""

    def __init__(self, place: NodePlace, node: Node, dispatcher: Dispatcher) -> None:
        self._place = place
        self._timeout_s: Callable[[], float] = lambda: node.settings.peer_request_timeout_ms / 1000
        self._silence_s = place.terms.silence_s
        self._link: PeerLink | None = None
        self._open = asyncio.Event()
        self._lost = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.entrance = Forwarder(dispatcher, OWN_APIS, self._forward)

    async def start(self) -> None:
        """Begin to come to the first node, for as long as this one runs."""
        self._task = asyncio.get_running_loop().create_task(self._keep_linked())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._link is not None:
            self._link.close("this node stops")

    def opened(self, link: PeerLink) -> None:
        self._open.set()

    def noted(self, link: PeerLink, payload: bytes) -> None:
        """No note is known."""
        raise LinkBroken("a note came from the first node, which this version does not know")

    async def answer(self, link: PeerLink, payload: bytes) -> bytes:
        """Refuse: the first node asks nothing."""
        raise PeerRefused("this node answers nothing")

    def closed(self, link: PeerLink, why: str) -> None:
        if self._open.is_set():
            log.warning("the link to the first node closed: %s", why)
        self._open.clear()
        self._lost.set()

    async def _keep_linked(self) -> None:
        while True:
            try:
                self._lost.clear()
                self._link = await come_to_door(self._place.door, self._place.terms, lambda: self)
            except OSError as error:
                log.debug("the first node is not reached yet: %s", error)
            else:
                await self._lost.wait()
            await asyncio.sleep(_COMES_AGAIN_S)

    async def _forward(self, caller: dict[str, Any], frame: memoryview) -> bytes:
        """Have the first node answer; one that is started again is waited for. PeerRefused, LinkBusy."""
        try:
            async with asyncio.timeout(self._silence_s):
                await self._open.wait()
        except TimeoutError:
            raise PeerRefused("the first node is not reached") from None
        assert self._link is not None
        return await self._link.ask(encode_peer_call(PeerMethod.KAFKA, caller, frame), self._timeout_s())


def take_place(place: NodePlace, node: Node, dispatcher: Dispatcher) -> FirstPlace | MemberPlace:
    """Return what a node does over the link, which begins with its `start`."""
    kind = FirstPlace if place.number == FIRST else MemberPlace
    return kind(place, node, dispatcher)
