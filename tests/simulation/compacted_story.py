"""A compacted topic on a simulated node whose cleaner runs all the time, and the naive one of its book; each step is a
coroutine of plain arguments."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.topic import COMPACT
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.topic import Topic
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.produced_batches import check_produced
from pqbroker.protocol.records import Record, batches, decode_records, encode_batch
from pqbroker.storage.bundles.bundle import BundleRefused
from pqbroker.storage.engine import BlobMissing, CommitRefused, EngineError, ShardLost
from pqbroker.storage.ids import SYSTEM_CELL
from pqbroker.storage.kv.commands import KeyMissing
from pqbroker.storage.tablets.cell import TabletUnknown
from pqbroker.storage.tablets.scheme import SchemeError
from pqbroker.storage.tablets.scheme_topics import TopicExists
from tests.pq.rig import KIB, check_invariants, read
from tests.simulation.compacted_book import CompactedBook, Found, Keyed
from tests.simulation.ledger import expect
from tests.simulation.node import SimulatedNode

COMPACTED: Final = "compacted"
KEYS: Final = (b"", b"a", b"ab", b"a\0", bytes(15), bytes(16), bytes(16) + b"\1", b"k" * 40)
"""Empty, prefixes of one another, and around the length that stands for itself in the cleaner's table."""
BATCH_RECORDS_MAX: Final = 6
PRODUCER: Final = 1 << 40
READ_BYTES: Final = 8 * KIB
BACK_OFF_S: Final = 0.05
SETTLES_S: Final = 60.0
CONFIG: Final[Mapping[str, str]] = {
    "cleanup.policy": "compact", "pq.low.watermark.bytes": "1024", "min.cleanable.dirty.ratio": "0.2",
    "delete.retention.ms": "20000", "retention.ms": "-1", "segment.ms": "2000",
}  # fmt: skip
RETRIABLE: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.REQUEST_TIMED_OUT)
REFUSED: Final = (BundleRefused, CommitRefused, EngineError, KafkaError, SchemeError, ShardLost, TabletUnknown)
"""Errors of what is tried while anything may fail; it is not done then, or not known to be."""


def cleaning(settings: BrokerSettings, *, has_room: bool = True) -> BrokerSettings:
    """The settings of a node whose cleaner always runs. `has_room`: for all keys, else for those of one batch."""
    room = {} if has_room else {"cleaner_buffer_bytes": 24 * BATCH_RECORDS_MAX * 10, "cleaner_load_factor": 0.1}
    return replace(settings, cleaner_backoff_ms=20, **room)  # type: ignore[arg-type]


class CompactedStory:
    """`create` comes first."""

    def __init__(self, node: SimulatedNode) -> None:
        self.node = node
        self.book = CompactedBook()
        self.config = dict(CONFIG)
        self._number = 0
        self._sequence = 0
        self._writing = asyncio.Lock()

    @property
    def topic(self) -> Topic | None:
        if not (self.node.is_up and self.node.owner.is_open):
            return None
        return self.node.node.cell.current.topics.get(COMPACTED)

    async def create(self, changed: Mapping[str, str] | None = None) -> None:
        """Create the topic, unless an attempt before has done so in secret; `changed`: what is not as in `CONFIG`."""
        self.config |= changed or {}
        while self.topic is None:
            try:
                if self.node.is_up:
                    await self.node.node.cell.current.topics.create(COMPACTED, 1, self.config)
            except (CommitRefused, ShardLost, TopicExists):
                await asyncio.sleep(BACK_OFF_S)
            await asyncio.sleep(BACK_OFF_S)
        self.book.configured(int(self.config["delete.retention.ms"]))

    async def server(self) -> PartitionServer:
        """Return the partition as it is served now, as soon as it is."""
        while (topic := self.topic) is None or topic.partitions[0].is_lost:  # noqa: ASYNC110 (a state of the node's)
            await asyncio.sleep(BACK_OFF_S)
        return topic.partitions[0]

    async def write(self, keys: Sequence[int], deleted: Sequence[bool], padding: int, codec: int = 0) -> None:
        """Write one batch, as an idempotent producer does, and send it until it is acknowledged."""
        async with self._writing:
            records = []
            for key, is_deleted in zip(keys, deleted, strict=False):
                self._number += 1
                value = None if is_deleted else b"%d:" % self._number + bytes(padding)
                records.append(Keyed(KEYS[key % len(KEYS)], value))
            await self._send(records, codec)

    async def _send(self, records: Sequence[Keyed], codec: int) -> None:
        book, now_ms = self.book, self.node.clock()
        book.pending = records
        sequence, self._sequence = self._sequence, self._sequence + len(records)
        while True:
            encoded = encode_batch(
                [Record(0, now_ms, key, value) for key, value in records],
                codec=codec, producer_id=PRODUCER, producer_epoch=0, base_sequence=sequence,
            )  # fmt: skip
            view = memoryview(encoded)
            server = await self.server()
            try:
                written = await server.write(view, check_produced(view, 1 << 30))
            except KafkaError as refusal:
                expect(refusal.code in RETRIABLE, f"a batch of sequence {sequence} is refused: {refusal!r}")
                await asyncio.sleep(BACK_OFF_S)
                continue
            for offset in range(written.base_offset, written.base_offset + len(records)):
                book.written_ms.setdefault(offset, now_ms)
            book.acknowledge(written.base_offset, records)
            book.pending = ()
            return

    async def read(self) -> Found:
        """Read the whole log as a consumer does, which begins again where the partition is served next."""
        book, last = self.book, self.book.last()
        found: list[tuple[int, Keyed]] = []
        server = await self.server()
        offset = server.start_offset
        while True:
            if server.is_lost:
                server = await self.server()
            try:
                book.bounds(server.start_offset, server.end_offset)
                offset = max(offset, server.start_offset)
                if offset >= server.end_offset:
                    break
                some = await read(server, offset, READ_BYTES)
            except (KafkaError, ShardLost, BlobMissing, KeyMissing):
                await asyncio.sleep(BACK_OFF_S)
                server = await self.server()
                continue
            content = b"".join(some.in_memory())
            found += _records(content, offset)
            expect(some.next_offset > offset, f"a reader does not get on from offset {offset}")
            offset = some.next_offset
        book.read(found, last, server.start_offset, self.node.clock())
        return found

    async def clean(self) -> None:
        """Have the whole partition cleaned, and compare what is left; nothing else is written meanwhile."""
        async with self._writing:
            while True:
                server = await self.server()
                now_ms, number = self.node.clock(), self.node.openings
                topic = self.topic
                if topic is None or COMPACT not in server.state.settings.topic.cleanup_policy:
                    return
                self.node.node.cleaner.force(topic, server)
                await self._cleaned()
                now = await self.server()
                if number == self.node.openings and now is server and not server.state.head.blobs:
                    break
            cleaned = server.state.cleaned
            if cleaned.end == server.end_offset and cleaned.ended_ms >= now_ms:
                self.book.cleaned(await self.read(), server.end_offset, cleaned.ended_ms)

    async def _cleaned(self) -> None:
        """Return once the node's cleaner has nothing to do for the partition, or is a later one."""
        cleaner = self.node.node.cleaner
        while self.node.is_up and cleaner is self.node.node.cleaner:
            topic = self.topic
            if topic is not None and not (cleaner.running or cleaner.is_forced(topic, topic.partitions[0])):
                return
            await asyncio.sleep(BACK_OFF_S)

    async def trim(self, share: float) -> None:
        server = await self.server()
        span = server.end_offset - server.start_offset
        await self._try(lambda: server.retention.delete_before(server.start_offset + int(share * span)))

    async def flush(self) -> None:
        server = await self.server()
        await self._try(lambda: _flushed(server))

    async def configure(self, changed: Mapping[str, str]) -> None:
        self.config |= changed
        self.book.configured(int(self.config["delete.retention.ms"]))
        config = dict(self.config)
        await self.server()
        topics = self.node.node.cell.current.topics
        await self._try(lambda: topics.reconfigure(COMPACTED, lambda _: config))

    async def restart_tablet(self) -> None:
        await self.server()
        topic = self.topic
        if topic is not None:
            tablet_id = topic.record.tablets[0]
            await self._try(lambda: self.node.owner.restart_tablet(tablet_id))

    async def add_cell(self) -> None:
        """Have a second cell, unless there is one."""
        await self.server()
        opened = self.node.owner.current
        if not opened.hive.cells:
            await self._try(lambda: opened.others.create("default"))

    async def move(self, place: int) -> None:
        """Have the partition live in another cell, by its place among them."""
        await self.server()
        topic, opened = self.topic, self.node.owner.current
        if topic is None:
            return
        cells = [SYSTEM_CELL, *sorted(opened.hive.cells)]
        owner, tablet_id = opened.topics.owner_of(topic), topic.record.tablets[0]
        await self._try(lambda: opened.others.move_tablet(owner, tablet_id, cells[place % len(cells)]))

    async def settle(self) -> None:
        """Return when the partition is served, and nothing of it is being written or cleaned."""
        async with asyncio.timeout(SETTLES_S):
            await self.server()
            async with self._writing:
                await self._cleaned()

    async def verify(self) -> None:
        """Compare what is stored with the book, now and once it is cleaned."""
        await self.settle()
        await self.read()
        server = await self.server()
        while not self._is_as_configured(server):
            await self.configure({"cleanup.policy": "compact", "min.compaction.lag.ms": "0"})
            server = await self.server()
        await self.clean()
        server = await self.server()
        is_cleaned = server.state.cleaned.end == server.end_offset or not len(server.state.bodies)
        expect(is_cleaned, f"it ends at {server.end_offset}, and is not cleaned: {server.state.cleaned}")
        await self.read()
        check_invariants(server.state, 8 << 20)
        expect(server.end_offset == self.book.end, f"it ends at {server.end_offset}, not {self.book.end}")

    def _is_as_configured(self, server: PartitionServer) -> bool:
        config = server.state.settings.topic
        return config.cleanup_policy == (COMPACT,) and not config.min_compaction_lag_ms

    async def _try(self, step: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        try:
            await step()
        except REFUSED:
            return


async def _flushed(server: PartitionServer) -> None:
    await server.flush()


def _records(content: bytes, offset: int) -> Iterator[tuple[int, Keyed]]:
    for position, header in batches(content):
        for record in decode_records(memoryview(content)[position : position + header.size_bytes]):
            if record.offset >= offset:
                yield record.offset, Keyed(record.key or b"", record.value)
