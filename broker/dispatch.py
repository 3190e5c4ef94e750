"""From a frame to its handler and back to bytes: versions, decoding, and errors turned into responses in one place.

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
from time import perf_counter
from typing import Any, cast

from pqbroker.broker.answer import Answer
from pqbroker.broker.answer_budget import SMALL_ANSWER_BYTES
from pqbroker.broker.apis import Api
from pqbroker.broker.context import Context, Node, Peer
from pqbroker.broker.metrics import RouteMetrics
from pqbroker.broker.refusals import translate
from pqbroker.broker.seldom_log import SeldomLog
from pqbroker.protocol.codec import Decode, decoder, encoder, sliced_decoder, sliced_encoder
from pqbroker.protocol.errors import ErrorCode, ProtocolError, TooManyElements
from pqbroker.protocol.frames import frame as framed
from pqbroker.protocol.headers import decode_request_header, encode_response_header
from pqbroker.storage.engine import Buffer
from pqbroker.storage.regions import FileRegion

seldom = SeldomLog(logging.getLogger(__name__))

PRODUCE = 0
API_VERSIONS = 18
_HEADER_START = struct.Struct(">hhi")
"""API key, API version, correlation id: the same in every version of the header."""
SHORT_ELEMENTS_MAX = 500
"""A request of more elements is long: it takes milliseconds to decode or to serve."""
SHORT_ENTRIES_MAX = 100
"""Entries of an answer that are encoded at once, whatever else is under way: a fraction of a millisecond."""
ELEMENT_BYTES = 300
"""About what one element takes in memory: its objects, and what a handler makes of them."""

Output = list[Buffer | FileRegion]


class Route:
    """One API in one version: its compiled codec and its counters."""

    __slots__ = ("api", "decode", "encode", "metrics", "refuse", "serve", "version")

    def __init__(self, api: Api, version: int, metrics: RouteMetrics) -> None:
        self.api = api
        self.version = version
        self.metrics = metrics
        self.serve = api.serve
        self.refuse = api.refuse
        request: Any = api.request
        response: Any = api.response
        self.decode: Decode[Any] = decoder(request, version)
        self.encode = cast(Callable[[Any], Output], encoder(response, version))

    def decode_in_slices(self, body: memoryview, elements_max: int) -> Generator[None, None, tuple[Any, int]]:
        """See `codec.sliced_decoder`."""
        request: Any = self.api.request
        return sliced_decoder(request, self.version)(body, elements_max)

    def encode_in_slices(self, answer: Any) -> Generator[int, None, Output]:
        """See `codec.sliced_encoder`."""
        response: Any = self.api.response
        return cast(Generator[int, None, Output], sliced_encoder(response, self.version)(answer))


class Exchange:
    """A request in work. `output` is its framed response once `is_done`: None when there is none to send."""

    __slots__ = (
        "answer", "context", "correlation_id", "frame_bytes", "hurried_at", "is_begun", "is_done", "listener",
        "must_close", "output", "request", "route", "started_at", "task",
    )  # fmt: skip

    route: Route
    context: Context
    correlation_id: int
    request: Any

    def __init__(self, frame_bytes: int) -> None:
        self.frame_bytes = frame_bytes
        self.is_begun = True
        """False while a long request is decoded and handed over; what follows on its connection waits for that."""
        self.is_done = False
        self.must_close = False
        self.output: Output | None = None
        self.answer: Answer[Any] | None = None
        self.task: asyncio.Future[Any] | None = None
        self.hurried_at = 0.0
        self.listener: Callable[[], None] | None = None
        """Called when the exchange becomes begun or done, if that is after `begin`."""
        self.started_at = perf_counter()

    def finish(self) -> None:
        """Nothing but `output` is needed from here on; tell the connection."""
        self.is_begun = self.is_done = True
        self.answer = self.task = self.request = None
        if self.context.is_charged:
            self.context.node.answers.end(self.context)
        self.route.metrics.observe(perf_counter() - self.started_at)
        if self.listener is not None:
            self.listener()


class Dispatcher:
    """The routes of a node, each compiled when first asked for."""

    def __init__(self, node: Node, apis: Iterable[Api]) -> None:
        self._node = node
        self._apis = {api.key: api for api in apis}
        self._routes: dict[int, Route] = {}

    def begin(self, peer: Peer, frame: memoryview) -> Exchange:
        """Decode a request and serve it, in the same call; the exchange may be done already.

        ProtocolError when the connection must close.
        """
        if len(frame) < _HEADER_START.size:
            raise ProtocolError(f"a frame of {len(frame)} bytes holds no request header")
        key, version, correlation_id = _HEADER_START.unpack_from(frame)
        exchange = Exchange(len(frame))
        exchange.correlation_id = correlation_id
        route = self._routes.get(key << 16 | version) or self._route(key, version)
        if route is None:
            return self._refuse_version(exchange, peer)
        header, position = decode_request_header(frame)
        exchange.route = route
        exchange.context = Context(self._node, peer, version, header.client_id)
        try:
            exchange.request = route.decode(frame[position:], SHORT_ELEMENTS_MAX)
        except TooManyElements:
            self._begin_long(exchange, frame[position:])
        else:
            self._attempt(exchange, self._serve, None)
        return exchange

    def _begin_long(self, exchange: Exchange, body: memoryview) -> None:
        exchange.is_begun = False
        exchange.context.is_long = True
        self._follow(exchange, self._serve_long(exchange, body), self._take)

    async def _serve_long(self, exchange: Exchange, body: memoryview) -> Any:
        """Decode a request in slices, and return what its handler does."""
        context, route, node = exchange.context, exchange.route, self._node
        await node.answers.room(context)
        elements_max = node.settings.request_elements_max
        guess = min(len(body), elements_max)
        context.charge(guess * ELEMENT_BYTES)
        try:
            exchange.request, count = await node.turns.finish(route.decode_in_slices(body, elements_max))
        except ProtocolError:
            node.metrics.protocol_errors += 1
            raise
        context.charge((count - guess) * ELEMENT_BYTES)
        return route.serve(context, exchange.request)

    def _route(self, key: int, version: int) -> Route | None:
        """None: a version of ApiVersions that is not known."""
        api = self._apis.get(key)
        if api is None or not api.version_min <= version <= api.version_max:
            if key == API_VERSIONS and api is not None:
                return None
            raise ProtocolError(f"API key {key} version {version} is not served")
        route = Route(api, version, self._node.metrics.route(api.name, version))
        self._routes[key << 16 | version] = route
        return route

    def _refuse_version(self, exchange: Exchange, peer: Peer) -> Exchange:
        """KIP-511: an ApiVersions version we do not know is answered as version 0, naming the range of this one key."""
        route = self._routes.get(API_VERSIONS << 16) or self._route(API_VERSIONS, 0)
        assert route is not None
        assert route.refuse is not None
        exchange.route = route
        exchange.context = Context(self._node, peer, 0, None)
        exchange.request = None
        self._node.metrics.count_error(ErrorCode.UNSUPPORTED_VERSION)
        self._send(exchange, route.refuse(exchange.context, None, ErrorCode.UNSUPPORTED_VERSION, ""))
        return exchange

    def _attempt(self, exchange: Exchange, step: Callable[[Exchange, Any], None], argument: Any) -> None:
        """Run one step of a request; whatever it raises becomes the response's error."""
        try:
            step(exchange, argument)
        except Exception as error:  # noqa: BLE001
            self._fail(exchange, error)

    def _serve(self, exchange: Exchange, _: None) -> None:
        self._take(exchange, exchange.route.serve(exchange.context, exchange.request))

    def _proceed(self, exchange: Exchange, step: Callable[[], Any]) -> None:
        self._take(exchange, step())

    def _take(self, exchange: Exchange, served: Any) -> None:
        """A response, or what becomes one later; a task is made for a coroutine only."""
        route = exchange.route
        if type(served) is Answer:
            if served.settled:
                self._settle(exchange, served)
            else:
                exchange.answer = served
                served.when_settled(partial(self._settle, exchange, served))
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

    def _follow(self, exchange: Exchange, work: Awaitable[Any], step: Callable[[Exchange, Any], None]) -> None:
        """Go on with `step` once the work is done."""
        exchange.task = task = asyncio.ensure_future(work)
        task.add_done_callback(partial(self._finish_task, exchange, step))

    def _settle(self, exchange: Exchange, answer: Answer[Any]) -> None:
        if answer.error is not None:
            self._fail(exchange, answer.error)
        elif answer.step is not None:
            exchange.answer = None
            self._attempt(exchange, self._proceed, answer.step)
        else:
            self._attempt(exchange, self._send, answer.response)

    def _finish_task(
        self, exchange: Exchange, step: Callable[[Exchange, Any], None], task: "asyncio.Future[Any]"
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

    def _send(self, exchange: Exchange, response: Any) -> None:
        if response is None:
            exchange.finish()
        elif exchange.route.api.answers_at_length or exchange.context.is_long:
            self._send_long(exchange, response)
        else:
            route = exchange.route
            header = encode_response_header(route.api.key, route.version, exchange.correlation_id)
            exchange.output = framed([header, *route.encode(response)])
            exchange.finish()

    def _finish(self, exchange: Exchange, body: Output) -> None:
        route = exchange.route
        header = encode_response_header(route.api.key, route.version, exchange.correlation_id)
        exchange.output = framed([header, *body])
        exchange.finish()

    def _send_long(self, exchange: Exchange, response: Any) -> None:
        """Encode an answer at once if that takes no longer than a slice, else in slices of later turns.

        A short one waits neither for its turn nor for the budget.
        """
        encoding = exchange.route.encode_in_slices(response)
        answers, turns, size = self._node.answers, self._node.turns, 0
        end = turns.slice_end()
        try:
            for _ in range(SHORT_ENTRIES_MAX):
                size += next(encoding)
            while turns.clock() < end and (size <= SMALL_ANSWER_BYTES or not answers.is_exceeded):
                size += next(encoding)
        except StopIteration as done:
            self._finish(exchange, done.value)
        else:
            self._follow(exchange, self._encode(exchange, encoding, size), self._finish)

    async def _encode(self, exchange: Exchange, encoding: Generator[int, None, Output], size: int) -> Output:
        """Encode the rest of a long answer, of which `size` bytes are made."""
        context, turns, answers = exchange.context, self._node.turns, self._node.answers
        size_max = self._node.settings.answer_bytes_max
        context.charge(size)
        try:
            while size <= size_max:
                await turns.turn()
                if size > SMALL_ANSWER_BYTES:
                    await answers.room(context)
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

    def _fail(self, exchange: Exchange, error: BaseException) -> None:
        """The one place where an error becomes a response's code, or closes the connection."""
        route = exchange.route
        response = None
        if not isinstance(error, ProtocolError) and route.refuse is not None:
            code, message = translate(error)
            self._node.metrics.count_error(code)
            response = route.refuse(exchange.context, exchange.request, code, message)
        if response is None:
            seldom.info("%s: the connection is closed: %s", route.api.name, error)
            exchange.must_close = True
        self._send(exchange, response)
