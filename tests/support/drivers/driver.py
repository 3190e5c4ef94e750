"""What a test asks of a client library, whichever it is."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

REQUEST_TIMEOUT_S = 15.0
SESSION_MS, HEARTBEAT_MS = 10_000, 300
"""Of group members: they hear soon of a rebalance, and are not given up while the machine is busy."""
METADATA_MS = 1000
"""Of group members: they hear soon of new partitions."""
FETCH_BYTES = 2000
"""Of a reader of one partition: it fetches often."""
RECENT_MS = int(time.time() * 1000) - 600_000
"""A time that retention does not reach while the tests run."""


@dataclass(frozen=True, slots=True)
class Message:
    """A record as a program sees it."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = RECENT_MS


@dataclass(frozen=True, slots=True)
class Cluster:
    """What describing the cluster says."""

    cluster_id: str
    controller_id: int
    brokers: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class Group:
    """What describing a group says."""

    state: str
    members: int


class RefusedError(Exception):
    """The broker answered with a Kafka error code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"error code {code}")
        self.code = code


class GroupConsumer(Protocol):
    """A consumer subscribed to one topic in a group, reading from the start where nothing is committed.

    One thread makes and uses it. It sends heartbeats often, so that tests need not wait for rebalances.
    """

    assignments: list[frozenset[int]]
    """What it owned after each rebalance."""

    def poll(self, timeout_s: float) -> list[tuple[int, int]]:
        """Partition and offset of records that came; returns about when the time is over."""

    def commit(self) -> None:
        """Commit all that was polled, and await the answer."""

    def close(self) -> None:
        """Close as a program does."""


class PartitionReader(Protocol):
    """A consumer assigned to partition 0 of a topic, that fetches little at once. It commits to a group without being
    a member of it, and begins where the group has committed, else at the first offset."""

    def poll(self, timeout_s: float) -> list[tuple[int, Message]]:
        """Records that came, with their offsets."""

    def seek(self, offset: int) -> None:
        """Read on from an offset."""

    def position(self) -> int:
        """The offset that is read next, as the client shows it."""

    def commit(self) -> None:
        """Commit the position, and await the answer."""

    def close(self) -> None:
        """Close as a program does."""


class Driver(Protocol):
    """One client library, talking to one broker; a context manager that closes what it opened."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def produce(
        self, topic: str, messages: Sequence[Message], *, partition: int = 0, codec: str = "none",
        acks: int = -1, idempotent: bool = True,
    ) -> list[int]:  # fmt: skip
        """Send, flush, and return the acknowledged offsets in the order of the messages (acks=0: none)."""

    def read(self, topic: str, *, count: int, partition: int = 0, offset: int = 0) -> list[tuple[int, Message]]:
        """Read `count` records by assignment, from exactly `offset`, with their offsets."""

    def bounds(self, topic: str, partition: int = 0) -> tuple[int, int]:
        """The first offset and the one after the last."""

    def offset_at(self, topic: str, timestamp_ms: int, partition: int = 0) -> int | None:
        """The offset of the first record not older than the time; None when there is none."""

    def create_topic(self, name: str, *, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Create; RefusedError as the broker says."""

    def delete_topic(self, name: str) -> None:
        """Delete; RefusedError as the broker says."""

    def grow_topic(self, name: str, partitions: int) -> None:
        """Raise the partition count; RefusedError as the broker says."""

    def topics(self) -> dict[str, int]:
        """Every topic with its partition count."""

    def topic_config(self, name: str) -> dict[str, str]:
        """Every config of a topic."""

    def alter_topic(self, name: str, config: Mapping[str, str]) -> None:
        """Set configs of a topic."""

    def trim_topic(self, name: str, before: int, partition: int = 0) -> None:
        """Delete the records before an offset."""

    def cluster(self) -> Cluster:
        """The cluster as the broker describes it."""

    def consumer(self, topic: str, group: str, instance_id: str | None = None) -> GroupConsumer:
        """Join a group; with an instance id as a static member."""

    def reader(self, topic: str, group: str) -> PartitionReader:
        """Read partition 0 by assignment, where a group has committed or from the first offset on."""

    def groups(self) -> set[str]:
        """Every group."""

    def group(self, name: str) -> Group:
        """A group as the broker describes it; RefusedError, or a state `Dead`, when there is none."""

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """What a group committed, by partition."""

    def delete_group(self, name: str) -> None:
        """Delete; RefusedError as the broker says."""
