"""The node's topics, as the rules of groups of KIP-848 see them."""

from collections.abc import Iterable

from pqbroker.broker.services.coordination.assigning.assignor import TopicPartitions
from pqbroker.broker.services.coordination.modern.messages import KnownTopic
from pqbroker.pq.serving.topics import Topics


class ServedTopics:
    """Topics that Kafka's clients see. A node is in no rack, so partitions have none."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._known: dict[str, KnownTopic] = {}
        """Topics as they were found last, by name: groups look for thousands."""

    @property
    def version(self) -> int:
        """Return a number that rises whenever a topic comes, goes or grows."""
        return self._topics.layout_version

    def names(self) -> Iterable[str]:
        """Return the names of all topics."""
        return self._topics.names()

    def find(self, name: str) -> KnownTopic | None:
        """Return the topic of a name."""
        topic = self._topics.get(name)
        if topic is None:
            self._known.pop(name, None)
            return None
        known = self._known.get(name)
        topic_id, count = topic.record.topic_id, len(topic.partitions)
        if known is None or known.topic_id != topic_id or known.partitions.count != count:
            known = self._known[name] = KnownTopic(topic_id, TopicPartitions(count))
        return known

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of a topic."""
        topic = self._topics.by_id(topic_id)
        return None if topic is None else topic.record.name
