"""A recorded history of logs: transactions of Kafka's producers, what readers of committed records saw, numbers that
only grow.

A value is sent once in a history, so that a read says whose record it saw. Moments are places in the order of all that
clients saw.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.histories.history import Ending


class Sent(NamedTuple):
    """A record as its producer sent it. `offset` None: it was not acknowledged."""

    partition: Hashable
    value: int
    offset: int | None = None
    key: Hashable = None
    """Key of a record of a compacted partition: a later one may have taken its place. None: nothing may."""


class Place(NamedTuple):
    """The place of a record."""

    partition: Hashable
    offset: int


@dataclass(frozen=True, slots=True)
class Produced:
    """One transaction, or a batch without one. `asked`: the moment before its commit was asked for; None: never."""

    sends: Sequence[Sent]
    ending: Ending
    asked: int | None
    producer: Hashable = 0
    """Whoever sends one after the other; transactions of one producer stand in this order in the history."""
    inputs: Sequence[Place] = ()
    """Records that it has read, and whose offsets it commits."""


class Found(NamedTuple):
    """A record that a reader got; `completed`: the moment after."""

    offset: int
    value: int
    completed: int


@dataclass(frozen=True, slots=True)
class Reading:
    """One reader's way through a partition, in the order in which it got the records, from an offset on. `end`: where
    it stood at last; None: nobody knows."""

    partition: Hashable
    start: int
    found: Sequence[Found]
    end: int | None = None
    is_last: bool = False
    """True if it began when all was over: it owes each committed record up to its end."""


class Seen(NamedTuple):
    """A number that only grows, as somebody saw it: the end of a log, its last stable offset, a group's offset."""

    name: Hashable
    number: int
    invoked: int
    completed: int


@dataclass(slots=True)
class LogHistory:
    """All that clients did and saw."""

    produced: list[Produced] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)


