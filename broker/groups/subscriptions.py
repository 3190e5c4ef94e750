"""What topics the members of a group subscribe to, where they are consumers that say so in the protocol's bytes."""

from struct import Struct

from pqbroker.broker.groups.group import Group
from pqbroker.protocol.codec import decoder
from pqbroker.protocol.errors import ProtocolError
from pqbroker.protocol.messages.consumer_protocol import ConsumerProtocolSubscription

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


def _topics(subscription: bytes) -> list[str] | None:
    if len(subscription) < _VERSION.size:
        return None
    (version,) = _VERSION.unpack_from(subscription)
    if version < 0:
        return None
    decode = decoder(ConsumerProtocolSubscription, min(version, _VERSION_MAX))
    try:
        return decode(memoryview(subscription)[_VERSION.size :]).topics
    except ProtocolError:
        return None
