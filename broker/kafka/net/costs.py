"""Costs of connections, measured while somebody looks: requests, and processor time of the loop that they take as they
begin. A connection that is not measured pays nothing: what measures stands in the place of its dispatcher.

Work that a request leaves to others is not in it: commits, waits, the answer of a Fetch that was parked.
"""

from time import perf_counter
from typing import Final

from pqbroker.broker.kafka.apis.context import Peer
from pqbroker.broker.kafka.apis.exchange import Exchange
from pqbroker.broker.kafka.apis.metering import Beginner

MEASURED_S: Final = 15.0
"""Time for which connections are measured after the last look."""


class MeasuringDispatcher:
    """One connection's dispatcher, with what was counted of it."""

    __slots__ = ("_dispatcher", "begun", "busy_s")

    def __init__(self, dispatcher: Beginner) -> None:
        self._dispatcher = dispatcher
        self.begun = 0
        self.busy_s = 0.0

    @property
    def measured(self) -> Beginner:
        """Return the dispatcher behind it."""
        return self._dispatcher

    def begin(self, peer: Peer, frame: memoryview) -> Exchange:
        self.begun += 1
        began = perf_counter()
        try:
            return self._dispatcher.begin(peer, frame)
        finally:
            self.busy_s += perf_counter() - began
