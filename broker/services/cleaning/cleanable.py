"""Partitions whose records may be cleaned now."""

from pqbroker.conf.topic import COMPACT
from pqbroker.pq.serving.partition_server import PartitionServer


def may_be_cleaned(server: PartitionServer) -> bool:
    """Return True if bodies of a partition may be replaced now."""
    return not (server.is_lost or server.is_held or server.index in server.state.settings.closed)


def is_to_be_cleaned(server: PartitionServer) -> bool:
    """Return True if they may, and the topic is compacted still."""
    return may_be_cleaned(server) and COMPACT in server.state.settings.topic.cleanup_policy
