"""All that tests can make happen on one node."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from pqbroker.broker.ground.cues.clock import MovableClock
from pqbroker.broker.ground.cues.faults import Cue, Fault, NamedApi
from pqbroker.storage.faults import FaultyEngine


class FaultsOnCue(Protocol):
    """Faults of requests, in the order in which they were given."""

    @property
    def apis(self) -> Sequence[NamedApi]:
        """Return the APIs whose requests may meet a fault."""

    @property
    def by_partition(self) -> Collection[int]:
        """Keys of APIs that answer for each partition: a fault may be of one topic or partition."""

    @property
    def faults(self) -> Sequence[Fault]: ...

    def __len__(self) -> int: ...

    def add(self, cue: Cue) -> Fault:
        """Switch a fault on."""

    def end(self, number: int) -> bool:
        """End a fault; False when there is none of this number any more."""

    def clear(self) -> None:
        """End all."""


@dataclass(frozen=True, slots=True)
class Cues:
    """The cues of a broker for tests."""

    answers: FaultsOnCue
    clock: MovableClock
    store: FaultyEngine | None
    """None: the store was opened without faults."""
