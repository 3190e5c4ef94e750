"""One client's connection: order of answers, pipelined Produce, parked Fetches, limits. Parsing is the dispatcher's.

States of a request:
    received   in `_unserved`; waits for earlier requests of the connection, or for the peer to take its answers
    in work    in `_in_flight`; its exchange not done or not at the head
    answered   written to the transport, in order of arrival
received -> in work when nothing is in flight, or when it and all in flight are Produce and begun. A request that
arrives while a Fetch is parked makes that Fetch answer at once (spec spark 2).
How a connection ends and whether requests may begin are tables of connection_states.py; whether it is read: intake.py.
"""

import asyncio
import logging
from collections import deque
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, cast

from pqbroker.broker.ground.access import ANONYMOUS, Principal, audit_login
from pqbroker.broker.ground.client_connections import ConnectionFacts
from pqbroker.broker.ground.listeners import Address, Listener
from pqbroker.broker.ground.seldom_log import SeldomLog
from pqbroker.broker.kafka.apis.answer_budget import UNTAKEN_S, Untaken
from pqbroker.broker.kafka.apis.context import KafkaNode, Peer
from pqbroker.broker.kafka.apis.exchange import Exchange
from pqbroker.broker.kafka.apis.metering import Beginner, begin_metered
from pqbroker.broker.kafka.net.connection_states import (
    ADMISSION,
    LIFE,
    Admission,
    AdmissionEvent,
    Intaking,
    Life,
    LifeEvent,
    Sending,
)
from pqbroker.broker.kafka.net.costs import MeasuringDispatcher
from pqbroker.broker.kafka.net.dispatch import Dispatcher
from pqbroker.broker.kafka.net.dispatched import PRODUCE
from pqbroker.broker.kafka.net.intake import Intake
from pqbroker.broker.kafka.net.login_gate import LoginEntrance
from pqbroker.broker.kafka.net.outbox import Outbox
from pqbroker.broker.kafka.net.receiving import Receiving
from pqbroker.conf.shares import holder_of
from pqbroker.protocol.errors import ForeignProtocol, ProtocolError
from pqbroker.protocol.frames import HELD_STEP_BYTES
from pqbroker.storage.file_regions import SENDS_FILES

if TYPE_CHECKING:
    from pqbroker.broker.kafka.net.connections import Connections
    from pqbroker.broker.kafka.net.forwarding import Forwarder

FOREIGN = {
    "HTTP": "a client at %s speaks HTTP to the Kafka listener %s (%s); HTTP has an address of its own, --http",
    "TLS": "a client at %s speaks TLS to the listener %s (%s), which is plain; set its security.protocol=PLAINTEXT",
}
"""Log lines by the protocol that a client speaks instead of Kafka's."""

seldom = SeldomLog(logging.getLogger(__name__))

_PARKED_BYTES_FREE = 4 << 10
"""A Fetch request larger than this does not park while more than half of the node's request bytes are taken."""


class Connection(asyncio.BufferedProtocol):
    """Requests of one connection are answered in the order they came."""

    __slots__ = (
        "_admission", "_connections", "_dispatcher", "_entrance", "_in_flight", "_intake", "_life", "_listener",
        "_metrics", "_node", "_outbox", "_reader", "_receiving", "_share", "_transport", "_unserved", "_untaken",
        "active_at", "bytes_in", "bytes_out", "peer",
    )  # fmt: skip

    def __init__(
        self,
        node: KafkaNode,
        entrance: "Dispatcher | Forwarder | LoginEntrance",
        receiving: Receiving,
        connections: "Connections",
        listener: Listener,
    ) -> None:
        self._node = node
        self._listener = listener
        self._metrics = node.metrics
        self._entrance = entrance
        self._receiving = receiving
        self._connections = connections
        self._unserved: deque[memoryview] = deque()
        self._in_flight: deque[Exchange] = deque()
        self._life = Life.OPEN
        self._admission = Admission.FREE
        self.active_at = node.loop.time()
        self.bytes_in = 0
        self.bytes_out = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        address = transport.get_extra_info("sockname")
        peer = transport.get_extra_info("peername")
        self.peer = Peer(
            node=self._node,
            address=self._listener.advertised or Address(address[0], self._listener.shared_port or address[1]),
            host=peer[0] if peer else "",
            port=peer[1] if peer else 0,
            holder=holder_of(peer[0], peer[1]) if peer else "",
            principal=Principal("User", user) if (user := transport.get_extra_info("certificate_user")) else ANONYMOUS,
            takes_files=SENDS_FILES and self._takes_files(),
        )
        self._untaken = Untaken(self._node.answers, self.peer.holder)
        self._outbox = Outbox(
            self._node.loop, self._transport, self.pause_writing, self.resume_writing,
            takes_files=self.peer.takes_files,
        )  # fmt: skip
        requests = (self._unserved, self._in_flight)
        self._intake = Intake(self.peer, self._transport, self._receiving, requests, self._make_room)
        self._share = self._intake.share
        self._reader = self._intake.reader
        self._dispatcher: Beginner = self._entrance.enter(self)
        if self.peer.principal is not ANONYMOUS:
            audit_login(self.peer, f"listener {self._listener.name}", "certificate")
        if not self._connections.add(self):
            self._close()

    def _takes_files(self) -> bool:
        """Return True if files may be sent past the transport, which under TLS has no socket."""
        listener = self._listener
        if not listener.takes_files or listener.protocol.is_encrypted:
            return False
        return bool(self._transport.get_extra_info("socket"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._life = LIFE[self._life, LifeEvent.LOSE]
        self._connections.remove(self)
        self.peer.leave()
        self._intake.end()
        self._share.give_back(self._intake.bytes)
        self._intake.bytes = 0
        self._unserved.clear()
        self._outbox.discard()
        self._untaken.end()
        in_flight = tuple(self._in_flight)
        self._in_flight.clear()
        for exchange in in_flight:
            exchange.leave()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        self._metrics.bytes_in += nbytes
        self.bytes_in += nbytes
        if self._life >= Life.CLOSING:
            return
        try:
            frames = self._reader.received(nbytes)
        except ProtocolError as error:
            self._break(error)
            return
        intake = self._intake
        if self._reader.held_bytes or intake.held_bytes:
            intake.count_held(is_new=bool(frames))
        if not frames or self._life >= Life.CLOSING:
            if self._reader.held_bytes >= HELD_STEP_BYTES:
                self.active_at = self._node.loop.time()
            return
        self.active_at = self._node.loop.time()
        size = 0
        for frame in frames:
            self._unserved.append(frame)
            size += len(frame)
        intake.bytes += size
        self._share.taken += size
        self._receiving.budget.taken += size
        login = self.peer.login
        if login is None or login.is_admitted:
            self._serve()
        else:
            login.turns.begin(self._advance)  # a flood of logins: who has logged in comes first
        if not intake.may_read():
            intake.limit()

    def pause_writing(self) -> None:
        self._admission = ADMISSION[self._admission, AdmissionEvent.FILL]
        self._untaken.begin(self, self._node.loop.time())

    def resume_writing(self) -> None:
        self._admission = ADMISSION[self._admission, AdmissionEvent.EASE]
        self._untaken.end()
        self._outbox.ease()
        if self._life >= Life.CLOSING:
            self._end()
        self._advance()

    def admit(self, receiving: Receiving) -> None:
        """Count the client among those that have logged in, with its requests in work and what has arrived."""
        self._receiving = receiving
        self._intake.admit(receiving)
        self._share = self._intake.share

    @property
    def listener_name(self) -> str:
        return self._listener.name

    @property
    def is_idle(self) -> bool:
        return not self._in_flight and not self._unserved

    @property
    def is_open(self) -> bool:
        return self._life is Life.OPEN

    def give_way(self) -> None:
        """Close for the sake of a connection that comes: this one's address has most of them."""
        seldom.info(
            "connection from %s cut: its address has the most, and others come; see max.connections and "
            "max.connections.per.ip", self.peer.host,
        )  # fmt: skip
        self.abort()

    def close_if_idle_since(self, time: float) -> None:
        """Close when no request came since `time` (loop time) and none is in work.

        A peer that took no answer since then is cut: what is written would keep a clean end waiting for ever.
        """
        if self.active_at >= time:
            return
        if self._admission is Admission.FULL:
            self.abort()
        elif self.is_idle:
            self._close()

    def cut_if_stalled(self, stall_s: float) -> None:
        """Cut a peer that has taken less than a small answer in `stall_s`; have a long Fetch that is parked answer."""
        if self._in_flight and self._in_flight[0].is_charged:
            self._hurry()
        if self._untaken.is_stalled(self._node.loop.time(), stall_s):
            self._cut_unread(stall_s)

    def unsent(self) -> tuple[int, int]:
        """Bytes of answers in memory that the client has not taken, and all such bytes, those in files among them."""
        return self._outbox.unsent()

    def cut_for_others(self) -> None:
        """Cut a client that reads nothing while answers of others wait for memory."""
        self._cut_unread(UNTAKEN_S)

    def drain(self) -> None:
        """Take nothing more, answer what came, close."""
        self._intake.stop()
        self._life = LIFE[self._life, LifeEvent.DRAIN]
        self._hurry()
        self._advance()

    def abort(self) -> None:
        self._life = LIFE[self._life, LifeEvent.LOSE]
        self._intake.end()
        self._outbox.discard()
        self._untaken.end()
        self._transport.abort()

    def _serve(self) -> None:
        """Begin what may begin now, and see that what is due is sent: at once, unless more may be due in this turn."""
        if self._admission is Admission.SERVING or self._life >= Life.CLOSING:
            return
        if self._admission is Admission.FREE:
            self._admission = ADMISSION[self._admission, AdmissionEvent.BEGIN]
            try:
                while (
                    self._unserved
                    and self._admission is Admission.SERVING
                    and self._life < Life.CLOSING
                    and (not self._in_flight or self._may_follow())
                ):
                    self._begin(self._unserved.popleft())
            except ProtocolError as error:
                self._break(error)
            finally:
                self._admission = ADMISSION[self._admission, AdmissionEvent.END]
        outbox = self._outbox
        if not self._in_flight:
            outbox.send()
        elif outbox.parts and outbox.state is Sending.IDLE:
            outbox.plan()

    def _begin(self, frame: memoryview) -> None:
        use = self.peer.use
        if use is None or use.busy is None:
            exchange = self._dispatcher.begin(self.peer, frame)
        else:
            exchange = begin_metered(self._dispatcher, self.peer, frame)
            if self.peer.owed_ms:
                self._intake.pause(self.peer.owed_ms)
        if exchange.pause_ms:
            self._intake.pause(exchange.pause_ms)
        if exchange.is_done and not self._in_flight:
            self._write(exchange)
            return
        self._in_flight.append(exchange)
        if not exchange.is_done:
            exchange.listener = self._advance if exchange.is_begun else partial(self._advance_long, exchange)
            parks_long = exchange.frame_bytes > _PARKED_BYTES_FREE and exchange.is_parked
            if self._life is Life.DRAINING or (parks_long and self._receiving.is_short):
                self._hurry()

    def _may_follow(self) -> bool:
        """Return True if the next request may begin behind those in work."""
        last = self._in_flight[-1]
        if last.is_produce and _is_produce(self._unserved[0]):
            return last.is_begun
        return self._hurry() and not self._in_flight

    def _hurry(self) -> bool:
        """Make a parked Fetch answer now; False when there is none."""
        if not self._in_flight or not self._in_flight[0].is_parked:
            return False
        self._in_flight[0].hurry()
        return True

    def _advance(self) -> None:
        """Write the answers that are due, in order, and continue with what waited for them, or for the client."""
        in_flight = self._in_flight
        while in_flight and in_flight[0].is_done:
            self._write(in_flight.popleft())
        if self._life >= Life.CLOSING:
            return
        self._serve()
        if self._intake.state is Intaking.PAUSED:
            self._intake.consider()
        if self._life is Life.DRAINING and self.is_idle:
            self._close()

    def _advance_long(self, exchange: Exchange) -> None:
        """A long request is begun now, or done; until it was begun nobody knew of its pause."""
        exchange.listener = self._advance
        if exchange.pause_ms:
            self._intake.pause(exchange.pause_ms)
        self._advance()

    def _write(self, exchange: Exchange) -> None:
        self._intake.bytes -= exchange.frame_bytes
        self._share.give_back(exchange.frame_bytes)
        if exchange.hurried_at:
            self._metrics.observe_overstay(perf_counter() - exchange.hurried_at)
        if self._life >= Life.CLOSING:
            return
        output = exchange.output
        if output is not None:
            size = sum(map(len, output))
            self._metrics.bytes_out += size
            self.bytes_out += size
            self._outbox.put(output, size)
        if exchange.must_close:
            self._close()

    def _cut_unread(self, stall_s: float) -> None:
        self._metrics.connections_unread += 1
        seldom.info(
            "connection from %s cut: its client left %d bytes of its answers unread for %g s, and answers of others "
            "wait; see pqbroker.unsent.bytes.max and pqbroker.answer.stall.ms",
            self.peer.host, self._outbox.unsent()[1], stall_s,
        )  # fmt: skip
        self.abort()

    def _make_room(self) -> None:
        """Close for the sake of others: what has arrived of a request takes memory that they need."""
        self._metrics.unfinished_closed += 1
        seldom.info(
            "connection from %s closed: %d bytes of a request that has not arrived whole make room for others; see "
            "pqbroker.unfinished.bytes.max, pqbroker.reserved.bytes and pqbroker.unfinished.stall.ms",
            self._transport.get_extra_info("peername"), self._reader.held_bytes,
        )  # fmt: skip
        self._close()

    def _break(self, error: ProtocolError) -> None:
        self._metrics.protocol_errors += 1
        if isinstance(error, ForeignProtocol):
            seldom.warning(FOREIGN[error.name], self.peer.host, self._listener.name, self.peer.address)
            self._close()
            return
        seldom.info("connection from %s closed: %s", self._transport.get_extra_info("peername"), error)
        self._close()

    def _close(self) -> None:
        """Send what is due, then a clean FIN."""
        self._intake.end()
        self._outbox.send()
        self._life = LIFE[self._life, LifeEvent.CLOSE]
        self._end()

    def _end(self) -> None:
        if not self._outbox.holds_files:
            self._transport.close()

    def measure(self, *, is_wanted: bool) -> None:
        """Begin to count what requests cost, or end it."""
        dispatcher = self._dispatcher
        if is_wanted and not isinstance(dispatcher, MeasuringDispatcher):
            self._dispatcher = MeasuringDispatcher(dispatcher)
        elif not is_wanted and isinstance(dispatcher, MeasuringDispatcher):
            self._dispatcher = dispatcher.measured

    def facts(self) -> ConnectionFacts:
        """Return what is known of the connection and the client behind it."""
        peer = self.peer
        measuring = self._dispatcher if isinstance(self._dispatcher, MeasuringDispatcher) else None
        return ConnectionFacts(
            client_id=peer.client_id,
            address=Address(peer.host, peer.port),
            listener=self._listener.name,
            principal=str(peer.principal),
            apis=peer.apis,
            bytes_in=self.bytes_in,
            bytes_out=self.bytes_out,
            idle_s=self._node.loop.time() - self.active_at,
            requests=len(self._in_flight) + len(self._unserved),
            begun=None if measuring is None else measuring.begun,
            busy_s=None if measuring is None else measuring.busy_s,
        )



def _is_produce(frame: memoryview) -> bool:
    return len(frame) >= 2 and frame[0] == 0 and frame[1] == PRODUCE
