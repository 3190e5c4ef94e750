"""Figures of many partitions with few requests: where they end, how large they are, and headers of their batches."""

from collections.abc import Collection, Iterable, Iterator

from pqbroker.cli.kafka.cluster import Cluster, Topic, TopicPartition
from pqbroker.cli.kafka.isolation import AbortedFilter, ReadIsolation
from pqbroker.cli.refusals import CommandError, check
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from pqbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from pqbroker.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from pqbroker.protocol.positions import EARLIEST, LATEST
from pqbroker.protocol.records import BATCH_HEADER_BYTES, BatchHeader, read_header

FETCH_BYTES = 4 << 20
FETCH_NAMES_VERSION_MAX = 12
"""The last version of Fetch that names topics, not their ids."""



def read_spans(cluster: Cluster, topics: Collection[Topic]) -> dict[TopicPartition, tuple[int, int]]:
    """Return by partition its first offset and the one behind its last; partitions without a leader are left out."""
    starts = _offsets(cluster, topics, EARLIEST)
    ends = _offsets(cluster, topics, LATEST)
    return {partition: (starts[partition], end) for partition, end in ends.items() if partition in starts}


def read_sizes(cluster: Cluster) -> dict[TopicPartition, int]:
    """Bytes of partitions, the largest replica of each; nothing where the cluster does not say."""
    found: dict[TopicPartition, int] = {}
    for node in cluster.nodes():
        try:
            answer = cluster.ask(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse, node)
        except CommandError:
            return {}
        for partition, size in _sizes(answer):
            found[partition] = max(found.get(partition, 0), size)
    return found


def _sizes(answer: DescribeLogDirsResponse) -> Iterator[tuple[TopicPartition, int]]:
    for topic in (each for directory in answer.results for each in directory.topics):
        for one in topic.partitions:
            yield (topic.name, one.partition_index), one.partition_size


def read_headers(cluster: Cluster, topic: Topic, partition: int, start: int, end: int) -> Iterator[BatchHeader]:
    """Headers of the batches from an offset on, as far as an end; the records are fetched with them."""
    return (header for header, _ in read_batches(cluster, topic, partition, start, end, ReadIsolation.UNCOMMITTED))


def read_batches(
    cluster: Cluster, topic: Topic, partition: int, start: int, end: int, isolation: ReadIsolation
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The batches with records that a reader of `isolation` sees, from an offset on, as far as an end, each with its
    header."""
    offset = start
    while offset < end:
        before = offset
        for header, batch, is_seen in _fetch_batches(cluster, topic, partition, offset, isolation):
            if offset >= end:
                return
            if is_seen:
                yield header, batch
            offset = header.last_offset + 1
        if offset == before:
            return


def _fetch_batches(
    cluster: Cluster, topic: Topic, partition: int, offset: int, isolation: ReadIsolation
) -> Iterator[tuple[BatchHeader, memoryview, bool]]:
    asked = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=FETCH_BYTES, isolation_level=isolation.level, session_id=0,
        topics=[FetchTopic(topic=topic.name, topic_id=bytes(16), partitions=[asked])],
        forgotten_topics_data=[], rack_id="",
    )  # fmt: skip
    answer = cluster.ask(request, FetchResponse, topic.partitions[partition].leader, FETCH_NAMES_VERSION_MAX)
    check(answer.error_code, f"cannot read {topic.name}")
    (found,) = answer.responses[0].partitions
    check(found.error_code, f"cannot read {topic.name}-{partition}")
    run = found.records
    if not isinstance(run, memoryview):
        return
    aborted = AbortedFilter(found.aborted_transactions)
    position = 0
    while position + BATCH_HEADER_BYTES <= len(run):
        try:
            header = read_header(run, position)
        except KafkaError as error:
            raise CommandError(f"cannot read {topic.name}-{partition}: {error}") from None
        if header.size_bytes < BATCH_HEADER_BYTES or position + header.size_bytes > len(run):
            return
        batch = run[position : position + header.size_bytes]
        yield header, batch, not aborted.is_aborted(header, batch)
        position += header.size_bytes


def _offsets(cluster: Cluster, topics: Iterable[Topic], timestamp: int) -> dict[TopicPartition, int]:
    """One request to each leader."""
    asked: dict[int, list[ListOffsetsTopic]] = {}
    for topic in topics:
        for leader, indices in cluster.by_leader(topic, topic.partitions).items():
            partitions = [ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in indices]
            asked.setdefault(leader, []).append(ListOffsetsTopic(name=topic.name, partitions=partitions))
    found: dict[TopicPartition, int] = {}
    for leader in (each for each in asked if each >= 0):
        request = ListOffsetsRequest(replica_id=-1, topics=asked[leader])
        for each in cluster.ask(request, ListOffsetsResponse, leader).topics:
            known = (one for one in each.partitions if one.error_code == ErrorCode.NONE)
            found |= {(each.name, one.partition_index): one.offset for one in known}
    return found
