"""Declaration that a handler file makes: one served Kafka API. `served.py` has the table of all of them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pqbroker.broker.kafka.apis.answer import Answer
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.schema import message

if TYPE_CHECKING:
    from pqbroker.broker.kafka.apis.lane import Lane, LaneRoad

Served = Any | Answer[Any] | Awaitable[Any] | None
"""A response, or what becomes one: an Answer, a coroutine or a future. None: the request gets no answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One Kafka API in the versions that its messages declare.

    `serve` decides; `refuse` builds the response that carries an error for the whole request, None where a request
    has no answer (the connection closes then). An API without `refuse` carries it in the response's own error code.
    `advertised_from` is the lowest version that ApiVersions lists, where that is not the lowest served (Produce).
    `answers_at_length`: the answer may be far longer than the request, so that even a short one may have to be
    answered in slices.
    """

    request: type[object]
    response: type[object]
    serve: Callable[[Context, Any], Served]
    refuse: Callable[[Context, Any, ErrorCode, str], Any | None] | None = None
    advertised_from: int | None = None
    answers_at_length: bool = False
    open_lane: "Callable[[Context, Any, memoryview, LaneRoad], Lane | None] | None" = None
    """Makes a lane for what says the same as this request in this frame; None where there is nothing to be won."""

    @property
    def name(self) -> str:
        return self.request.__name__.removesuffix("Request")

    @property
    def key(self) -> int:
        key = message(self.request).api_key
        assert key is not None, "data inside another message is no request"
        return key

    @property
    def version_min(self) -> int:
        return message(self.request).versions.low

    @property
    def version_max(self) -> int:
        return message(self.request).versions.high

    @property
    def advertised(self) -> tuple[int, int, int]:
        """Key, least and greatest version, as ApiVersions lists them."""
        low = self.version_min if self.advertised_from is None else self.advertised_from
        return self.key, low, self.version_max

    def refusal(self, context: Context, request: Any, code: ErrorCode, text: str) -> Any | None:
        """Return the response that carries an error for the whole request."""
        if self.refuse is not None:
            return self.refuse(context, request, code, text)
        told: dict[str, Any] = {"error_code": code}
        if hasattr(self.response, "error_message"):
            told["error_message"] = text
        return self.response(**told)
