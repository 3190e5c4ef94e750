"""Messages into a group and out of it: requests without a wire format, answers, what to store."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pqbroker.broker.services.coordination.classic.memory import GroupMemory
from pqbroker.protocol.errors import ErrorCode
from pqbroker.storage.tablets.coordinator_rows import GroupImage, MemberProtocol

Ticket = Any
"""Stands for one parked request; a group only gives it back with the answer."""


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """Limits that a node sets for all groups: milliseconds, members, bytes as `memory.py` counts them."""

    session_timeout_min_ms: int
    session_timeout_max_ms: int
    initial_rebalance_delay_ms: int
    members_max: int
    new_member_join_timeout_ms: int = 300_000
    """Time that a new member may wait in a join before it must ask again, as in Kafka: meanwhile its death goes
    unnoticed."""
    id_bytes_max: int = 1024
    """Bytes of a group's id."""
    member_bytes_max: int = 1 << 20
    metadata_bytes_max: int = 5 << 20
    """Bytes of all members of a group. With their assignments they must fit into one commit of a coordinator."""
    assignment_bytes_max: int = 5 << 19
    modern_members_max: int = (1 << 31) - 1
    """Members of a group of KIP-848."""
    memory: GroupMemory = field(default_factory=lambda: GroupMemory(64 << 20))
    """Bytes of all groups of the node."""


@dataclass(frozen=True, slots=True)
class Join:
    """A JoinGroup. `new_member_id` is what a member without an id would be called: chance is the caller's business."""

    member_id: str
    instance_id: str | None
    protocol_type: str
    protocols: tuple[MemberProtocol, ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    new_member_id: str = ""
    client_id: str = ""
    client_host: str = ""
    requires_known_id: bool = True
    """True from version 4 on: a dynamic member gets its id first and joins with it (KIP-394)."""
    can_skip_assignment: bool = True
    """True from version 9 on: the answer may have a returning static leader assign nothing (KIP-814)."""


@dataclass(frozen=True, slots=True)
class Sync:
    """A SyncGroup; only the leader's has assignments. Protocol names of None are not compared."""

    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: Mapping[str, bytes] | None = None


class Leaver(NamedTuple):
    """One of those whom a LeaveGroup removes; an administrator names a static member by its instance alone."""

    member_id: str
    instance_id: str | None


class JoinedMember(NamedTuple):
    """Facts of each member that the leader gets."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class Joined:
    """Answer to a Join."""

    error: ErrorCode
    member_id: str
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skips_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()
    reason: str = ""
    """Text for the log: what was refused, and what to do."""


@dataclass(frozen=True, slots=True)
class Synced:
    """Answer to a Sync."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""
    reason: str = ""
    """Text for the log: what was refused, and what to do."""


class Send(NamedTuple):
    """Effect: answer a parked request."""

    ticket: Ticket
    answer: Joined | Synced


@dataclass(frozen=True, slots=True)
class Receipt:
    """An answer that waits for a store: an assignment of a generation, or one static member's answer."""

    generation: int
    assignments: Mapping[str, bytes] | None = None
    ticket: Ticket = None
    joined: Joined | None = None


class Store(NamedTuple):
    """Effect: make the image durable; `stored` is then called with the receipt, if there is one."""

    image: GroupImage
    receipt: Receipt | None


Effect = Send | Store
