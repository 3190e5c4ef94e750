"""Lanes, as a connection sees them: a lane takes a request, or leaves it to be dispatched before anything is done."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Protocol

from pqbroker.broker.ground.metrics import RouteMetrics
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.kafka.apis.exchange import Exchange

LANES_MAX = 4
"""Lanes of one connection for each API: a producer of several topics often sends one topic in each request."""


class TakenRequest(Protocol):
    """A request that a lane has taken, for the dispatcher to serve it after all."""

    correlation_id: int
    frame_bytes: int
    started_at: float
    """Time when it came (`perf_counter`)."""


class LaneExchange(Protocol):
    """An exchange of a lane that answers later."""

    def answer(self) -> None: ...
    def fail(self, defect: Exception) -> None:
        """Have the dispatcher answer with a defect of ours."""


Serve = Callable[[Context, TakenRequest, Callable[[Context], Any]], Exchange]
"""Serves a request by a call that returns what a handler may, in a new context like the one given."""


class Lane(Protocol):
    """One connection's lane, for requests of one API that say what one before them said."""

    @property
    def form(self) -> Hashable:
        """Return what its requests say: another lane of the same form takes its place."""

    def begin(self, frame: memoryview) -> Exchange | None:
        """Serve the request; None: it says something else, or what the lane knows holds no longer."""


@dataclass(frozen=True, slots=True)
class LaneRoad:
    """The dispatcher's part in the lanes of one API in one version."""

    metrics: RouteMetrics
    serve: Serve
    answer: Callable[[LaneExchange], None]
    """Has an exchange answer, outside the call that began it."""
