"""Participants with something unfinished: prepared rows, or decisions that are kept. Each start of a tablet adds its
own; the coordinator looks after them."""

from collections.abc import Callable

from pqbroker.pq.transactions.stored_forms import ParticipantId


def _nobody() -> None:
    """Do nothing, before a coordinator listens."""


class Unfinished:
    """The participants to look after, by id."""

    __slots__ = ("listener", "participants")

    def __init__(self) -> None:
        self.participants: set[ParticipantId] = set()
        self.listener: Callable[[], None] = _nobody
        """Called when a participant was added."""

    def add(self, participant: ParticipantId) -> None:
        """A participant has prepared rows, or decisions."""
        self.participants.add(participant)
        self.listener()
