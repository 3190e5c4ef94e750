"""What the tests of pq stand on: batches, a node over the memory engine with a clock that stands still, the
invariants."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

from crc32c import crc32c

from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.storage import StorageProfile
from pqbroker.conf.topic import TopicConfig
from pqbroker.pq.log.batch_run import Batches
from pqbroker.pq.log.keys import data_range
from pqbroker.pq.log.levels import check_levels
from pqbroker.pq.log.partition import OfNode, Partition
from pqbroker.pq.log.partition_settings import PartitionSettings
from pqbroker.pq.log.row_facts import TIMESTAMP
from pqbroker.pq.log.start_state import NO_META, StoredPartition, build_start_state
from pqbroker.pq.log.write_cycle import Written
from pqbroker.pq.reading.query import ReadQuery
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.topics import Topics
from pqbroker.protocol import records
from pqbroker.protocol.produced_batches import check_produced
from pqbroker.protocol.records import BATCH_HEADER_BYTES, BatchHeader, Record
from pqbroker.storage.blobs.blob_id import tablet_bounds
from pqbroker.storage.bundles.open_cells import OpenCells
from pqbroker.storage.engine import BlobKey
from pqbroker.storage.kv.rows import Entry
from pqbroker.storage.memory import MemoryEngine
from pqbroker.storage.tablets.cell import Cell
from pqbroker.storage.tablets.hosting import TabletHost
from pqbroker.storage.tablets.mounted_attributes import MountedAttributes
from pqbroker.storage.tablets.scheme import Scheme
from pqbroker.storage.tablets.scheme_state import TableRecord

KIB = 1 << 10
MIB = 1 << 20
DAY_MS = 86_400_000
START_MS = 1_700_000_000_000


def batch(
    *values: bytes,
    timestamps: list[int] | None = None,
    codec: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    fill: bytes = b"x",
    size: int = 0,
    attributes: int = 0,
) -> tuple[memoryview, BatchHeader]:
    """A checked batch of the values, or of one value that makes it `size` bytes; `producer` is id, epoch, first
    sequence."""
    content = values or (fill * _value_bytes(size),)
    stamps = timestamps or [START_MS] * len(content)
    producer_id, epoch, sequence = producer
    encoded = records.encode_batch(
        [Record(0, stamp, None, value) for stamp, value in zip(stamps, content, strict=True)],
        codec=codec, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, attributes=attributes,
    )  # fmt: skip
    view = memoryview(encoded)
    return view, check_produced(view, 1 << 30)


def transactional(*values: bytes, producer: tuple[int, int, int]) -> tuple[memoryview, BatchHeader]:
    """A checked batch of a producer's Kafka transaction."""
    return batch(*values, producer=producer, attributes=records.TRANSACTIONAL)


def _value_bytes(size: int) -> int:
    """The length of a lone value with which a batch has `size` bytes (where the varints allow it)."""
    room = size - BATCH_HEADER_BYTES
    for overhead in range(7, 14):
        value = room - overhead
        content = value + 5 + _varint_bytes(value)
        if content + _varint_bytes(content) == room:
            return value
    return max(room - 7, 0)


def _varint_bytes(number: int) -> int:
    return max(((number << 1).bit_length() + 6) // 7, 1)


def new_partition(config: TopicConfig | None = None, *, by_reference: bool = True) -> Partition:
    """An empty partition 0 of generation 1, without a store."""
    stored = StoredPartition(build_start_state([], NO_META), NO_META)
    return Partition(0, 1, partition_settings(config or TopicConfig()), stored, OfNode(by_reference))


def partition_settings(config: TopicConfig, **node: int) -> PartitionSettings:
    """What a partition is set to by its topic and, where it is not the default, by its node."""
    return PartitionSettings(config, replace(BrokerSettings(), **node))  # type: ignore[arg-type]


def values_of(pieces: Batches, offset: int) -> list[tuple[int, bytes | None]]:
    """Offsets and values of the records at or behind `offset` in what was read; checks every batch's checksum."""
    assert pieces.size == sum(map(len, pieces.buffers))
    found = []
    data = bytearray(b"".join(pieces.in_memory()))
    for position, header in records.batches(data):
        one = memoryview(data)[position : position + header.size_bytes]
        check_crc(one)
        found += [(record.offset, record.value) for record in records.decode_records(one) if record.offset >= offset]
    return found


def check_crc(view: memoryview) -> BatchHeader:
    """The header of a batch whose checksum holds."""
    header = records.read_header(view)
    assert header.crc == crc32c(view[21 : header.size_bytes])
    return header


def query(server: PartitionServer, offset: int, bytes_max: int, *, in_files: bool = False) -> ReadQuery:
    """What a consumer asks for that reads uncommitted."""
    return ReadQuery(offset, server.end_offset, bytes_max, in_files=in_files)


async def read(server: PartitionServer, offset: int, bytes_max: int, *, in_files: bool = False) -> Batches:
    """Whole batches, one at least."""
    answer = server.read(query(server, offset, bytes_max, in_files=in_files))
    return answer if isinstance(answer, Batches) else await answer


async def read_all(
    server: PartitionServer, offset: int | None = None, bytes_max: int = MIB
) -> list[tuple[int, bytes | None]]:
    """Every record from `offset` (the start) to the end, read as a consumer does."""
    found: list[tuple[int, bytes | None]] = []
    offset = server.start_offset if offset is None else offset
    while offset < server.end_offset:
        pieces = await read(server, offset, bytes_max)
        assert pieces.next_offset > offset
        found += values_of(pieces, offset)
        offset = pieces.next_offset
    return found


async def write(server: PartitionServer, *items: tuple[memoryview, BatchHeader]) -> list[Written]:
    """Write batches one after the other."""
    return [await server.write(*item) for item in items]


class Node:
    """A cell, its scheme and its groups over one memory engine; `restart` is a kill and a start."""

    def __init__(self, *, by_reference: bool = True, **settings: int) -> None:
        self.by_reference = by_reference
        self.engine = MemoryEngine(1 << 32)
        self.now_ms = START_MS
        self.profile: StorageProfile = {}
        self.settings = replace(BrokerSettings(), **settings)  # type: ignore[arg-type]
        self.topics: Topics

    def clock(self) -> int:
        return self.now_ms

    async def start(self) -> "Node":
        self.cell = await Cell.open(
            self.engine, profile=self.profile, commits_max=self.settings.tablet_commits_max
        )
        self.host = TabletHost(self.cell)
        self.scheme = await Scheme.open(self.host)
        self.topics = Topics(
            OpenCells(self.host), self.scheme, settings=self.settings, clock=self.clock, by_reference=self.by_reference
        )
        await self.topics.start()
        self.scheme.reclaim(self.host)
        return self

    async def stop(self) -> None:
        """End what runs on the cell."""
        await self.topics.stop()
        await self.host.stop()

    async def restart(self) -> None:
        self.engine.crash()
        await self.start()

    async def topic(
        self,
        name: str = "t",
        partitions: int = 1,
        config: Mapping[str, str] | None = None,
        table: TableRecord | None = None,
    ) -> PartitionServer:
        """Create a topic; its partition 0."""
        topic = await self.topics.create(name, partitions, config or {}, table)
        return topic.partitions[0]

    def partition(self, name: str = "t", index: int = 0) -> PartitionServer:
        topic = self.topics.get(name)
        assert topic is not None
        return topic.partitions[index]


def table_that_keeps_facts(partitions: int) -> TableRecord:
    """A mounted table that asks for commit timestamps and weights."""
    columns = ({"name": "a", "type": "string"}, {"name": TIMESTAMP, "type": "uint64"})
    mounted = MountedAttributes.collect([{}] * partitions)
    return TableRecord(columns, {}, mounted, ("mounted",) * partitions, (0,) * partitions)


async def check_store(node: Node, server: PartitionServer) -> None:
    """Assert that the store holds exactly the partition's blobs, and not one blob that nobody names."""
    partition = server.state
    bodies = partition.bodies
    expected = {bodies.key(partition.index, number): bodies.sizes[number] for number in range(len(bodies))}
    expected |= {blob.key(partition.index): blob.size for blob in partition.head.blobs}
    topic = node.topics.get("t")
    assert topic is not None
    named: set[BlobKey] = set()
    blobs: set[BlobKey] = set()
    stored = {}
    for tablet_id in topic.record.tablets:
        storage = node.cell.storage(tablet_id)
        for key, row in await storage.scan(b"", None, 10_000):
            entry = Entry.stored(row)
            named |= set(entry.blobs())
            if key.startswith(data_range(partition.index)[0]):
                stored[key] = entry.size
        lo, hi = tablet_bounds(tablet_id)
        blobs |= set(node.engine._store.blobs.irange(lo, hi))
    assert stored == expected
    assert blobs == named


def check_invariants(partition: Partition, low_watermark: int | None = None) -> None:
    """Assert what A.2 and K.1 demand of a partition between two cycles; `low_watermark` if it was another before."""
    bodies, head = partition.bodies, partition.head
    assert partition.start_offset <= partition.end_offset
    spans = list(bodies.spans())
    assert all(offset < end for offset, end in spans)
    assert all(before[1] <= after[0] for before, after in pairwise(spans))
    assert bodies.size == sum(bodies.sizes)
    check_levels([blob.size for blob in head.blobs])
    assert head.size == sum(blob.size for blob in head.blobs)
    assert head.size < (low_watermark or partition.settings.topic.pq_low_watermark_bytes)
    for before, after in pairwise(head.blobs):
        assert before.end == after.offset
        assert before.position + before.size == after.position
    if head.blobs:
        assert not spans or spans[-1][1] <= head.blobs[0].offset
        assert head.blobs[-1].end == partition.end_offset
    elif spans:
        assert spans[-1][1] == partition.end_offset
    else:
        assert partition.start_offset == partition.end_offset
    levels = type(head.levels)(blob.size for blob in head.blobs)
    assert (levels.sums, levels.counts) == (head.levels.sums, head.levels.counts)
    run = head.run
    if not partition.is_writing:
        assert run.end == head.end_position
    first = spans[0] if spans else head.blobs[0][:2] if head.blobs else (partition.end_offset, partition.end_offset)
    assert first[0] <= partition.start_offset or partition.gaps()[0][0] == partition.start_offset
    assert first[1] > partition.start_offset or partition.start_offset == partition.end_offset
