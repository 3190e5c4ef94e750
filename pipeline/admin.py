"""Requests of a job to a broker beside records, through the admin client that Spark's Kafka source brought along."""

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from pqbroker.pipeline.connection_security import client_settings

_TIMEOUT_MS = 30_000
_NOTE_TIMEOUT_MS = 5_000
_BATCH_BYTES_MAX = "max.message.bytes"
_CLEANUP_POLICY = "cleanup.policy"
_MISSING = "UnknownTopicOrPartitionException"
_THERE_ALREADY = "TopicExistsException"


class AdminError(RuntimeError):
    """The broker refused or did not answer; the text is its own."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        """The name of the Java exception."""


class Admin:
    """One admin client; a context manager. Methods raise AdminError."""

    def __init__(self, spark: SparkSession, broker: str) -> None:
        settings = {
            "bootstrap.servers": broker,
            "request.timeout.ms": str(_TIMEOUT_MS),
            "default.api.timeout.ms": str(_TIMEOUT_MS),
            **client_settings(),
        }
        jvm: Any = spark.sparkContext._jvm
        self._jvm = jvm
        self._client = jvm.org.apache.kafka.clients.admin.AdminClient.create(settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close(self._jvm.java.time.Duration.ofSeconds(1))

    def topics(self) -> list[str]:
        """The names of all topics."""
        return sorted(_result(self._client.listTopics().names()))

    def topic_id(self, name: str) -> str | None:
        """The id of the topic, None when there is none; asking does not create it."""
        try:
            described = _result(self._client.describeTopics([name]).allTopicNames())
        except AdminError as error:
            if error.kind == _MISSING:
                return None
            raise
        return str(described[name].topicId().toString())

    def batch_bytes_max(self, topic: str) -> int:
        """The largest batch that the topic takes."""
        return int(self._config(topic, _BATCH_BYTES_MAX))

    def is_compacted(self, topic: str) -> bool:
        """Return True if earlier records of a key may be removed from the topic."""
        return "compact" in self._config(topic, _CLEANUP_POLICY).split(",")

    def partition_count(self, topic: str) -> int:
        """Return how many partitions an existing topic has."""
        return len(_result(self._client.describeTopics([topic]).allTopicNames())[topic].partitions())

    def ends(self, topic: str, *, is_committed: bool = False) -> dict[str, int]:
        """The end of each partition of a topic that exists. `is_committed`: the last stable offset."""
        isolation = self._jvm.org.apache.kafka.common.IsolationLevel
        level = isolation.READ_COMMITTED if is_committed else isolation.READ_UNCOMMITTED
        options = self._jvm.org.apache.kafka.clients.admin.ListOffsetsOptions(level)
        place = self._jvm.org.apache.kafka.common.TopicPartition
        latest = self._jvm.org.apache.kafka.clients.admin.OffsetSpec.latest()
        places = [place(topic, number) for number in range(self.partition_count(topic))]
        found = _result(self._client.listOffsets(dict.fromkeys(places, latest), options).all())
        return {str(each.partition()): int(found[each].offset()) for each in places}

    def ensure_topic(self, name: str, batch_bytes_max: int, partitions: int | None = None) -> None:
        """Create the topic unless it exists: batches of that size, all else by the broker's defaults."""
        optional = self._jvm.java.util.Optional
        count = optional.empty() if partitions is None else optional.of(partitions)
        topic = self._jvm.org.apache.kafka.clients.admin.NewTopic(name, count, optional.empty())
        try:
            _result(self._client.createTopics([topic.configs({_BATCH_BYTES_MAX: str(batch_bytes_max)})]).all())
        except AdminError as error:
            if error.kind != _THERE_ALREADY:
                raise

    def set_group_offsets(self, group: str, topic: str, offsets: Mapping[int, int], note: str) -> None:
        """Commit offsets for a consumer group that has no members, with a note. Waits less long than the others."""
        common = self._jvm.org.apache.kafka.common
        committed = self._jvm.org.apache.kafka.clients.consumer.OffsetAndMetadata
        places = {common.TopicPartition(topic, number): committed(offset, note) for number, offset in offsets.items()}
        options = self._jvm.org.apache.kafka.clients.admin.AlterConsumerGroupOffsetsOptions()
        _result(self._client.alterConsumerGroupOffsets(group, places, options.timeoutMs(_NOTE_TIMEOUT_MS)).all())

    def _config(self, topic: str, name: str) -> str:
        config = self._jvm.org.apache.kafka.common.config
        resource = config.ConfigResource(config.ConfigResource.Type.TOPIC, topic)
        described = _result(self._client.describeConfigs([resource]).all())
        return str(described[resource].get(name).value())


def _result(future: Any) -> Any:
    try:
        return future.get()
    except Py4JJavaError as error:
        cause = error.java_exception.getCause() or error.java_exception
        raise AdminError(cause.getClass().getSimpleName(), str(cause.getMessage())) from error
