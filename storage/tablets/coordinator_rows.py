"""Rows of coordinator tablets' residents: a classic group with its members, a transactional id with what its
transaction has taken in. Those of groups of KIP-848 are in `modern_group_rows.py`.

Lies below what decides, and below the doctor, which reads these rows in a stopped cell.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

from pqbroker.storage.tablets.resident_rows import ResidentRows
from pqbroker.storage.tablets.row_sets import Row


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


class TransactionalIdState(StrEnum):
    """States of a transactional id, in Kafka's words; they are stored."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    """An expired id. Never stored: its row is deleted."""


class PartitionId(NamedTuple):
    """A partition of one topic, not of a later one that has its name."""

    topic_id: bytes
    partition_index: int


class PendingOffset(NamedTuple):
    """An offset of a group that counts once its producer commits. Times are milliseconds since 1970."""

    group_id: str
    partition: PartitionId
    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    creator: str
    """Holder that sent it (`holder_of`)."""


@dataclass(frozen=True, slots=True)
class TransactionalImage:
    """A transactional id as it is stored: at each of its changes. Times are milliseconds since 1970."""

    transactional_id: str
    producer_id: int
    epoch: int
    """-1 for an id that is being made."""
    timeout_ms: int
    state: TransactionalIdState = TransactionalIdState.EMPTY
    last_producer_id: int = -1
    """Producer id before this one, whose epochs were used up."""
    last_epoch: int = -1
    """Epoch that its producer was given a higher one for, so that it may ask again; -1: none."""
    next_producer_id: int = -1
    """Producer id from the end of what is being ended on; -1: the same."""
    started_ms: int = -1
    changed_ms: int = -1
    bumps_epochs: bool = False
    """True while its producer speaks version 2 of the protocol, where each end gives a new epoch (KIP-890)."""
    partitions: frozenset[PartitionId] = frozenset()
    groups: frozenset[str] = frozenset()
    offsets: tuple[PendingOffset, ...] = ()
    creator: str = ""
    """Address of the client that made it."""


LAST_PRODUCER_EPOCH: Final = (1 << 15) - 2
"""Last epoch that a producer gets: the one after it is for fencing it."""
TRANSACTIONAL_FORM: Final = 1
"""Version of the rows of transactional ids."""


def transactional_row(image: TransactionalImage) -> Row:
    row: dict[str, Any] = {
        "form": TRANSACTIONAL_FORM,
        "producer": [image.producer_id, image.epoch],
        "earlier": [image.last_producer_id, image.last_epoch],
        "next_producer_id": image.next_producer_id,
        "timeout_ms": image.timeout_ms,
        "state": image.state.value,
        "times": [image.started_ms, image.changed_ms],
        "bumps_epochs": image.bumps_epochs,
        "partitions": [list(partition) for partition in sorted(image.partitions)],
        "groups": sorted(image.groups),
        "offsets": [[pending[0], *pending[1], *pending[2:]] for pending in image.offsets],
        "creator": image.creator,
    }
    return row


def _read_transactional(transactional_id: str, row: Row) -> TransactionalImage:
    fields: Any = row
    if fields["form"] != TRANSACTIONAL_FORM:
        raise ValueError(f"form {fields['form']!r}; this version reads {TRANSACTIONAL_FORM}")
    producer_id, epoch = fields["producer"]
    last_producer_id, last_epoch = fields["earlier"]
    started_ms, changed_ms = fields["times"]
    state = TransactionalIdState(fields["state"])
    if state is TransactionalIdState.DEAD:
        raise ValueError("an expired one")
    return TransactionalImage(
        transactional_id=transactional_id,
        producer_id=_number(producer_id, 0, 63),
        epoch=_number(epoch, 0, 15),
        timeout_ms=_number(fields["timeout_ms"], 0, 31),
        state=state,
        last_producer_id=_number(last_producer_id, -1, 63),
        last_epoch=_number(last_epoch, -1, 15),
        next_producer_id=_number(fields["next_producer_id"], -1, 63),
        started_ms=_number(started_ms, -1, 63),
        changed_ms=_number(changed_ms, -1, 63),
        bumps_epochs=bool(fields["bumps_epochs"]),
        partitions=frozenset(PartitionId(_topic_id(topic_id), index) for topic_id, index in fields["partitions"]),
        groups=frozenset(fields["groups"]),
        offsets=tuple(_read_offset(*offset) for offset in fields["offsets"]),
        creator=fields["creator"],
    )


def with_later_epoch(row: Row, by: int) -> Row:
    """Raise the epoch of a transactional id beyond those that lost changes can have given: its producer is fenced, and
    behind the last epoch a new one gets another producer id."""
    fields: Any = row
    producer_id, epoch = fields["producer"]
    later = max(epoch, min(epoch + by, LAST_PRODUCER_EPOCH))
    return {**row, "producer": [producer_id, later], "earlier": [fields["earlier"][0], -1]}


def _read_offset(group_id: str, topic_id: bytes, index: int, *rest: Any) -> PendingOffset:
    return PendingOffset(group_id, PartitionId(_topic_id(topic_id), index), *rest)


def _topic_id(stored: bytes) -> bytes:
    if len(stored) != TOPIC_ID_BYTES:
        raise ValueError(f"a topic id of {len(stored)} bytes")
    return bytes(stored)


def _number(stored: Any, low: int, bits: int) -> int:
    number = int(stored)
    if not low <= number < 1 << bits:
        raise ValueError(f"{number} lies outside [{low}, 2**{bits})")
    return number


TOPIC_ID_BYTES: Final = 16
GENERATION = "generation"
"""Column that numbers the generations of a resident, for kinds that have them."""
GROUP_ROWS = ResidentRows(
    "group", "groups", (GENERATION, "protocol_type", "protocol", "leader", "state_since_ms", "members"), _read_group
)
TRANSACTIONAL_ROWS = ResidentRows(
    "transactional", "transactional_ids",
    (
        "form", "producer", "earlier", "next_producer_id", "timeout_ms", "state", "times", "bumps_epochs", "partitions",
        "groups", "offsets", "creator",
    ),
    _read_transactional,
)  # fmt: skip
