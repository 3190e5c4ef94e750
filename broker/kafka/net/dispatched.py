"""A request that a handler serves: its route, and its `Exchange`. The dispatcher moves it."""

import asyncio
from collections.abc import Callable, Generator
from time import perf_counter
from typing import Any, Final, cast

from pqbroker.broker.ground.metrics import RouteMetrics
from pqbroker.broker.kafka.apis.answer import Answer
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.kafka.apis.exchange import Output
from pqbroker.protocol.codec import Decode, Encode, decoder, encoder, sliced_decoder, sliced_encoder
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.headers import encode_response_header

PRODUCE: Final = 0

OnError = Callable[[ErrorCode], None]
"""Called with each error code of an answer."""


class ServedVersion:
    """One API in one version: its compiled codec and its counters."""

    __slots__ = ("api", "decode", "encode", "header_end", "key", "metrics", "refuse", "serve", "version")

    def __init__(self, api: Api, version: int, metrics: RouteMetrics) -> None:
        self.api = api
        self.key = api.key
        self.version = version
        self.metrics = metrics
        self.serve = api.serve
        self.header_end = encode_response_header(self.key, version, 0)[4:]
        """Bytes behind the correlation id in the header of an answer."""
        self.refuse = api.refusal
        request: Any = api.request
        response: Any = api.response
        self.decode: Decode[Any] = decoder(request, version)
        self.encode = cast(Encode[Any, Output], encoder(response, version))

    def decode_in_slices(self, body: memoryview, elements_max: int) -> Generator[None, None, tuple[Any, int]]:
        """See `codec.sliced_decoder`."""
        request: Any = self.api.request
        return sliced_decoder(request, self.version)(body, elements_max)

    def encode_in_slices(self, answer: Any, on_error: OnError) -> Generator[int, None, Output]:
        """See `codec.sliced_encoder`."""
        response: Any = self.api.response
        return cast(Generator[int, None, Output], sliced_encoder(response, self.version)(answer, on_error))


class Dispatched:
    """An `Exchange` that a handler serves."""

    __slots__ = (
        "answer", "context", "correlation_id", "frame_bytes", "hurried_at", "is_begun", "is_done", "listener",
        "must_close", "output", "pause_ms", "request", "route", "started_at", "task",
    )  # fmt: skip

    route: ServedVersion
    context: Context
    correlation_id: int
    request: Any

    def __init__(self, frame_bytes: int) -> None:
        self.frame_bytes = frame_bytes
        self.is_begun = True
        self.is_done = False
        self.must_close = False
        self.output: Output | None = None
        self.pause_ms = 0
        self.answer: Answer[Any] | None = None
        self.task: asyncio.Future[Any] | None = None
        self.hurried_at = 0.0
        self.listener: Callable[[], None] | None = None
        self.started_at = perf_counter()

    @property
    def is_produce(self) -> bool:
        return self.route.key == PRODUCE

    @property
    def is_parked(self) -> bool:
        return self.answer is not None and self.answer.hurry is not None

    @property
    def is_charged(self) -> bool:
        return self.context.is_charged

    def hurry(self) -> None:
        assert self.answer is not None
        assert self.answer.hurry is not None
        self.hurried_at = perf_counter()
        self.answer.hurry()

    def leave(self) -> None:
        """Leave the request; a Produce that has begun is stored all the same."""
        if self.is_parked:
            self.hurry()
        elif self.task is not None and (self.is_begun or not self.is_produce):
            self.task.cancel()

    def finish(self) -> None:
        """Free all but `output`, and notify the connection."""
        self.is_begun = self.is_done = True
        self.answer = self.task = self.request = None
        if self.context.is_charged:
            self.context.node.answers.end(self.context)
        self.route.metrics.observe(perf_counter() - self.started_at)
        if self.listener is not None:
            self.listener()
