"""Topics: what exists, making and deleting it."""

from pqbroker.broker.kafka.handlers import create_topics, delete_topics, metadata
from pqbroker.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from pqbroker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from pqbroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.kafka_comparison.rendering import UNKNOWN_ID
from tests.kafka_comparison.shapes import script, varied
from tests.kafka_comparison.side import SHARED, Side

_BY_ID = 6


@varied(metadata.API, fixed=("topics.name", "topics.topic_id"))
def one_topic(side: Side) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=SHARED)], allow_auto_topic_creation=False)


@script(metadata.API)
def an_unknown_topic(side: Side) -> None:
    name = side.own_topic()
    side.compare(MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=side.version < 4))


@script(metadata.API)
def a_topic_that_is_made_by_asking(side: Side) -> None:
    name = side.own_topic()
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
    side.compare(request, "first")
    for _ in range(3):
        side.settle()
    side.compare(request, "then")


@script(metadata.API)
def wrong_names(side: Side) -> None:
    for label, name in {"empty": "", "odd": "a b", "dots": "..", "long": "n" * 250}.items():
        topics = [MetadataRequestTopic(name=name)]
        side.compare(MetadataRequest(topics=topics, allow_auto_topic_creation=side.version < 4), label)


@script(metadata.API, since=10)
def by_id(side: Side) -> None:
    known, zero = side.topic_id(SHARED), b"\0" * 16
    for label, topic_id, name in (
        ("known", known, None), ("unknown", UNKNOWN_ID, None), ("zero", zero, None), ("both", known, SHARED),
        ("two that differ", known, "other"), ("unknown with a name", UNKNOWN_ID, SHARED),
    ):  # fmt: skip
        topics = [MetadataRequestTopic(topic_id=topic_id, name=name)]
        side.compare(MetadataRequest(topics=topics, allow_auto_topic_creation=False), label)


@varied(create_topics.API, fixed=("topics.name", "topics.num_partitions=2147483647"))
def a_topic(side: Side) -> CreateTopicsRequest:
    config = CreatableTopicConfig(name="retention.ms", value="1000000")
    name = side.own_topic()
    topic = CreatableTopic(name=name, num_partitions=2, replication_factor=1, configs=[config])
    return CreateTopicsRequest(topics=[topic], timeout_ms=5000)


@script(create_topics.API)
def topic_names(side: Side) -> None:
    for label, name in {"empty": "", "odd": "a b", "dots": "..", "long": "n" * 250, "clash": ""}.items():
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        side.compare(CreateTopicsRequest(topics=[topic], timeout_ms=5000), label)


@script(create_topics.API)
def one_that_exists(side: Side) -> None:
    topic = CreatableTopic(name=side.topic(), num_partitions=1, replication_factor=1)
    side.compare(CreateTopicsRequest(topics=[topic], timeout_ms=5000))
    side.compare(CreateTopicsRequest(topics=[topic], timeout_ms=5000, validate_only=True), "validate")


@script(create_topics.API)
def names_that_clash(side: Side) -> None:
    side.topic(suffix="_x")
    name = side.own_topic(".x")
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    side.compare(CreateTopicsRequest(topics=[topic], timeout_ms=5000))


@script(create_topics.API)
def assignments(side: Side) -> None:
    cases: dict[str, list[tuple[int, list[int]]]] = {
        "one": [(0, [1])], "two": [(0, [1]), (1, [1])], "unknown broker": [(0, [7])], "no broker": [(0, [])],
        "a gap": [(0, [1]), (2, [1])], "twice the broker": [(0, [1, 1])], "twice the partition": [(0, [1]), (0, [1])],
        "negative": [(-1, [1])],
    }  # fmt: skip
    for number, (label, wanted) in enumerate(cases.items()):
        made = [CreatableReplicaAssignment(partition_index=index, broker_ids=brokers) for index, brokers in wanted]
        for count, factor in ((-1, -1), (1, 1)):
            name = side.own_topic(f"-{number}{count}")
            topic = CreatableTopic(name=name, num_partitions=count, replication_factor=factor, assignments=made)
            side.compare(CreateTopicsRequest(topics=[topic], timeout_ms=5000), f"{label} {count}")


@script(create_topics.API)
def configs(side: Side) -> None:
    for number, (name, value) in enumerate(WRONG_TOPIC_CONFIGS):
        topic = CreatableTopic(name=side.own_topic(f"-{number}"), num_partitions=1, replication_factor=1)
        topic.configs = [CreatableTopicConfig(name=name, value=value)]
        side.compare(CreateTopicsRequest(topics=[topic], timeout_ms=5000), f"{name}={value}")


@script(create_topics.API)
def a_config_named_twice(side: Side) -> None:
    topic = CreatableTopic(name=side.own_topic(), num_partitions=1, replication_factor=1)
    topic.configs = [CreatableTopicConfig(name="retention.ms", value=value) for value in ("1000", "2000")]
    side.compare(CreateTopicsRequest(topics=[topic], timeout_ms=5000))


@varied(delete_topics.API, fixed=("topics.name", "topic_names", "topics", "topics.topic_id"))
def a_topic_of_its_own(side: Side) -> DeleteTopicsRequest:
    return deleting(side, [side.topic()])


@script(delete_topics.API)
def topics_to_delete(side: Side) -> None:
    for label, names in {"none": [], "unknown": ["nobody"], "empty": [""], "odd": ["a b"], "long": ["n" * 250]}.items():
        side.compare(deleting(side, names), label)
    name = side.topic()
    side.compare(deleting(side, [name, name]), "twice")
    side.settle()
    side.compare(deleting(side, [name]), "twice, then")


@script(delete_topics.API, since=_BY_ID)
def topics_to_delete_by_id(side: Side) -> None:
    name = side.topic()
    known = side.topic_id(name)
    for label, topic_id, named in (
        ("unknown", UNKNOWN_ID, None), ("neither", b"\0" * 16, None), ("both", known, name),
        ("both that differ", UNKNOWN_ID, name), ("known", known, None),
    ):  # fmt: skip
        asked = DeleteTopicState(topic_id=topic_id, name=named)
        side.compare(DeleteTopicsRequest(topics=[asked], timeout_ms=5000), label)
        side.settle()


def deleting(side: Side, names: list[str]) -> DeleteTopicsRequest:
    """Return a request that deletes topics by name, in the form of the case's version."""
    if side.version >= _BY_ID:
        return DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names], timeout_ms=5000)
    return DeleteTopicsRequest(topic_names=names, timeout_ms=5000)


WRONG_TOPIC_CONFIGS = (
    ("nonsense", "1"), ("", "1"), ("retention.ms", "x"), ("retention.ms", None), ("retention.ms", ""),
    ("retention.ms", "-1"), ("retention.ms", "-2"), ("retention.bytes", "-1"), ("retention.bytes", "-2"),
    ("cleanup.policy", "delete"), ("cleanup.policy", "compact"), ("cleanup.policy", "compact,delete"),
    ("cleanup.policy", "delete, compact"), ("cleanup.policy", ""), ("cleanup.policy", "none"),
    ("cleanup.policy", "Delete"), ("compression.type", "zstd"), ("compression.type", "brotli"),
    ("compression.type", "ZSTD"), ("min.insync.replicas", "1"), ("min.insync.replicas", "2"),
    ("min.insync.replicas", "0"), ("max.message.bytes", "0"), ("max.message.bytes", "-1"),
    ("segment.bytes", "13"), ("segment.bytes", "14"), ("segment.bytes", "1048576"), ("segment.bytes", "1048575"),
    ("segment.ms", "0"), ("segment.ms", "1"),
    ("message.timestamp.type", "LogAppendTime"), ("message.timestamp.type", "Now"),
    ("message.timestamp.before.max.ms", "-1"), ("message.timestamp.after.max.ms", "0"),
    ("message.format.version", "3.0"), ("message.downconversion.enable", "false"),
    ("unclean.leader.election.enable", "TRUE"), ("unclean.leader.election.enable", "yes"), ("preallocate", "1"),
    ("flush.messages", "0"), ("flush.messages", "1"), ("flush.ms", "-1"), ("index.interval.bytes", "-1"),
    ("min.cleanable.dirty.ratio", "1.1"), ("min.cleanable.dirty.ratio", "0.5"), ("min.cleanable.dirty.ratio", "NaN"),
    ("delete.retention.ms", "-1"), ("min.compaction.lag.ms", "-1"), ("max.compaction.lag.ms", "0"),
    ("max.compaction.lag.ms", "1"), ("file.delete.delay.ms", "-1"), ("remote.storage.enable", "true"),
    ("remote.storage.enable", "false"), ("local.retention.ms", "-2"), ("local.retention.ms", "-3"),
    ("local.retention.bytes", "5"), ("leader.replication.throttled.replicas", "*"),
    ("leader.replication.throttled.replicas", "0:1"), ("leader.replication.throttled.replicas", "x"),
    ("compression.gzip.level", "9"), ("compression.gzip.level", "10"), ("compression.gzip.level", "-1"),
    ("compression.gzip.level", "0"), ("compression.zstd.level", "22"), ("compression.zstd.level", "23"),
    ("compression.lz4.level", "17"), ("compression.lz4.level", "18"), ("segment.jitter.ms", "-1"),
    ("segment.index.bytes", "3"), ("retention.ms", " 1000 "), ("retention.ms", "1e3"),
    ("retention.ms", "9223372036854775808"),
)  # fmt: skip
"""Configs of a topic, good and bad."""
