"""Rows of coordinator tablets' residents: kind by kind a row set, a row each; a consumer group with its members.

Lies below what decides, and below the doctor, which reads these rows in a stopped cell.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from pqbroker.storage.tablets.row_sets import Row, RowChanges


@dataclass(frozen=True, slots=True)
class ResidentRows:
    """Stored form of the residents of one kind."""

    name: str
    """Word for one resident."""
    row_set: str
    """Row set, with the resident's id, a text, as its key."""
    columns: tuple[str, ...]
    read: Callable[[str, Row], Any]
    """Reads the row that is stored under an id. LookupError, TypeError, ValueError for a row that no version writes."""

    def put(self, changes: RowChanges, resident_id: str, row: Row) -> None:
        if self.row_set not in changes.row_sets:
            changes.create_row_set(self.row_set, [(f"{self.name}_id", "str")], self.columns)
        changes.put(self.row_set, (resident_id,), row)

    def delete(self, changes: RowChanges, resident_id: str) -> None:
        if self.row_set in changes.row_sets:
            changes.delete(self.row_set, (resident_id,))


class MemberProtocol(NamedTuple):
    """One way of assigning that a member offers, with its own opaque bytes for it."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class MemberImage:
    """A member as it is stored and described."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[MemberProtocol, ...]
    assignment: bytes

    def metadata(self, protocol: str | None) -> bytes:
        """The member's bytes for a protocol; none where it does not offer it."""
        return next((offered.metadata for offered in self.protocols if offered.name == protocol), b"")


@dataclass(frozen=True, slots=True)
class GroupImage:
    """A group as it is stored: at each completed sync, when its last member is gone, when a static member returns."""

    group_id: str
    generation: int
    protocol_type: str | None
    protocol: str | None
    leader: str | None
    members: tuple[MemberImage, ...]


class StoredGroup(NamedTuple):
    """A group and since when it is so, in milliseconds since 1970."""

    image: GroupImage
    state_since_ms: int


def group_row(stored: StoredGroup) -> Row:
    image = stored.image
    row: dict[str, Any] = {
        "generation": image.generation,
        "protocol_type": image.protocol_type,
        "protocol": image.protocol,
        "leader": image.leader,
        "state_since_ms": stored.state_since_ms,
        "members": [_member_fields(member) for member in image.members],
    }
    return row


def _read_group(group_id: str, row: Row) -> StoredGroup:
    fields: Any = row
    image = GroupImage(
        group_id=group_id,
        generation=fields["generation"],
        protocol_type=fields["protocol_type"],
        protocol=fields["protocol"],
        leader=fields["leader"],
        members=tuple(_read_member(member) for member in fields["members"]),
    )
    return StoredGroup(image, fields["state_since_ms"])


def _member_fields(member: MemberImage) -> dict[str, Any]:
    return {
        "id": member.member_id,
        "instance": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "session_timeout_ms": member.session_timeout_ms,
        "rebalance_timeout_ms": member.rebalance_timeout_ms,
        "protocols": [[offered.name, offered.metadata] for offered in member.protocols],
        "assignment": member.assignment,
    }


def _read_member(fields: dict[str, Any]) -> MemberImage:
    return MemberImage(
        member_id=fields["id"],
        instance_id=fields["instance"],
        client_id=fields["client_id"],
        client_host=fields["client_host"],
        session_timeout_ms=fields["session_timeout_ms"],
        rebalance_timeout_ms=fields["rebalance_timeout_ms"],
        protocols=tuple(MemberProtocol(*offered) for offered in fields["protocols"]),
        assignment=fields["assignment"],
    )


GENERATION = "generation"
"""Column that numbers the generations of a resident, for kinds that have them."""
GROUP_ROWS = ResidentRows(
    "group", "groups", (GENERATION, "protocol_type", "protocol", "leader", "state_since_ms", "members"), _read_group
)
RESIDENT_ROWS = (GROUP_ROWS,)
"""Every kind of resident that this version knows."""
