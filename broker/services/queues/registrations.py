"""Registered consumers of a queue, as its topic's configs have them."""

from pqbroker.conf.topic import TopicConfig

VITAL, OTHERS = "pq.important.groups", "pq.registered.groups"
"""Configs of a topic that list its registered consumers."""


def registered(config: TopicConfig) -> dict[str, bool]:
    """Return the registered consumers of a queue by name, in order: True for vital ones."""
    found = dict.fromkeys(config.pq_registered_groups, False) | dict.fromkeys(config.pq_important_groups, True)
    return dict(sorted(found.items()))
