"""Entry of a node process that a parent has started: `python -m pqbroker.broker.node.child FD`.

FD is one end of a socket pair, and the parent has the other. The parent's first bytes are a secret; with it this
process opens a link, asks for its orders, and serves. It stops as after SIGTERM when the link closes: without its
parent nobody would start or kill the nodes of the broker.
"""

import asyncio
import logging
import os
import socket
import sys
from typing import Any

from pqbroker.broker.ground.open_files import raise_limit
from pqbroker.broker.node.locations import Locations
from pqbroker.broker.node.log_lines import begin_log, set_log_format
from pqbroker.broker.node.orders import Orders
from pqbroker.broker.node.serve import (
    ServeError,
    ServeStart,
    as_serve_errors,
    loop_factory,
    prepare_process,
    serve_until,
    stop_on_signals,
)
from pqbroker.broker.node.server import Server
from pqbroker.broker.peers.link_rules import LinkTerms
from pqbroker.broker.peers.peer_frames import LinkBroken
from pqbroker.broker.peers.peer_link import PeerLink, PeerRefused
from pqbroker.broker.peers.peer_methods import PeerMethod, decode_peer_call, encode_peer_call
from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.declare import parse

log = logging.getLogger(__name__)

SECRET_BYTES = 32
PARENTS_SILENCE_S = 60.0
"""Seconds of silence after which a parent counts as dead. One that was stopped may come back; the end of its process
closes the link at once."""
PARENTS_ANSWER_S = 10.0
"""Seconds that the parent process has to answer while this one serves."""
FAILED = 1


class ParentsUser:
    """The end of the link at this process; the parent has the other."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.is_open: asyncio.Future[None] = loop.create_future()
        self.gone: asyncio.Future[None] = loop.create_future()
        self._server: Server | None = None
        """Server of this node; None until it serves."""

    def opened(self, link: PeerLink) -> None:
        self.is_open.set_result(None)

    def noted(self, link: PeerLink, payload: bytes) -> None:
        """No note is known."""
        raise LinkBroken("a note came from the parent process")

    def serve(self, server: Server) -> None:
        """Have this server answer the parent from now on."""
        self._server = server

    async def answer(self, link: PeerLink, payload: bytes) -> bytes:
        """Answer the parent, which asks the first node about cells. PeerRefused."""
        try:
            method, head, _ = decode_peer_call(payload)
        except LinkBroken as broken:
            raise PeerRefused(str(broken)) from broken
        if self._server is None:
            raise PeerRefused("this node does not serve yet")
        if method is PeerMethod.STOPPING:
            self._server.keep_homes()
        elif method is PeerMethod.EMPTY_NODE:
            await self._server.empty_node(int(head))
        elif method is PeerMethod.FILL_NODE:
            await self._server.fill_node(int(head))
        else:
            raise PeerRefused(f"a node answers its parent no {method.name}")
        return encode_peer_call(method, None)

    def closed(self, link: PeerLink, why: str) -> None:
        if self.is_open.done():
            log.warning("the link to the parent process closed: %s; without it this node stops", why)
        if not self.gone.done():
            self.gone.set_result(None)


def main(arguments: list[str]) -> int:
    """Serve until the parent or a signal ends it. Returns the exit status."""
    prepare_process()
    raise_limit()
    parents = socket.socket(fileno=int(arguments[0]))
    os.set_inheritable(parents.fileno(), False)
    secret = parents.recv(SECRET_BYTES, socket.MSG_WAITALL)
    if len(secret) < SECRET_BYTES:
        return FAILED
    parents.setblocking(False)
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(_run(parents, secret))
    except ServeError as error:
        print(f"pqbroker: {error}", file=sys.stderr, flush=True)
        return error.status


async def _run(parents: socket.socket, secret: bytes) -> int:
    user = ParentsUser()
    terms = LinkTerms(secret, silence_s=PARENTS_SILENCE_S)
    loop = asyncio.get_running_loop()
    _, link = await loop.create_unix_connection(lambda: PeerLink(terms, user, is_door=False), sock=parents)
    await asyncio.wait([user.is_open, user.gone], return_when=asyncio.FIRST_COMPLETED)
    try:
        told = await link.ask(encode_peer_call(PeerMethod.ORDERS, None), PARENTS_SILENCE_S)
    except PeerRefused as refused:
        raise ServeError(f"the parent process of this node is gone: {refused}") from refused
    _, head, _ = decode_peer_call(told)
    orders = Orders.decode(head)
    begin_log(orders.log_level)
    stopping = stop_on_signals()
    user.gone.add_done_callback(lambda _: None if stopping.done() else stopping.set_result(None))

    async def ask_parent(method: PeerMethod) -> Any:
        _, told, _ = decode_peer_call(await link.ask(encode_peer_call(method, None), PARENTS_ANSWER_S))
        return told

    with as_serve_errors(orders.data):
        settings = parse(BrokerSettings, orders.texts)
        set_log_format(settings.log_format)
        locations = Locations(orders.kafka, orders.http, orders.data)
        start = ServeStart(settings, locations, orders.first_user, orders, ask_parent)

        def ready(server: Server) -> None:
            user.serve(server)
            addresses = {"http": server.http_url}
            link.note(encode_peer_call(PeerMethod.READY, addresses))

        return await serve_until(start, stopping, ready)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
