"""Needs of the services of consumer groups: of the node, and of their callers."""

from collections.abc import Collection
from typing import Protocol

from pqbroker.broker.ground.access import Guarded, Principal
from pqbroker.broker.ground.openings import Openings
from pqbroker.broker.services.coordination.coordinators import Coordinators
from pqbroker.pq.serving.topics import Topics
from pqbroker.storage.tablets.coordinator_rows import PartitionId


class PendingOffsets(Protocol):
    """Offsets that producers' transactions may commit."""

    async def drop_offsets(self, group_id: str, partitions: Collection[PartitionId] | None = None) -> None:
        """Forget offsets of a group; None: all of it. Durable when this returns. KafkaError."""


class GroupsOpening(Protocol):
    """One opening of the system cell."""

    @property
    def topics(self) -> Topics: ...
    @property
    def coordinators(self) -> Coordinators: ...
    @property
    def transactional_producers(self) -> PendingOffsets: ...


class GroupsNode(Guarded, Protocol):
    """The node that hosts consumer groups."""

    @property
    def cell(self) -> Openings[GroupsOpening]: ...


class GroupsCaller(Protocol):
    """A caller that asks about groups."""

    @property
    def node(self) -> GroupsNode: ...
    @property
    def principal(self) -> Principal: ...
    @property
    def host(self) -> str: ...
