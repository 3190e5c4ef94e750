"""Markers that end Kafka transactions in one partition: those that come while a cycle is in work share the next one."""

from collections.abc import Callable
from typing import Final

from pqbroker.pq.log.blob_cycles import plan_markers
from pqbroker.pq.log.partition import Partition
from pqbroker.pq.log.write_cycle import Cycle, Written
from pqbroker.pq.serving.writer import Writer
from pqbroker.protocol.control_records import MARKER_BYTES_MAX, EndMarker
from pqbroker.protocol.errors import KafkaError
from pqbroker.storage.outcome import Outcome

MARKERS_AT_ONCE: Final = 64
"""Markers of one cycle at most."""
_Waiting = list[tuple[EndMarker, Outcome[int]]]


class EndMarkers:
    """Markers that wait to be written. Made with the first one of a partition."""

    __slots__ = ("_clock", "_partition", "_waiting", "_writer")

    def __init__(self, partition: Partition, writer: Writer, clock: Callable[[], int]) -> None:
        self._partition = partition
        self._writer = writer
        self._clock = clock
        self._waiting: _Waiting = []

    def add(self, marker: EndMarker) -> Outcome[int]:
        """Have a marker written; its offset, once it is durable."""
        outcome: Outcome[int] = Outcome()
        self._waiting.append((marker, outcome))
        if len(self._waiting) % MARKERS_AT_ONCE == 1:
            self._begin()
        return outcome

    def _begin(self) -> None:
        """Have one more cycle planned."""
        taken: _Waiting = []
        outcomes: list[Written | KafkaError] = []

        def plan() -> Cycle:
            taken.extend(self._take())
            cycle = plan_markers(self._partition, [marker for marker, _ in taken], self._clock())
            outcomes.extend(cycle.outcomes)
            cycle.outcomes = []
            return cycle

        def ended(job: Outcome[None]) -> None:
            error = job.exception()
            for number, (_, outcome) in enumerate(taken or self._take()):
                refusal = error or outcomes[number]
                if isinstance(refusal, Written):
                    outcome.set_result(refusal.base_offset)
                else:
                    outcome.set_exception(refusal)

        self._writer.perform(plan, decided_bytes=MARKERS_AT_ONCE * MARKER_BYTES_MAX).add_done_callback(ended)

    def _take(self) -> _Waiting:
        """Return the markers of the next cycle, which wait no longer."""
        taken = self._waiting[:MARKERS_AT_ONCE]
        del self._waiting[:MARKERS_AT_ONCE]
        return taken
