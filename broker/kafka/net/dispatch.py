"""Road of a frame to its handler and back to bytes: versions, decoding, and errors turned into responses in one place.

A request of few elements is decoded, served and answered in one call. A long one leaves this road: it is decoded in
slices between turns of the loop, and so is a long answer encoded; both are charged to the node's budget of answers.
Order and flow control are the connection's business, not this file's.
"""

import asyncio
import inspect
import logging
import struct
from collections.abc import Awaitable, Callable, Generator, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from pqbroker.broker.ground.refusals import translate
from pqbroker.broker.ground.seldom_log import SeldomLog
from pqbroker.broker.kafka.apis.answer import Answer
from pqbroker.broker.kafka.apis.answer_budget import SMALL_ANSWER_BYTES
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context, KafkaNode, Peer
from pqbroker.broker.kafka.apis.exchange import Exchange, Output
from pqbroker.broker.kafka.apis.lane import LANES_MAX, Lane, LaneExchange, LaneRoad, TakenRequest
from pqbroker.broker.kafka.net.dispatched import Dispatched, OnError, ServedVersion
from pqbroker.protocol.errors import ErrorCode, LastAnswer, ProtocolError, TooManyElements
from pqbroker.protocol.frames import frame as framed
from pqbroker.protocol.headers import decode_request_header

if TYPE_CHECKING:
    from pqbroker.broker.kafka.net.connection import Connection

seldom = SeldomLog(logging.getLogger(__name__))

API_VERSIONS = 18
_HEADER_START = struct.Struct(">hhi")
"""API key, API version, correlation id: the same in every version of the header."""
_CORRELATION_ID = struct.Struct(">i")
SHORT_ELEMENTS_MAX = 500
"""A request of more elements is long: it takes milliseconds to decode or to serve."""
SHORT_ENTRIES_MAX = 100
"""Entries of an answer that are encoded at once, whatever else is under way: a fraction of a millisecond."""
ELEMENT_BYTES = 300
"""About what one element takes in memory: its objects, and what a handler makes of them."""

_NO_LANES: list[Lane] = []


class Dispatcher:
    """The routes of a node, each compiled when first asked for."""

    def __init__(self, node: KafkaNode, apis: Iterable[Api]) -> None:
        self._node = node
        self._apis = {api.key: api for api in apis}
        self._routes: dict[int, ServedVersion] = {}
        self._count_error: OnError = node.metrics.count_error

    def enter(self, _: "Connection") -> "Dispatcher":
        """Return what serves a new connection's requests: nothing stands before this dispatcher."""
        return self

    def begin(self, peer: Peer, frame: memoryview) -> Exchange:
        """Serve a request in its lane, or decode it and serve it, in the same call; the exchange may be done already.

        ProtocolError when the connection must close.
        """
        if len(frame) < _HEADER_START.size:
            raise ProtocolError(f"a frame of {len(frame)} bytes holds no request header")
        lanes = peer.lanes.get(frame[1], _NO_LANES)
        exchange = None
        try:
            for lane in lanes:
                exchange = lane.begin(frame)
                if exchange is not None:
                    break
        except Exception as defect:  # noqa: BLE001
            return self._begin(peer, frame, defect)
        if exchange is None:
            return self._begin(peer, frame)
        if lane is not lanes[0]:
            _put_first(peer.lanes, frame[1], lane)
        return exchange

    def switch(self, api: Api) -> None:
        """Serve an API as given, from the next request on that has no lane."""
        self._apis[api.key] = api
        for number, route in self._routes.items():
            if route.api.key == api.key:
                self._routes[number] = ServedVersion(api, route.version, route.metrics)

    def _begin(self, peer: Peer, frame: memoryview, defect: Exception | None = None) -> Dispatched:
        """Decode a request and serve it, or answer with the defect that its lane met: part of it may be done."""
        key, version, correlation_id = _HEADER_START.unpack_from(frame)
        exchange = Dispatched(len(frame))
        exchange.correlation_id = correlation_id
        route = self._routes.get(key << 16 | version) or self._route(key, version)
        if route is None:
            return self._refuse_version(exchange, peer)
        header, position = decode_request_header(frame)
        exchange.route = route
        peer.client_id = header.client_id
        peer.apis |= 1 << key
        quotas = self._node.quotas
        peer.use = quotas.of(peer.principal, header.client_id) if quotas.entries else None
        exchange.context = Context(self._node, peer, version, header.client_id)
        exchange.context.frame_bytes = len(frame)
        try:
            exchange.request = route.decode(frame[position:], SHORT_ELEMENTS_MAX)
        except TooManyElements:
            self._begin_long(exchange, frame[position:])  # too many elements for a lane
        else:
            if defect is None:
                self._attempt(exchange, self._serve, frame)
            else:
                peer.lanes.pop(key, None)
                self._fail(exchange, defect)
        return exchange

    def _open_lane(self, exchange: Dispatched, frame: memoryview) -> None:
        """Open a lane for the requests to come that say what this one says."""
        api, context = exchange.route.api, exchange.context
        assert api.open_lane is not None
        road = LaneRoad(exchange.route.metrics, partial(self._serve_for_lane, exchange.route), _answer_in_lane)
        lane = api.open_lane(context, exchange.request, frame, road)
        if lane is not None:
            _put_first(context.peer.lanes, exchange.route.key, lane)

    def _serve_for_lane(
        self, route: ServedVersion, context: Context, taken: TakenRequest, serve: Callable[[Context], Any]
    ) -> Dispatched:
        exchange = Dispatched(taken.frame_bytes)
        exchange.correlation_id = taken.correlation_id
        exchange.started_at = taken.started_at
        exchange.route = route
        exchange.request = None
        exchange.context = Context(self._node, context.peer, context.version, context.client_id)
        exchange.context.correlation_id = exchange.correlation_id
        self._proceed(exchange, partial(serve, exchange.context))
        return exchange

    def _begin_long(self, exchange: Dispatched, body: memoryview) -> None:
        exchange.is_begun = False
        exchange.context.is_long = True
        self._follow(exchange, self._serve_long(exchange, body), self._take)

    async def _serve_long(self, exchange: Dispatched, body: memoryview) -> Any:
        """Decode a request in slices, and return what its handler does."""
        context, route, node = exchange.context, exchange.route, self._node
        await context.room()
        elements_max = node.settings.request_elements_max
        guess = min(len(body), elements_max)
        context.charge(guess * ELEMENT_BYTES)
        try:
            exchange.request, count = await node.turns.finish(route.decode_in_slices(body, elements_max))
        except ProtocolError:
            node.metrics.protocol_errors += 1
            raise
        context.charge((count - guess) * ELEMENT_BYTES)
        await node.turns.turn()
        return route.serve(context, exchange.request)

    def _route(self, key: int, version: int) -> ServedVersion | None:
        """Return the served API and version; None for an unknown version of ApiVersions."""
        api = self._apis.get(key)
        if api is None or not api.version_min <= version <= api.version_max:
            if key == API_VERSIONS and api is not None:
                return None
            raise ProtocolError(f"API key {key} version {version} is not served")
        route = ServedVersion(api, version, self._node.metrics.route(api.name, version))
        self._routes[key << 16 | version] = route
        return route

    def _refuse_version(self, exchange: Dispatched, peer: Peer) -> Dispatched:
        """KIP-511: an ApiVersions version we do not know is answered as version 0, naming the range of this one key."""
        route = self._routes.get(API_VERSIONS << 16) or self._route(API_VERSIONS, 0)
        assert route is not None
        exchange.route = route
        exchange.context = Context(self._node, peer, 0, None)
        exchange.request = None
        self._count_error(ErrorCode.UNSUPPORTED_VERSION)
        self._send(exchange, route.refuse(exchange.context, None, ErrorCode.UNSUPPORTED_VERSION, ""), _is_counted)
        return exchange

    def _attempt(self, exchange: Dispatched, step: Callable[[Dispatched, Any], None], argument: Any) -> None:
        """Run one step of a request; whatever it raises becomes the response's error."""
        try:
            step(exchange, argument)
        except Exception as error:  # noqa: BLE001
            self._fail(exchange, error)

    def _serve(self, exchange: Dispatched, frame: memoryview) -> None:
        if exchange.route.api.open_lane is not None:
            self._open_lane(exchange, frame)
        self._take(exchange, exchange.route.serve(exchange.context, exchange.request))

    def _proceed(self, exchange: Dispatched, step: Callable[[], Any]) -> None:
        """Take what a call returns, as `_attempt`."""
        try:
            self._take(exchange, step())
        except Exception as error:  # noqa: BLE001
            self._fail(exchange, error)

    def _take(self, exchange: Dispatched, served: Any) -> None:
        """A response, one that is framed already (a list), or what becomes one later; a task is made for a coroutine
        only."""
        route = exchange.route
        if type(served) is Answer:
            exchange.pause_ms = served.pause_ms
            if served.settled:
                self._settle(exchange, served)
            else:
                exchange.answer = served
                served.when_settled(partial(self._settle, exchange, served))
        elif type(served) is list:
            exchange.output = served
            exchange.finish()
        elif served is None or isinstance(served, route.api.response):
            self._send(exchange, served)
        else:
            assert inspect.isawaitable(served), f"{route.api.name} served {type(served).__name__}"
            self._follow(exchange, served, self._take)
            return
        if not exchange.is_begun:
            exchange.is_begun = True
            if exchange.listener is not None:
                exchange.listener()

    def _follow(self, exchange: Dispatched, work: Awaitable[Any], step: Callable[[Dispatched, Any], None]) -> None:
        """Take `step` once the work is done."""
        exchange.task = task = asyncio.ensure_future(work)
        task.add_done_callback(partial(self._finish_task, exchange, step))

    def _settle(self, exchange: Dispatched, answer: Answer[Any]) -> None:
        if answer.error is not None:
            self._fail(exchange, answer.error)
        elif answer.step is not None:
            exchange.answer = None
            self._proceed(exchange, answer.step)
        else:
            self._attempt(exchange, self._send, answer.response)

    def _finish_task(
        self, exchange: Dispatched, step: Callable[[Dispatched, Any], None], task: "asyncio.Future[Any]"
    ) -> None:
        if task.cancelled():
            exchange.must_close = True
            exchange.finish()
            return
        error = task.exception()
        if error is not None:
            self._fail(exchange, error)
        else:
            self._attempt(exchange, step, task.result())

    def _send(self, exchange: Dispatched, response: Any, on_error: OnError | None = None) -> None:
        """Encode a response, which counts its error codes unless `on_error` does something else with them."""
        if exchange.context.peer.owed_ms:
            _add_pause(exchange.context.peer, response)
        if response is None:
            exchange.finish()
        elif exchange.route.api.answers_at_length or exchange.context.is_long:
            self._send_long(exchange, response, on_error or self._count_error)
        else:
            route = exchange.route
            header = _CORRELATION_ID.pack(exchange.correlation_id) + route.header_end
            exchange.output = framed([header, *route.encode(response, on_error or self._count_error)])
            exchange.finish()

    def _finish(self, exchange: Dispatched, body: Output) -> None:
        route = exchange.route
        header = _CORRELATION_ID.pack(exchange.correlation_id) + route.header_end
        exchange.output = framed([header, *body])
        exchange.finish()

    def _send_long(self, exchange: Dispatched, response: Any, on_error: OnError) -> None:
        """Encode an answer at once if that takes no longer than a slice, else in slices of later turns.

        A short one waits neither for its turn nor for the budget.
        """
        encoding = exchange.route.encode_in_slices(response, on_error)
        context, turns, size = exchange.context, self._node.turns, 0
        end = turns.slice_end()
        try:
            for _ in range(SHORT_ENTRIES_MAX):
                size += next(encoding)
            while turns.clock() < end and (size <= SMALL_ANSWER_BYTES or context.has_room):
                size += next(encoding)
        except StopIteration as done:
            self._finish(exchange, done.value)
        else:
            self._follow(exchange, self._encode(exchange, encoding, size), self._finish)

    async def _encode(self, exchange: Dispatched, encoding: Generator[int, None, Output], size: int) -> Output:
        """Encode the rest of a long answer, of which `size` bytes are made."""
        context, turns = exchange.context, self._node.turns
        size_max = self._node.settings.answer_bytes_max
        context.charge(size)
        try:
            while size <= size_max:
                await turns.turn()
                if size > SMALL_ANSWER_BYTES:
                    await context.room()
                end, made = turns.slice_end(), next(encoding)
                while turns.clock() < end:
                    made += next(encoding)
                context.charge(made)
                size += made
        except StopIteration as done:
            output: Output = done.value
            return output
        raise ProtocolError(
            f"its answer is longer than {size_max} bytes (pqbroker.answer.bytes.max): ask for less at a time"
        )

    def _fail(self, exchange: Dispatched, error: BaseException) -> None:
        """The one place where an error becomes a response's code, or closes the connection."""
        route = exchange.route
        response = None
        if not isinstance(error, ProtocolError):
            code, message = translate(error)
            self._count_error(code)
            response = route.refuse(exchange.context, exchange.request, code, message)
            exchange.must_close = isinstance(error, LastAnswer)
        if response is None:
            seldom.info("%s: the connection is closed: %s", route.api.name, error)
            exchange.must_close = True
        self._send(exchange, response, _is_counted)


def _answer_in_lane(exchange: LaneExchange) -> None:
    try:
        exchange.answer()
    except Exception as defect:  # noqa: BLE001
        exchange.fail(defect)


def _add_pause(peer: Peer, response: Any) -> None:
    """Have an answer say the pause that the client's use of processor time gives."""
    if peer.use is None or peer.use.busy is None:
        peer.owed_ms = 0
    elif getattr(response, "throttle_time_ms", peer.owed_ms) < peer.owed_ms:
        response.throttle_time_ms = peer.owed_ms


def _put_first(lanes: dict[int, list[Lane]], key: int, lane: Lane) -> None:
    """The lane used last, then those of other forms in the order of their last use."""
    others = [each for each in lanes.get(key, ()) if each.form != lane.form]
    lanes[key] = [lane, *others[: LANES_MAX - 1]]


def _is_counted(_: ErrorCode) -> None:
    """A request that is refused as a whole is one error, however many entries of its answer say so."""
