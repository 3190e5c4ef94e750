"""One client's connection: order of answers, pipelined Produce, parked Fetches, limits. Parsing is the dispatcher's.

States of a request:
    received   in `_unserved`; waits for earlier requests of the connection, or for the peer to take its answers
    in work    in `_in_flight`; its exchange not done or not at the head
    answered   written to the transport, in order of arrival
received -> in work when nothing is in flight, or when it and all in flight are Produce and begun. A request that
arrives while a Fetch is parked makes that Fetch answer at once (spec spark 2).
"""

import asyncio
import logging
from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING, cast

from pqbroker.broker.answer_budget import Untaken
from pqbroker.broker.context import Node, Peer
from pqbroker.broker.dispatch import PRODUCE, Dispatcher, Exchange
from pqbroker.broker.file_sender import FileSender
from pqbroker.broker.reading_pause import ReadingPause
from pqbroker.broker.receiving import Receiving
from pqbroker.broker.seldom_log import SeldomLog
from pqbroker.protocol.errors import ProtocolError
from pqbroker.protocol.frames import HELD_STEP_BYTES, FrameReader
from pqbroker.storage.engine import Buffer
from pqbroker.storage.regions import SENDS_FILES, FileRegion

if TYPE_CHECKING:
    from pqbroker.broker.listeners import Connections

seldom = SeldomLog(logging.getLogger(__name__))

_PARKED_BYTES_FREE = 4 << 10
"""A Fetch request larger than this does not park while more than half of the node's request bytes are taken."""
_UNSENT_BYTES_MAX = 64 << 10
"""Answers that are due wait for others of the same turn of the loop only up to this size."""


class Connection(asyncio.BufferedProtocol):
    """Requests of one connection are answered in the order they came."""

    __slots__ = (
        "_advertised", "_budget", "_bytes", "_connections", "_dispatcher", "_files", "_held_bytes", "_in_flight",
        "_is_closing", "_is_draining", "_is_reading", "_is_send_planned", "_is_serving", "_is_write_paused", "_metrics",
        "_node", "_pause", "_peer", "_reader", "_receiving", "_settings", "_transport", "_unsent", "_unsent_bytes",
        "_unsent_files", "_unserved", "_untaken", "active_at",
    )  # fmt: skip

    def __init__(
        self,
        node: Node,
        dispatcher: Dispatcher,
        receiving: Receiving,
        connections: "Connections",
        advertised: tuple[str, int] | None = None,
    ) -> None:
        """`advertised`: host and port told to the client; None: those it reached."""
        self._node = node
        self._advertised = advertised
        self._settings = node.settings
        self._metrics = node.metrics
        self._dispatcher = dispatcher
        self._receiving = receiving
        self._budget = receiving.budget
        self._connections = connections
        self._reader = FrameReader(node.settings.socket_request_max_bytes, receiving.buffer, self._grant)
        self._held_bytes = 0  # by the reader, as the node counts them
        self._unserved: deque[memoryview] = deque()
        self._in_flight: deque[Exchange] = deque()
        self._bytes = 0
        self._is_reading = True
        self._is_serving = self._is_closing = self._is_draining = self._is_write_paused = False
        self._unsent: list[Buffer | FileRegion] = []
        self._unsent_bytes = 0
        self._unsent_files = False
        """Whether a part of what is unsent lies in a file."""
        self._is_send_planned = False
        self._pause = ReadingPause(node.loop)
        self._untaken = Untaken(node.answers)
        self.active_at = node.loop.time()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        address = transport.get_extra_info("sockname")
        peer = transport.get_extra_info("peername")
        self._peer = Peer(self._node, address[0], address[1], self._advertised, peer[0] if peer else "")
        self._files = FileSender(self._node.loop, self._transport)
        self._peer.takes_files = SENDS_FILES and bool(transport.get_extra_info("socket"))
        if not self._connections.add(self):
            self._close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closing = True
        self._connections.remove(self)
        self._peer.leave()
        self._pause.cancel()
        self._budget.forget(self._consider_reading)
        self._let_go()
        self._budget.give_back(self._bytes)
        self._bytes = 0
        self._unserved.clear()
        self._unsent.clear()
        self._files.close()
        self._untaken.become(0, self._node.loop.time())
        in_flight, self._in_flight = self._in_flight, deque()
        for exchange in in_flight:
            if exchange.answer is not None and exchange.answer.hurry is not None:
                exchange.answer.hurry()
            elif exchange.task is not None and (exchange.is_begun or exchange.route.api.key != PRODUCE):
                exchange.task.cancel()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        self._metrics.bytes_in += nbytes
        if self._is_closing:
            return
        reader = self._reader
        try:
            frames = reader.received(nbytes)
        except ProtocolError as error:
            self._break(error)
            return
        if reader.held_bytes or self._held_bytes:
            self._hold(is_new=bool(frames))
        if not frames or self._is_closing:
            return
        self.active_at = self._node.loop.time()
        for frame in frames:
            self._unserved.append(frame)
            self._bytes += len(frame)
            self._budget.take(len(frame))
        self._serve()
        self._limit_reading()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._is_write_paused = True
        self._untaken.become(self._transport.get_write_buffer_size(), self._node.loop.time())

    def resume_writing(self) -> None:
        self._is_write_paused = False
        self._untaken.become(0, self._node.loop.time())
        if self._unsent_files:
            self._send()
        if self._is_closing:
            self._end()
        self._go_on()

    @property
    def is_idle(self) -> bool:
        return not self._in_flight and not self._unserved

    def close_if_idle_since(self, time: float) -> None:
        """Close when no request came since `time` (loop time) and none is in work.

        A peer that took no answer for so long is cut: what is written would keep a clean end waiting for ever.
        """
        if self.active_at >= time:
            return
        if self._is_write_paused:
            self.abort()
        elif self.is_idle:
            self._close()

    def cut_if_stalled(self, stall_s: float) -> None:
        """Cut a peer that has taken less than a small answer in `stall_s`; have a long Fetch that is parked answer."""
        if self._in_flight and self._in_flight[0].context.is_charged:
            self._hurry()
        left = self._transport.get_write_buffer_size() if self._untaken.size else 0
        if self._untaken.is_stalled(left, self._node.loop.time(), stall_s):
            seldom.info("connection from %s cut: %d bytes of its answers left for %g s", self._peer.host, left, stall_s)
            self.abort()

    def drain(self) -> None:
        """Take nothing more, answer what came, close."""
        self._is_draining = True
        self._limit_reading()
        self._hurry()
        self._go_on()

    def give_up(self) -> None:
        self._metrics.unfinished_closed += 1
        size = self._reader.held_bytes
        self._reader.drop()
        self._held_bytes = 0
        seldom.info(
            "connection from %s closed: %d bytes of a request that has not arrived whole make room for others; see "
            "pqbroker.unfinished.bytes.max, pqbroker.reserved.bytes and pqbroker.unfinished.stall.ms",
            self._transport.get_extra_info("peername"), size,
        )  # fmt: skip
        self._close()

    def begin_claimed(self) -> None:
        self._reader.begin_claimed()
        self._held_bytes = self._reader.held_bytes
        self._receiving.hold(self, self._held_bytes, is_new=False)
        self._consider_reading()

    def abort(self) -> None:
        self._is_closing = True
        self._unsent.clear()
        self._files.close()
        self._transport.abort()

    def _serve(self) -> None:
        """Begin what may begin now. Not entered again from the answers that this causes."""
        if self._is_serving or self._is_closing:
            return
        self._is_serving = True
        try:
            while self._unserved and not self._is_write_paused and not self._is_closing and self._may_begin():
                self._begin(self._unserved.popleft())
        except ProtocolError as error:
            self._break(error)
        finally:
            self._is_serving = False
        self._plan_to_send()

    def _begin(self, frame: memoryview) -> None:
        exchange = self._dispatcher.begin(self._peer, frame)
        if self._peer.pause_ms:
            self._pause.lengthen(self._peer.pause_ms, self._consider_reading)
            self._peer.pause_ms = 0
            self._limit_reading()
        if exchange.is_done and not self._in_flight:
            self._write(exchange)
            return
        self._in_flight.append(exchange)
        if not exchange.is_done:
            exchange.listener = self._advance
            parks_long = exchange.frame_bytes > _PARKED_BYTES_FREE and exchange.answer and exchange.answer.hurry
            if self._is_draining or (parks_long and self._receiving.is_short):
                self._hurry()

    def _may_begin(self) -> bool:
        in_flight = self._in_flight
        if not in_flight:
            return True
        last = in_flight[-1]
        if last.route.api.key == PRODUCE and _is_produce(self._unserved[0]):
            return last.is_begun
        return self._hurry() and not self._in_flight

    def _hurry(self) -> bool:
        """Make a parked Fetch answer now; False when there is none."""
        if not self._in_flight:
            return False
        exchange = self._in_flight[0]
        answer = exchange.answer
        if answer is None or answer.hurry is None:
            return False
        exchange.hurried_at = perf_counter()
        answer.hurry()
        return True

    def _advance(self) -> None:
        """Write the answers that are due, in order, and go on with what waited for them."""
        in_flight = self._in_flight
        while in_flight and in_flight[0].is_done:
            self._write(in_flight.popleft())
        self._go_on()

    def _go_on(self) -> None:
        """After something was answered, or may be written again."""
        if self._is_closing:
            return
        self._serve()
        if not self._is_reading:
            self._consider_reading()
        if self._is_draining and self.is_idle:
            self._close()

    def _write(self, exchange: Exchange) -> None:
        self._bytes -= exchange.frame_bytes
        self._budget.give_back(exchange.frame_bytes)
        if exchange.hurried_at:
            self._metrics.observe_overstay(perf_counter() - exchange.hurried_at)
        if self._is_closing:
            return
        output = exchange.output
        if exchange.must_close:
            self._close()
        elif output is not None:
            size = sum(map(len, output))
            self._metrics.bytes_out += size
            self._unsent_bytes += size
            self._unsent.extend(output)
            if exchange.context.holds_files:
                self._unsent_files = True
            if self._unsent_bytes > _UNSENT_BYTES_MAX:
                self._send()

    def _send(self) -> None:
        """Give the transport all answers that are due: one system call for those that became due together."""
        self._is_send_planned = False
        if not self._unsent or self._files.is_busy:
            return
        if self._unsent_files and self._transport.get_write_buffer_size():
            self._transport.set_write_buffer_limits(0)  # `resume_writing` tells when it has sent all before
            return
        unsent, self._unsent = self._unsent, []
        self._unsent_bytes = 0
        if self._unsent_files:
            self._unsent_files = False
            self._transport.set_write_buffer_limits()
            self._files.send(unsent, self._sent_files)
            if self._files.is_busy:
                self.pause_writing()
        else:
            self._transport.writelines(cast(list[Buffer], unsent))

    def _sent_files(self) -> None:
        """The socket has taken all of an answer that held files."""
        self._send()
        if not self._files.is_busy:
            self.resume_writing()

    def _plan_to_send(self) -> None:
        """Send at once, unless more answers may be due in this turn of the loop."""
        if not self._in_flight:
            self._send()
        elif self._unsent and not self._is_send_planned:
            self._is_send_planned = True
            self._node.loop.call_soon(self._send)

    def _hold(self, *, is_new: bool) -> None:
        """Count what is held of a request that is still arriving, or no more. The connection may close by this."""
        self._held_bytes = held = self._reader.held_bytes
        if held >= HELD_STEP_BYTES:
            self.active_at = self._node.loop.time()
        if held:
            self._receiving.hold(self, held, is_new=is_new)
        else:
            self._receiving.release(self)
        self._limit_reading()

    def _grant(self, size: int) -> bool:
        """Whether a large request may have its memory now; else `begin_claimed` is called."""
        return self._receiving.claim(self, size)

    def _let_go(self) -> None:
        """Nothing of an unfinished request is needed any more."""
        self._receiving.release(self)
        self._reader.drop()
        self._held_bytes = 0

    def _limit_reading(self) -> None:
        if self._is_reading and not self._is_closing and not self._may_read():
            self._is_reading = False
            self._transport.pause_reading()
            if self._budget.is_exceeded:
                self._budget.call_when_below(self._consider_reading)

    def _consider_reading(self) -> None:
        if self._is_reading or self._is_closing:
            return
        if self._may_read():
            self._is_reading = True
            if self._held_bytes:
                self._receiving.touch(self)
            self._transport.resume_reading()
        elif self._budget.is_exceeded:
            self._budget.call_when_below(self._consider_reading)

    def _may_read(self) -> bool:
        settings = self._settings
        return (
            not self._is_draining
            and not self._pause.is_on
            and not self._reader.claimed_bytes
            and len(self._unserved) + len(self._in_flight) < settings.connection_requests_max
            and self._bytes < settings.connection_bytes_max
            and not self._budget.is_exceeded
        )

    def _break(self, error: ProtocolError) -> None:
        self._metrics.protocol_errors += 1
        seldom.info("connection from %s closed: %s", self._transport.get_extra_info("peername"), error)
        self._close()

    def _close(self) -> None:
        """Send what is written, then a clean FIN."""
        self._let_go()
        self._send()
        self._is_closing = True
        self._end()

    def _end(self) -> None:
        """Close, unless what lies in files is still to be sent."""
        if not self._files.is_busy and not self._unsent_files:
            self._transport.close()


def _is_produce(frame: memoryview) -> bool:
    return len(frame) >= 2 and frame[0] == 0 and frame[1] == PRODUCE
