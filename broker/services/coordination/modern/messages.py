"""Messages into a group of KIP-848 and out of it, and what of the node its rules read: topics, assignors, times."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from pqbroker.broker.services.coordination.assigning.assignor import Assignor, TopicPartitions
from pqbroker.broker.services.coordination.modern.reconciliation import Owned
from pqbroker.conf.group_times import GroupTimes
from pqbroker.storage.tablets.modern_group_rows import PartitionEpochs

JOINING: Final = 0
"""Epoch with which a member joins, or joins again."""
LEAVING: Final = -1
"""Epoch with which a member leaves."""


@dataclass(frozen=True, slots=True)
class MemberHeartbeat:
    """A ConsumerGroupHeartbeat. What is None, or -1, is as the member said before."""

    member_id: str
    """"" from a member of version 0 that joins: the broker gives it an id (`new_member_id`)."""
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: frozenset[str] | None = None
    expression: str | None = None
    assignor: str | None = None
    owned: Owned = None
    client_id: str = ""
    client_host: str = ""
    new_member_id: str = ""

    @property
    def is_full(self) -> bool:
        """Return True if the member says everything, as it does when it is not sure what the broker knows."""
        says_topics = self.topics is not None or self.expression is not None
        return self.rebalance_timeout_ms != -1 and says_topics and self.owned is not None


class HeartbeatAnswer(NamedTuple):
    """Answer to a member. `assigned` None: its partitions are those that it was told before."""

    member_id: str
    epoch: int
    heartbeat_interval_ms: int = 0
    assigned: PartitionEpochs | None = None


class KnownTopic(NamedTuple):
    """A topic that exists."""

    topic_id: bytes
    partitions: TopicPartitions


class KnownTopics(Protocol):
    """Topics of the node."""

    @property
    def version(self) -> int:
        """Return a number that rises whenever a topic comes, goes or grows."""

    def find(self, name: str) -> KnownTopic | None:
        """Return the topic of a name."""

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of a topic."""


@dataclass(frozen=True, slots=True)
class Around:
    """Surroundings of a request: the time, and what the node has."""

    now_ms: int
    """Time that sessions go by."""
    clock_ms: int
    """Milliseconds since 1970."""
    times: GroupTimes
    topics: KnownTopics
    assignors: Mapping[str, Assignor]
    """Assignors by name; the first is taken where no member asks for one."""
    is_slice_over: Callable[[], bool]
    """Return True if longer work has to wait for another turn."""
