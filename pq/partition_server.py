"""One partition as the broker sees it.

Writing is in writer.py, reading in reader.py; partition.py decides.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import TypeVar

from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.topic import TopicConfig
from pqbroker.pq.cache import NodeMemory
from pqbroker.pq.consumers import ConsumerOffset, Consumers
from pqbroker.pq.cycle import Cycle, Written
from pqbroker.pq.not_served import not_leader, unreadable
from pqbroker.pq.partition import Partition
from pqbroker.pq.quota import write_quota
from pqbroker.pq.reader import Reader
from pqbroker.pq.retention import FirstUnread, Held, why_held
from pqbroker.pq.run import Pieces
from pqbroker.pq.sources import Producer
from pqbroker.pq.stretch import Regions
from pqbroker.pq.timeindex import TimedOffset
from pqbroker.pq.timesearch import TimeSearch
from pqbroker.pq.writer import DISK_FULL, Writer
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.records import BatchHeader
from pqbroker.storage.engine import BlobCorrupt, BlobMissing, ShardLost
from pqbroker.storage.kv import KeyValueTablet
from pqbroker.storage.kv_commands import Command, KeyMissing
from pqbroker.storage.outcome import Outcome
from pqbroker.storage.tablet import USER_CHANNEL
from pqbroker.storage.unreadable import StoredUnreadable

SENT_BYTES_MIN = 256 << 10
"""Least limit of a read whose answer may stay in its files."""
T = TypeVar("T")
R = TypeVar("R", Pieces, Regions, Pieces | Regions)


class PartitionServer:
    """One partition as the broker sees it. Writes are taken in the order of the calls."""

    __slots__ = (
        "_clock", "_consumers", "_kv", "_partition", "_quota", "_reader", "_reads", "_settings", "_watchers", "_writer",
        "counters", "unreadable", "write",
    )  # fmt: skip

    write: Callable[[memoryview, BatchHeader], Outcome[Written]]
    """Store a batch that `records.check_produced` let pass; see `Writer.write`."""
    unreadable: StoredUnreadable | None
    """Why the partition is refused: what is stored of it cannot be read. It takes and gives nothing, and its offsets
    mean nothing."""

    def __init__(
        self,
        partition: Partition,
        consumers: Consumers,
        kv: KeyValueTablet,
        memory: NodeMemory,
        settings: BrokerSettings,
        clock: Callable[[], int],
    ) -> None:
        number = memory.new_partition()
        self._partition = partition
        self._consumers = consumers
        self._kv = kv
        self._settings = settings
        self._clock = clock
        self._writer = Writer(partition, kv, memory, number, settings, clock, self._notify)
        self._reader = Reader(partition, kv, memory, number, self._writer.load_head)
        self._reads = asyncio.Semaphore(settings.partition_reads_max)
        self._watchers: dict[object, Callable[[], None]] | None = None
        self._quota = write_quota(partition.config, clock())
        self.write = self._writer.write
        self.unreadable = None
        self.counters = self._writer.counters

    @property
    def index(self) -> int:
        return self._partition.index

    @property
    def start_offset(self) -> int:
        return self._partition.start_offset

    @property
    def end_offset(self) -> int:
        """The high watermark."""
        return self._partition.end_offset

    @property
    def last_stable_offset(self) -> int:
        return self._partition.end_offset

    @property
    def leader_epoch(self) -> int:
        return self._partition.generation

    @property
    def size_bytes(self) -> int:
        return self._partition.size_bytes

    @property
    def pool(self) -> str:
        """Where what is written goes now."""
        return self._kv.storage.pool(USER_CHANNEL)

    @property
    def queue_length(self) -> int:
        """Batches that wait to be written."""
        return len(self._writer.queue)

    @property
    def queued_bytes(self) -> int:
        return self._writer.queue.bytes

    @property
    def in_flight_bytes(self) -> int:
        """Bytes of batches that are not durable yet."""
        return self._writer.queue.in_flight_bytes

    @property
    def full_seconds(self) -> float:
        """For how long more was in flight than `pqbroker.write.border.bytes`, since the tablet's start."""
        return self.counters.full.total(asyncio.get_running_loop().time())

    @property
    def waiting_seconds(self) -> float:
        """For how long batches waited for a write cycle, since the tablet's start."""
        return self.counters.waiting.total(asyncio.get_running_loop().time())

    @property
    def is_lost(self) -> bool:
        """Whether everything asked of the partition fails: its tablet was lost, its topic deleted, or it is refused."""
        return self._writer.is_lost

    @property
    def state(self) -> Partition:
        """What lies beneath, for administration; only to be looked at."""
        return self._partition

    async def write_at(self, offset: int, batch: memoryview, header: BatchHeader) -> Written:
        """Store a checked batch at an offset of the caller's choosing, for mirroring; durable when this returns.

        What it leaves out becomes a gap, over which readers go on at the next batch. KafkaError as `write`, and
        OFFSET_OUT_OF_RANGE for an offset before the end.
        """
        if self._writer.is_disk_full:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, DISK_FULL)
        planned: list[Written | KafkaError] = []

        def plan() -> Cycle:
            cycle = self._partition.plan_at(offset, (batch, header), self._clock())
            planned.append(cycle.outcomes.pop())
            return cycle

        await self._writer.perform(plan)
        (written,) = planned
        if isinstance(written, KafkaError):
            raise written
        return written

    def read(self, offset: int, bytes_max: int, *, one_at_least: bool = True) -> Pieces | Awaitable[Pieces]:
        """Whole batches from the one that holds `offset`, or follows the hole there; empty at the end offset.

        The first one comes even if it is larger than `bytes_max`, when `one_at_least`. KafkaError OFFSET_OUT_OF_RANGE,
        CORRUPT_MESSAGE (when that batch is damaged), NOT_LEADER_OR_FOLLOWER.
        """
        if self._writer.is_lost:
            raise self._over()
        self._reader.check_range(offset)
        pieces = self._reader.gather(offset, bytes_max, one_at_least, {})
        if pieces is None:
            return self._read_cold(offset, bytes_max, one_at_least)
        return self._have_read(offset, pieces, is_sent=False)

    def read_to_send(
        self, offset: int, bytes_max: int, *, one_at_least: bool = True
    ) -> Pieces | Regions | Awaitable[Pieces | Regions]:
        """As `read`, for one who only sends what is read: large reads may stay in their files."""
        if bytes_max < SENT_BYTES_MIN:
            return self.read(offset, bytes_max, one_at_least=one_at_least)
        if self._writer.is_lost:
            raise self._over()
        self._reader.check_range(offset)
        pieces = self._reader.regions(offset, bytes_max) or self._reader.gather(offset, bytes_max, one_at_least, {})
        if pieces is None:
            return self._read_ahead(offset, bytes_max, one_at_least)
        return self._have_read(offset, pieces, is_sent=True)

    def readable_bytes(self, offset: int, bytes_max: int) -> int:
        """About how many bytes a read from `offset` would give, at most `bytes_max`. Answered from memory."""
        partition = self._partition
        head = partition.head
        bodies = partition.bodies
        if offset >= partition.end_offset:
            return 0
        number = bodies.find(offset)
        if number < len(bodies):
            found = head.size
            while number < len(bodies) and found < bytes_max:
                found += bodies.sizes[number]
                number += 1
            return min(found, bytes_max)
        if offset >= head.warm_offset(partition.end_offset):
            return min(head.end_position - head.run.locate(offset, head.end_position), bytes_max)
        return min(head.size, bytes_max)

    @property
    def is_watched(self) -> bool:
        return bool(self._watchers)

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back once per move of the end or start offset, and at loss. Returns what ends the watch."""
        watchers = self._watchers
        if watchers is None:
            watchers = self._watchers = {}
        token = object()
        watchers[token] = callback
        return partial(self._unwatch, token)

    async def offset_at_timestamp(self, timestamp_ms: int) -> TimedOffset | None:
        """The first record at or after the timestamp, None when there is none. KafkaError CORRUPT_MESSAGE,
        NOT_LEADER…"""
        return await self._search(lambda search: search.first_at(timestamp_ms))

    async def max_timestamp(self) -> TimedOffset | None:
        """The record with the largest timestamp, the first of equals; None in an empty partition."""
        return await self._search(lambda search: search.latest())

    def decode(self, look: Callable[[], T]) -> "asyncio.Future[T]":
        """Look into batches of the partition off the loop; see `Reader.decode`."""
        return self._reader.decode(look)

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch <= `epoch` and its end offset; (-1, -1) when unknown."""
        return self._partition.epochs.end_of(epoch, self._partition.end_offset)

    def epoch_at(self, offset: int) -> int:
        """The leader epoch that wrote the offset."""
        return self._partition.epochs.epoch_at(offset)

    def producers(self) -> Iterable[tuple[int, Producer]]:
        """Idempotent producers by id."""
        return iter(self._partition.sources)

    def consumer(self, group_id: str) -> ConsumerOffset | None:
        """How far the group has read, None when it never said. Durable."""
        return self._consumers.get(group_id)

    def consumers(self) -> Mapping[str, ConsumerOffset]:
        """Every group's offset by group id; only to be looked at."""
        return self._consumers.all()

    def plan_consumer(self, group_id: str, state: ConsumerOffset | None) -> tuple[KeyValueTablet, Command]:
        """What stores a group's offset, or deletes it, and where; `settle_consumer` has to follow. KafkaError as
        `Consumers.plan`."""
        return self._kv, self._consumers.plan(group_id, state)

    def settle_consumer(self, group_id: str, state: ConsumerOffset | None, *, is_durable: bool) -> None:
        """What was planned for the group became durable, or came to nothing."""
        self._consumers.settle(group_id, state, is_durable=is_durable)
        config = self._partition.config
        if config.pq_delete_when_read and group_id in config.pq_important_groups and self._is_retention_due():
            self._writer.ask(self._plan_retention)

    async def delete_before(self, offset: int) -> int:
        """Move the start offset up to `offset` (DeleteRecords); durable when it returns the start offset.

        OFFSET_OUT_OF_RANGE beyond the end offset; an offset at or before the start changes nothing.
        """
        if not 0 <= offset <= self.end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is outside [0, {self.end_offset}]")
        partition = self._partition
        while True:
            await self._writer.perform(lambda: partition.plan_trim(max(offset, partition.start_offset), self._clock()))
            if offset <= partition.start_offset:
                return self.start_offset

    async def retain(self) -> None:
        """Delete what retention no longer keeps, and forget producers (A.11). KafkaError 6, 56."""
        while self._is_retention_due():
            before = self.start_offset
            await self._writer.perform(self._plan_retention)
            if self.start_offset == before:
                return

    def why_no_writes(self) -> tuple[str, str] | None:
        """What keeps writers out now: a word, and the cause with its cure; None when nothing does."""
        if self.unreadable is not None:
            return "unreadable", str(self.unreadable)
        if self._writer.is_lost:
            return "lost", not_leader().message
        if self._writer.is_disk_full:
            return "disk", DISK_FULL
        closed = self._partition.why_closed()
        return None if closed is None else ("full" if self._partition.is_active else "inactive", closed.message)

    def why_held(self) -> Held:
        """Why the oldest data was not deleted by now."""
        partition = self._partition
        return why_held(partition.bodies, partition.head, partition.config, self._clock(), self._first_unread())

    def throttle_ms(self, size: int, records: int) -> int:
        """For how long who just wrote so many bytes and records has to pause; 0 for not at all. Once a write."""
        pause_ms = self._writer.pause_ms if self.counters.full.is_running else 0
        if self._quota is None:
            return pause_ms
        quota_ms = self._quota.take(size, records, self._clock())
        self.counters.quota_wait_ms += quota_ms
        return max(pause_ms, quota_ms)

    def configure(self, config: TopicConfig, settings: BrokerSettings) -> None:
        self._settings = settings
        self._partition.configure(config)
        self._quota = write_quota(config, self._clock())

    def stop(self) -> None:
        """The tablet's instance is over: everything fails, now and later."""
        self._writer.lose()

    async def hold(self) -> None:
        """Write nothing more: what comes waits for `hand_over`. Returns when no write is in work."""
        await self._writer.hold()

    def hand_over(self, later: "PartitionServer") -> None:
        """Let the next instance of the partition write what waits here."""
        self._writer.hand_over(later._writer)

    def refuse(self, cause: StoredUnreadable) -> None:
        """What is stored of the partition cannot be read: nothing is taken, given or deleted from now on."""
        self.unreadable = cause
        self._writer.refuse(cause)

    def check_readable(self) -> None:
        """KafkaError CORRUPT_MESSAGE for a partition that is refused."""
        if self.unreadable is not None:
            raise unreadable(ErrorCode.CORRUPT_MESSAGE, self.unreadable)

    def _over(self) -> KafkaError:
        """Why a read fails when everything does."""
        self.check_readable()
        return not_leader()

    def _first_unread(self) -> FirstUnread:
        return self._consumers.first_unread(self._partition.config.pq_important_groups)

    def _is_retention_due(self) -> bool:
        kept_ms = self._settings.producer_id_expiration_ms
        return self._partition.is_retention_due(self._clock(), kept_ms, self._first_unread())

    def _plan_retention(self) -> Cycle:
        kept_ms = self._settings.producer_id_expiration_ms
        return self._partition.plan_retention(self._clock(), kept_ms, self._first_unread())

    def _notify(self) -> None:
        if self._watchers:
            for callback in tuple(self._watchers.values()):
                callback()

    def _unwatch(self, token: object) -> None:
        if self._watchers is not None:
            self._watchers.pop(token, None)

    async def _read_cold(self, offset: int, bytes_max: int, one_at_least: bool) -> Pieces:
        async with self._reads:
            pieces = await self._reader.read(offset, bytes_max, one_at_least)
        self.counters.reads_from_store += 1
        return self._have_read(offset, pieces, is_sent=False)

    async def _read_ahead(self, offset: int, bytes_max: int, one_at_least: bool) -> Pieces | Regions:
        """What is being verified for this reader, else as any other."""
        pieces: Pieces | Regions
        async with self._reads:
            await self._reader.read_ahead(offset)
            found = self._reader.regions(offset, bytes_max)
            pieces = found or await self._reader.read(offset, bytes_max, one_at_least)
        self.counters.reads_from_store += 1
        return self._have_read(offset, pieces, is_sent=True)

    def _have_read(self, offset: int, pieces: R, *, is_sent: bool) -> R:
        self._reader.follow(offset, pieces.next_offset, is_sent=is_sent)
        self.counters.reads += 1
        self.counters.bytes_read += pieces.size
        return pieces

    async def _search(self, find: Callable[[TimeSearch], Awaitable[TimedOffset | None]]) -> TimedOffset | None:
        if self._writer.is_lost:
            raise self._over()
        try:
            return await find(TimeSearch(self._partition, self._reader))
        except BlobCorrupt as damage:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(damage)) from damage
        except (ShardLost, KeyMissing, BlobMissing) as lost:
            raise not_leader() from lost
