"""Rows of groups of KIP-848: a row for each group, and two for each member, so that a step of one member is stored
without the others: what it says of itself, and what it has and is to have.

Versions that know no such groups leave the row sets as they are.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from struct import pack, unpack
from typing import Any, Final, NamedTuple

from pqbroker.storage.tablets.coordinator_rows import TOPIC_ID_BYTES, MemberProtocol
from pqbroker.storage.tablets.resident_rows import ResidentRows
from pqbroker.storage.tablets.row_sets import Row

MODERN_FORM: Final = 1
"""Version of these rows."""
PartitionEpochs = Mapping[bytes, Mapping[int, int]]
"""Partitions by topic id, each with the group's epoch in which its member got it."""
TopicIndexes = Mapping[bytes, tuple[int, ...]]
"""Partitions by topic id."""
LEFT_STATIC: Final = -2
"""Epoch of a static member that is away and will come back (KIP-848)."""


class MemberState(StrEnum):
    """States of a member in a reconciliation, in Kafka's words; they are stored."""

    STABLE = "Stable"
    UNREVOKED_PARTITIONS = "UnrevokedPartitions"
    UNRELEASED_PARTITIONS = "UnreleasedPartitions"


class ResolvedExpression(NamedTuple):
    """Topics that match a regular expression, and when it was looked up (milliseconds since 1970)."""

    topics: frozenset[str]
    resolved_ms: int


@dataclass(frozen=True, slots=True)
class ModernGroupImage:
    """A group as it is stored, without its members. Times are milliseconds since 1970."""

    group_id: str
    epoch: int
    assignment_epoch: int
    """Epoch of the target assignment."""
    assigned_ms: int
    """Time of the target assignment; 0: none yet."""
    topics_hash: int
    """Hash of the topics that members read, as they were at the epoch."""
    state_since_ms: int
    expressions: Mapping[str, ResolvedExpression]


@dataclass(frozen=True, slots=True)
class ClassicSide:
    """Facts of a member that speaks the classic protocol, in a group of KIP-848."""

    session_timeout_ms: int
    protocols: tuple[MemberProtocol, ...]


@dataclass(frozen=True, slots=True)
class Subscription:
    """Words of a member about itself, and the topics that it wants to read."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topics: frozenset[str] = frozenset()
    expression: str = ""
    assignor: str | None = None
    classic: ClassicSide | None = None
    """None: the member speaks the protocol of KIP-848."""


@dataclass(frozen=True, slots=True)
class CurrentAssignment:
    """State of a member on the way to its target."""

    state: MemberState = MemberState.STABLE
    epoch: int = 0
    """Kafka's member epoch; LEFT_STATIC for a static member that is away."""
    previous_epoch: int = -1
    assigned: PartitionEpochs = field(default_factory=dict)
    """Partitions that the member may read."""
    revoking: PartitionEpochs = field(default_factory=dict)
    """Partitions that the member is to let go, and that nobody else gets before."""


class StoredModernMember(NamedTuple):
    """A member's subscription, as stored."""

    group_id: str
    member_id: str
    subscription: Subscription


class StoredAssignment(NamedTuple):
    """Partitions that a member has and is to have, as stored."""

    group_id: str
    member_id: str
    current: CurrentAssignment
    target: TopicIndexes


def modern_group_row(image: ModernGroupImage) -> Row:
    row: dict[str, Any] = {
        "form": MODERN_FORM,
        "epoch": image.epoch,
        "assignment": [image.assignment_epoch, image.assigned_ms],
        "topics_hash": image.topics_hash,
        "state_since_ms": image.state_since_ms,
        "expressions": [
            [expression, sorted(resolved.topics), resolved.resolved_ms]
            for expression, resolved in sorted(image.expressions.items())
        ],
    }
    return row


def modern_member_row(subscription: Subscription) -> Row:
    classic = subscription.classic
    row: dict[str, Any] = {
        "form": MODERN_FORM,
        "instance": subscription.instance_id,
        "rack": subscription.rack_id,
        "client": [subscription.client_id, subscription.client_host],
        "rebalance_timeout_ms": subscription.rebalance_timeout_ms,
        "topics": sorted(subscription.topics),
        "expression": subscription.expression,
        "assignor": subscription.assignor,
        "classic": None if classic is None else [classic.session_timeout_ms, list(map(list, classic.protocols))],
    }
    return row


def assignment_row(current: CurrentAssignment, target: TopicIndexes) -> Row:
    row: dict[str, Any] = {
        "form": MODERN_FORM,
        "state": current.state.value,
        "epochs": [current.epoch, current.previous_epoch],
        "assigned": _with_epochs(current.assigned),
        "revoking": _with_epochs(current.revoking),
        "target": [[topic_id, _packed(indexes)] for topic_id, indexes in target.items()],
    }
    return row


def _with_epochs(partitions: PartitionEpochs) -> list[list[bytes]]:
    return [[topic_id, _packed(epochs), _packed(epochs.values())] for topic_id, epochs in partitions.items()]


def _packed(numbers: Collection[int]) -> bytes:
    return pack(f">{len(numbers)}i", *numbers)


def _read_group(group_id: str, row: Row) -> ModernGroupImage:
    fields: Any = _fields(row)
    assignment_epoch, assigned_ms = fields["assignment"]
    return ModernGroupImage(
        group_id=group_id,
        epoch=_number(fields["epoch"], 0, 31),
        assignment_epoch=_number(assignment_epoch, 0, 31),
        assigned_ms=_number(assigned_ms, 0, 63),
        topics_hash=_number(fields["topics_hash"], 0, 64),
        state_since_ms=_number(fields["state_since_ms"], 0, 63),
        expressions={
            str(expression): ResolvedExpression(frozenset(map(str, topics)), _number(resolved_ms, 0, 63))
            for expression, topics, resolved_ms in fields["expressions"]
        },
    )


def _read_member(group_id: str, member_id: str, row: Row) -> StoredModernMember:
    fields: Any = _fields(row)
    client_id, client_host = fields["client"]
    classic = fields["classic"]
    subscription = Subscription(
        instance_id=_text_or_none(fields["instance"]),
        rack_id=_text_or_none(fields["rack"]),
        client_id=str(client_id),
        client_host=str(client_host),
        rebalance_timeout_ms=_number(fields["rebalance_timeout_ms"], -(1 << 31), 31),
        topics=frozenset(map(str, fields["topics"])),
        expression=str(fields["expression"]),
        assignor=_text_or_none(fields["assignor"]),
        classic=None if classic is None else _read_classic(*classic),
    )
    return StoredModernMember(group_id, member_id, subscription)


def _read_classic(session_timeout_ms: int, protocols: Sequence[Sequence[Any]]) -> ClassicSide:
    return ClassicSide(
        _number(session_timeout_ms, 0, 31), tuple(MemberProtocol(str(name), bytes(data)) for name, data in protocols)
    )


def _read_assignment(group_id: str, member_id: str, row: Row) -> StoredAssignment:
    fields: Any = _fields(row)
    epoch, previous_epoch = fields["epochs"]
    current = CurrentAssignment(
        state=MemberState(fields["state"]),
        epoch=_number(epoch, LEFT_STATIC, 31),
        previous_epoch=_number(previous_epoch, LEFT_STATIC, 31),
        assigned=_read_epochs(fields["assigned"]),
        revoking=_read_epochs(fields["revoking"]),
    )
    target = {_topic_id(topic_id): _unpacked(indexes) for topic_id, indexes in fields["target"]}
    return StoredAssignment(group_id, member_id, current, target)


def _read_epochs(stored: Sequence[Sequence[bytes]]) -> PartitionEpochs:
    return {
        _topic_id(topic_id): dict(zip(_unpacked(indexes), _unpacked(epochs), strict=True))
        for topic_id, indexes, epochs in stored
    }


def _unpacked(stored: bytes) -> tuple[int, ...]:
    count, rest = divmod(len(stored), _NUMBER_BYTES)
    if rest:
        raise ValueError(f"{len(stored)} bytes are no list of numbers")
    return unpack(f">{count}i", stored)


def _fields(row: Row) -> Row:
    if row["form"] != MODERN_FORM:
        raise ValueError(f"form {row['form']!r}; this version reads {MODERN_FORM}")
    return row


def _topic_id(stored: bytes) -> bytes:
    if len(stored) != TOPIC_ID_BYTES:
        raise ValueError(f"a topic id of {len(stored)} bytes")
    return bytes(stored)


def _text_or_none(stored: Any) -> str | None:
    return None if stored is None else str(stored)


def _number(stored: Any, low: int, bits: int) -> int:
    number = int(stored)
    if not low <= number < 1 << bits:
        raise ValueError(f"{number} lies outside [{low}, 2**{bits})")
    return number


_NUMBER_BYTES: Final = 4
MODERN_MEMBER_ROWS = ResidentRows(
    "modern_group", "modern_members",
    (
        "form", "instance", "rack", "client", "rebalance_timeout_ms", "topics", "expression", "assignor", "classic",
    ),
    _read_member, part="member_id",
)  # fmt: skip
MODERN_ASSIGNMENT_ROWS = ResidentRows(
    "modern_group", "modern_assignments", ("form", "state", "epochs", "assigned", "revoking", "target"),
    _read_assignment, part="member_id",
)  # fmt: skip
MODERN_GROUP_ROWS = ResidentRows(
    "modern_group", "modern_groups",
    ("form", "epoch", "assignment", "topics_hash", "state_since_ms", "expressions"), _read_group,
    parts=(MODERN_MEMBER_ROWS, MODERN_ASSIGNMENT_ROWS),
)  # fmt: skip
MODERN_ROWS = (MODERN_GROUP_ROWS, MODERN_MEMBER_ROWS, MODERN_ASSIGNMENT_ROWS)
"""All rows of these groups."""
