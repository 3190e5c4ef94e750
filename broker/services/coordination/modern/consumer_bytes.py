"""Assignments as consumers of the classic protocol read and write them, for groups that members of both are in."""

from collections.abc import Mapping, Sequence

from pqbroker.broker.services.coordination.classic.subscriptions import VERSION, VERSION_MAX
from pqbroker.broker.services.coordination.modern.messages import KnownTopics
from pqbroker.protocol.codec import encoder
from pqbroker.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, TopicPartition


def assignment_bytes_of(
    partitions: Mapping[bytes, Sequence[int] | Mapping[int, int]], topics: KnownTopics, subscription: bytes
) -> bytes:
    """Return an assignment in the version of a member's subscription. Topics that are gone are left out."""
    version = min(max(VERSION.unpack_from(subscription)[0] if len(subscription) >= VERSION.size else 0, 0), VERSION_MAX)
    named = ((topics.name_of(topic_id), indexes) for topic_id, indexes in partitions.items())
    assigned = [
        TopicPartition(topic=name, partitions=sorted(indexes)) for name, indexes in named if name is not None
    ]
    body = encoder(ConsumerProtocolAssignment, version)(
        ConsumerProtocolAssignment(assigned_partitions=assigned, user_data=None)
    )
    return VERSION.pack(version) + b"".join(map(bytes, body))
