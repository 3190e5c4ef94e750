"""All that tests can make happen on one node."""

from dataclasses import dataclass

from pqbroker.broker.cues.answer_faults import AnswerFaults
from pqbroker.broker.cues.clock import MovableClock
from pqbroker.storage.faults import FaultyEngine


@dataclass(frozen=True, slots=True)
class Cues:
    """Of a broker for tests."""

    answers: AnswerFaults
    clock: MovableClock
    store: FaultyEngine | None
    """None: the store was opened without faults."""
