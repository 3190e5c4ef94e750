"""Finding the partition a request names, and the checks every API makes on the way."""

from typing import TYPE_CHECKING

from pqbroker.broker.services.topics.topic_names import NAME_CHARACTERS_MAX
from pqbroker.conf.topic import COMPACT
from pqbroker.pq.serving.store_refusals import not_leader
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.produced_batches import check_produced
from pqbroker.protocol.records import BatchHeader

if TYPE_CHECKING:
    from pqbroker.pq.serving.partition_server import PartitionServer
    from pqbroker.pq.serving.topic import Topic

NO_TOPIC_ID = bytes(16)


def find_partition(topic: "Topic", index: int) -> "PartitionServer":
    """A topic's partition, served or refused; KafkaError UNKNOWN_TOPIC_OR_PARTITION."""
    partitions = topic.partitions
    if not 0 <= index < len(partitions):
        raise _unknown_partition(topic, index)
    return partitions[index]


def find_readable(topic: "Topic", index: int) -> "PartitionServer":
    """A topic's partition whose offsets mean something; UNKNOWN_TOPIC_OR_PARTITION, and CORRUPT_MESSAGE when it is
    refused since what is stored of it cannot be read."""
    partitions = topic.partitions
    if not 0 <= index < len(partitions):
        raise _unknown_partition(topic, index)
    partition = partitions[index]
    if partition.state.unreadable is not None:
        partition.check_readable()
    return partition


def find_loaded(topic: "Topic", index: int) -> "PartitionServer":
    """A topic's partition whose offsets are known here. Raises as `find_readable`, and NOT_LEADER_OR_FOLLOWER for one
    that another node runs, or whose cell is not open: what stands for it here ends at 0, which says nothing."""
    partition = find_readable(topic, index)
    if not partition.is_loaded:
        raise not_leader()
    return partition


def check_leader_epoch(partition: "PartitionServer", epoch: int) -> None:
    """KIP-320: -1 skips the check; KafkaError FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH."""
    if epoch < 0 or epoch == partition.leader_epoch:
        return
    is_old = epoch < partition.leader_epoch
    code = ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
    raise KafkaError(code, f"the leader epoch is {partition.leader_epoch}, not {epoch}; refresh metadata")


def check_batch(topic: "Topic", records: memoryview) -> BatchHeader:
    """Check a batch for a topic as `produced_batches.check_produced` does."""
    return check_produced(records, topic.config.max_message_bytes)


def needs_keys(topic: "Topic") -> bool:
    """A compacted topic's records need a key; see `produced_batches.check_keys`."""
    return COMPACT in topic.config.cleanup_policy


def unknown_topic(name: str | None = None, hint: str = "") -> KafkaError:
    """`name`: the topic's, where there is one to tell."""
    what = f"there is no topic {name[:NAME_CHARACTERS_MAX]!r}" if name else "this broker has no such topic or partition"
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what + hint)


def unknown_topic_id() -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "this broker has no topic of that id")


def _unknown_partition(topic: "Topic", index: int) -> KafkaError:
    text = f"topic {topic.record.name} has no partition {index}: it has 0 to {len(topic.partitions) - 1}"
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
