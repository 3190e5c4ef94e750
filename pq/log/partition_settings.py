"""Settings of a partition."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.topic import TopicConfig
from pqbroker.protocol.errors import ErrorCode, KafkaError, RecordsRefused
from pqbroker.protocol.records import BatchHeader, decode_times

NAMED_BATCH_BYTES_MAX = 32_768
NAMED_RECORDS_MAX = 200
"""A refused batch of at most these bytes, compressed or not, and records has its wrong records named."""


class Closed(Enum):
    """Requests that a partition refuses because its tablet, one of a table, is not mounted."""

    WRITES = "frozen"
    EVERYTHING = "unmounted"


class TabletClosed(KafkaError):
    """The tablet of a table is unmounted or frozen, so its partition refuses this. `cure` is for people; `message` has
    it too, for clients that get no more."""

    def __init__(self, code: ErrorCode, index: int, closed: Closed) -> None:
        self.is_frozen = closed is Closed.WRITES
        verb = "unfreeze" if self.is_frozen else "mount"
        super().__init__(code, f"tablet {index} of the table is {closed.value}: {verb} it first")
        self.cure = f"`pqbroker table {verb} TABLE` or POST /v1/tables/NAME/{verb} does it."


_CLOSED = {
    "frozen": Closed.WRITES, "freezing": Closed.WRITES, "unfreezing": Closed.WRITES, "unmounting": Closed.WRITES,
    "unmounted": Closed.EVERYTHING, "mounting": Closed.EVERYTHING, "frozen_mounting": Closed.EVERYTHING,
}  # fmt: skip
"""Requests refused in each mount state and in the states between (D.2): rows are readable until the tablet is
unmounted."""


def closed_partitions(states: Iterable[str]) -> Mapping[int, Closed]:
    """Return what the partitions of a table refuse, by the mount states of its tablets."""
    return {index: _CLOSED[state] for index, state in enumerate(states) if state in _CLOSED}


@dataclass(frozen=True, slots=True)
class PartitionSettings:
    """A partition's settings, by its topic and by its node; replaced as a whole, in `Partition.settings` alone, and
    read from there.

    A change holds from the next write cycle on.
    """

    topic: TopicConfig
    node: BrokerSettings
    closed: Mapping[int, Closed] = field(default_factory=dict)
    """Requests refused, by partition; most topics refuse none."""
    first_offsets: Mapping[int, int] = field(default_factory=dict)
    """First offsets other than 0 of partitions that have nothing stored."""
    keeps_open_head: bool = False
    """True for tables: rows stay in the head for AUTO_FLUSH_MS, even when they are past retention."""
    keeps_facts: bool = False
    """True if commit timestamps and weights of rows are stored."""
    weight_max: int | None = None
    """Weight of stored rows from which on writes are refused (E.7); None: no limit."""
    epoch_base: int = 0
    """Added to the tablet's generation, it is the leader epoch. Only tables that were resharded have one."""
    feeder: str = ""
    """Path of the sorted table whose changes the topic gets; empty: none, and producers may write."""
    is_special: bool = field(init=False)
    """True if a table's partition may have to refuse batches: most topics have no such reason."""

    def __post_init__(self) -> None:
        is_special = bool(self.closed) or self.weight_max is not None or self.feeder != ""
        object.__setattr__(self, "is_special", is_special)

    def check_no_feed(self, index: int) -> None:
        """KafkaError POLICY_VIOLATION for the change feed of a table, which alone writes to it."""
        if self.feeder:
            text = (
                f"partition {index} is of the change feed of {self.feeder}, which alone writes to it: write to"
                " another topic, or set the table's attribute `changes` to null and remount the table"
            )
            raise KafkaError(ErrorCode.POLICY_VIOLATION, text)

    def check_mounted(self, index: int) -> None:
        """KafkaError when the partition's tablet is unmounted, LEADER_NOT_AVAILABLE, or frozen, 44 (G.5, H30)."""
        closed = self.closed.get(index)
        if closed is not None:
            code = ErrorCode.POLICY_VIOLATION if closed is Closed.WRITES else ErrorCode.LEADER_NOT_AVAILABLE
            raise TabletClosed(code, index, closed)

    @property
    def producers_kept_ms(self) -> int:
        """Return how long an idle producer or session is remembered, though nothing of it remains."""
        return max(self.node.producer_id_expiration_ms, self.topic.pq_producer_id_lifetime_ms)

    def check_timestamps(self, batch: memoryview, header: BatchHeader, now_ms: int) -> None:
        """INVALID_TIMESTAMP (clients 4.16) by what the batch header says of its records; a short batch has the records
        named that are wrong."""
        topic = self.topic
        earliest = now_ms - topic.message_timestamp_before_max_ms
        latest = now_ms + topic.message_timestamp_after_max_ms
        if header.max_timestamp > latest:
            text = f"timestamp {header.max_timestamp} is over message.timestamp.after.max.ms ahead of {now_ms}"
        elif header.base_timestamp < earliest:
            text = f"timestamp {header.base_timestamp} is over message.timestamp.before.max.ms behind {now_ms}"
        else:
            return
        raise RecordsRefused(ErrorCode.INVALID_TIMESTAMP, text, _outside(batch, header, earliest, latest))

    def full(self, limit: str) -> KafkaError:
        """PARTITION_IS_FULL (A.12.1), as the topic wants it told."""
        return KafkaError(ErrorCode[self.topic.pq_partition_full_error], f"the partition holds {limit}")


def _outside(batch: memoryview, header: BatchHeader, earliest: int, latest: int) -> dict[int, str]:
    """The records of a batch whose timestamps are before or after these, each with a text; none of a long batch, which
    would hold up others, and none where the records cannot be read."""
    if header.size_bytes > NAMED_BATCH_BYTES_MAX or header.record_count > NAMED_RECORDS_MAX:
        return {}
    allowed = f"within range [{earliest}, {latest}]"
    try:
        return {
            offset - header.base_offset: f"Timestamp {timestamp} of the record is out of range; it should be {allowed}"
            for offset, timestamp in decode_times(batch, NAMED_BATCH_BYTES_MAX)
            if not earliest <= timestamp <= latest
        }
    except KafkaError:
        return {}
