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
_COMMON_ASSIGNORS = {"range", "roundrobin", "sticky", "cooperative-sticky"}
"""Assignors that every client library has."""
VERSION_MAX = 3
"""Latest version of what consumers send each other."""
VERSION = Struct(">h")
"""Version, which begins it."""


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


def read_subscription(subscription: bytes) -> ConsumerProtocolSubscription | None:
    """Return what a consumer says when it joins; None for what is no subscription."""
    return _decode(ConsumerProtocolSubscription, subscription)


def read_assignment(protocol: str, assignment: bytes) -> list[TopicPartition] | None:
    """Return the partitions of an assignment; None for what is none, or has data of a custom assignor. librdkafka's own
    assignors give members back what they have said of themselves."""
    decoded = _decode(ConsumerProtocolAssignment, assignment)
    if decoded is None or (decoded.user_data and protocol not in _COMMON_ASSIGNORS):
        return None
    return decoded.assigned_partitions


def _topics(subscription: bytes) -> list[str] | None:
    decoded = _decode(ConsumerProtocolSubscription, subscription)
    return None if decoded is None else decoded.topics


def _decode(declared: type[T], data: bytes) -> T | None:
    """Return the decoded message; None for what is not in the consumers' format."""
    if len(data) < VERSION.size:
        return None
    (version,) = VERSION.unpack_from(data)
    if version < 0:
        return None
    try:
        return decoder(declared, min(version, VERSION_MAX))(memoryview(data)[VERSION.size :])
    except ProtocolError:
        return None
