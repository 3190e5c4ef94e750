"""Finding the partition a request names, and the checks every API makes on the way."""

from typing import TYPE_CHECKING

from pqbroker.conf.topic import COMPACT
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.records import BatchHeader, check_produced

if TYPE_CHECKING:
    from pqbroker.pq.group import Group, PersQueueGroups
    from pqbroker.pq.partition_server import PartitionServer

NO_TOPIC_ID = bytes(16)


def find_group(groups: "PersQueueGroups", name: str | None, topic_id: bytes, *, by_id: bool) -> "Group":
    """The topic by its id or its name; KafkaError UNKNOWN_TOPIC_ID or UNKNOWN_TOPIC_OR_PARTITION."""
    group = groups.by_id(topic_id) if by_id else groups.get(name or "")
    if group is None:
        raise unknown_topic_id() if by_id else unknown_topic()
    return group


def find_partition(group: "Group", index: int) -> "PartitionServer":
    """A topic's partition, served or refused; KafkaError UNKNOWN_TOPIC_OR_PARTITION."""
    partitions = group.partitions
    if not 0 <= index < len(partitions):
        raise unknown_topic()
    return partitions[index]


def find_readable(group: "Group", index: int) -> "PartitionServer":
    """A topic's partition whose offsets mean something; UNKNOWN_TOPIC_OR_PARTITION, and CORRUPT_MESSAGE when it is
    refused since what is stored of it cannot be read."""
    partitions = group.partitions
    if not 0 <= index < len(partitions):
        raise unknown_topic()
    partition = partitions[index]
    if partition.unreadable is not None:
        partition.check_readable()
    return partition


def check_leader_epoch(partition: "PartitionServer", epoch: int) -> None:
    """KIP-320: -1 skips the check; KafkaError FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH."""
    if epoch < 0 or epoch == partition.leader_epoch:
        return
    is_old = epoch < partition.leader_epoch
    code = ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
    raise KafkaError(code, f"the leader epoch is {partition.leader_epoch}, not {epoch}; refresh metadata")


def check_batch(group: "Group", records: memoryview) -> BatchHeader:
    """Check a batch for a topic as `records.check_produced` does."""
    return check_produced(records, group.config.max_message_bytes)


def needs_keys(group: "Group") -> bool:
    """A compacted topic's records need a key; see `records.check_keys`."""
    return COMPACT in group.config.cleanup_policy


def unknown_topic() -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "this broker has no such topic or partition")


def unknown_topic_id() -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "this broker has no topic of that id")
