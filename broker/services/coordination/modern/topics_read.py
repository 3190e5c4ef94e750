"""Topics that the members of a group read: their ids, and whether they have changed since a target was worked out."""

from collections.abc import Generator, Iterable
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from pqbroker.broker.services.coordination.modern.group import ModernGroup, ReadTopics
from pqbroker.broker.services.coordination.modern.messages import KnownTopic, KnownTopics
from pqbroker.storage.tablets.modern_group_rows import Subscription

_HASHES: Final = 1 << 64
_KEPT_HASHES: Final = 1 << 14
"""Hashes of topics that are kept: each topic that changes has every group look at all that it reads."""


def topic_ids(group: ModernGroup, subscription: Subscription, topics: KnownTopics) -> frozenset[bytes]:
    """Return the ids of topics that exist and that a member reads.

    Those of the last subscription are kept: members of a group mostly read the same, and may read thousands.
    """
    names, last = group.names_of(subscription), group.last_read
    if last is not None and last.version == topics.version and names == last.names:
        return last.topic_ids
    known = map(topics.find, names)
    found = frozenset(topic.topic_id for topic in known if topic is not None)
    group.last_read = ReadTopics(topics.version, names, found)
    return found


def topics_hash(group: ModernGroup, topics: KnownTopics) -> int:
    """Return a hash of the topics that the group reads and that exist, with their partitions and racks."""
    total = 0
    for name in group.topic_names():
        topic = topics.find(name)
        if topic is not None:
            total += _topic_hash(name, topic)
    return total % _HASHES


def hash_ahead(names: Iterable[str], topics: KnownTopics) -> Generator[None, None, None]:
    """Yield a step for each topic that `topics_hash` will look at: it does so in one turn, and hashes are kept."""
    for name in names:
        topic = topics.find(name)
        if topic is not None:
            _topic_hash(name, topic)
        yield


@lru_cache(maxsize=_KEPT_HASHES)
def _topic_hash(name: str, topic: KnownTopic) -> int:
    topic_id, partitions = topic
    facts = f"{name} {topic_id.hex()} {partitions.count} {[sorted(racks) for racks in partitions.racks]}"
    return int.from_bytes(blake2b(facts.encode(), digest_size=8).digest())


def follow_topics(group: ModernGroup, topics: KnownTopics, *, has_changed: bool) -> None:
    """Begin an epoch if what members read has changed, or the topics have that they read."""
    if not has_changed and group.topics_version == topics.version:
        return
    group.topics_version = topics.version
    read = topics_hash(group, topics)
    if has_changed or read != group.topics_hash:
        group.raise_epoch(read)
