"""Subscriptions and assignments of a group's members, where they are consumers: the protocol's bytes give them."""

from struct import Struct
from typing import TypeVar

from pqbroker.broker.services.coordination.classic.group import Group
from pqbroker.protocol.codec import decoder
from pqbroker.protocol.errors import ProtocolError
from pqbroker.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)

T = TypeVar("T")

CONSUMER = "consumer"
"""The protocol type of consumers; Connect and others have their own, whose bytes are theirs."""
_VERSION_MAX = 3
_VERSION = Struct(">h")


def subscribed_topics(group: Group) -> frozenset[str] | None:
    """Topics that some member wants; None when that cannot be known."""
    if group.protocol_type != CONSUMER:
        return None
    found: set[str] = set()
    for member in group.members.values():
        protocol = group.protocol or member.protocols[0].name
        topics = _topics(member.metadata(protocol))
        if topics is None:
            return None
        found.update(topics)
    return frozenset(found)


def assigned_partitions(protocol_type: str | None, assignment: bytes) -> list[TopicPartition] | None:
    """Return the partitions that a member is to read; None when they are unknown."""
    if protocol_type != CONSUMER:
        return None
    if not assignment:
        return []
    decoded = _decode(ConsumerProtocolAssignment, assignment)
    return None if decoded is None else decoded.assigned_partitions


def _topics(subscription: bytes) -> list[str] | None:
    decoded = _decode(ConsumerProtocolSubscription, subscription)
    return None if decoded is None else decoded.topics


def _decode(declared: type[T], data: bytes) -> T | None:
    """Return the decoded message; None for what is not in the consumers' format."""
    if len(data) < _VERSION.size:
        return None
    (version,) = _VERSION.unpack_from(data)
    if version < 0:
        return None
    try:
        return decoder(declared, min(version, _VERSION_MAX))(memoryview(data)[_VERSION.size :])
    except ProtocolError:
        return None
