"""The interface of an assignor (KIP-848): members with subscriptions go in, the target of each comes out.

An assignor is pure: the same members in the same order, and the same topics, give the same target. It works in steps,
each well below a millisecond, so that the caller chooses its slices: `Turns.finish` runs one to its end.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Protocol

Assignment = Mapping[bytes, tuple[int, ...]]
"""Partitions by topic id, ascending; a topic without partitions is left out."""
Assigning = Generator[None, None, dict[str, Assignment]]
"""Steps that end with the assignment of every member, by member id; one with nothing has an empty assignment.

What a member keeps whole may be the object that it had before.
"""


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """A subscription: the topics that one member wants to read, and its partitions in the previous target."""

    topic_ids: frozenset[bytes]
    """Ids of the topics it subscribes to; one that is no longer among the topics is ignored."""
    assigned: Assignment
    """Partitions of the member in the previous target; {} for a new one. A static member that returns has those of the
    member that it replaces."""
    instance_id: str | None = None
    rack_id: str | None = None


@dataclass(frozen=True, slots=True)
class TopicPartitions:
    """The partitions of one topic."""

    count: int
    racks: tuple[frozenset[str], ...] = ()
    """Racks of the replicas, by partition; empty if no node has a rack."""


class Assignor(Protocol):
    """One way of sharing partitions out."""

    @property
    def name(self) -> str:
        """Return the name by which members and settings choose it."""

    def assign(self, members: Mapping[str, MemberSubscription], topics: Mapping[bytes, TopicPartitions]) -> Assigning:
        """Share out every partition of the topics that somebody subscribes to, each to one member."""
