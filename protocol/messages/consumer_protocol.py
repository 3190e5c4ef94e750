"""Data that consumers send each other inside JoinGroup and SyncGroup: an INT16 version, then the data of that
version."""

from pqbroker.protocol.schema import BYTES, INT32, STRING, array, data, field, struct


@struct
class TopicPartition:
    topic: str = field(STRING)
    partitions: list[int] = field(array(INT32))


@data(versions="0-3")
class ConsumerProtocolSubscription:
    topics: list[str] = field(array(STRING))
    user_data: bytes | None = field(BYTES, nullable="0+", default=None)
    owned_partitions: list[TopicPartition] = field(array(TopicPartition), "1+")
    generation_id: int = field(INT32, "2+", default=-1)
    rack_id: str | None = field(STRING, "3+", nullable="3+", default=None)


@data(versions="0-3")
class ConsumerProtocolAssignment:
    assigned_partitions: list[TopicPartition] = field(array(TopicPartition))
    user_data: bytes | None = field(BYTES, nullable="0+", default=None)
