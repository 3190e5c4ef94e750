"""Declaration that a handler file makes: one served Kafka API. The table of all of them is `broker.served`."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pqbroker.broker.kafka.apis.answer import Answer
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from pqbroker.broker.kafka.apis.lane import Lane, LaneRoad

Served = Any | Answer[Any] | Awaitable[Any] | None
"""A response, or what becomes one: an Answer, a coroutine or a future. None: the request gets no answer."""


@dataclass(frozen=True, slots=True)
class Api:
    """One Kafka API in the versions served.

    `serve` decides; `refuse` builds the response that carries an error for the whole request, None where the API has
no room for one (the connection closes then). `advertised_min` is what ApiVersions says, which may be lower than
    what is served (Produce). `answers_at_length`: the answer may be far longer than the request, so that even a short
    one may have to be answered in slices.
    """

    key: int
    name: str
    version_min: int
    version_max: int
    request: type[object]
    response: type[object]
    serve: Callable[[Context, Any], Served]
    refuse: Callable[[Context, Any, ErrorCode, str], Any | None] | None
    advertised_min: int | None = None
    answers_at_length: bool = False
    open_lane: "Callable[[Context, Any, memoryview, LaneRoad], Lane | None] | None" = None
    """Makes a lane for what says the same as this request in this frame; None where there is nothing to be won."""

    @property
    def advertised(self) -> tuple[int, int, int]:
        """Key, least and greatest version, as ApiVersions lists them."""
        low = self.version_min if self.advertised_min is None else self.advertised_min
        return self.key, low, self.version_max
