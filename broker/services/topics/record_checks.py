"""Batches that are prepared before they are written: their records are checked, rows of tables that keep their weights
are weighed, and batches of a topic with a `compression.type` of its own are recompressed. Records of a compacted topic
need a key, those of a topic with a schema and `value.invalid=refuse` are rows of it, and `pq.batch.check=full` reads
them all.

A thread prepares long batches and recompresses; what comes after one for its partition waits, so that order stays. Keys
of records that are alike are looked at in the loop also where a batch is long.

partition  event                        next
idle       a batch that takes long      waiting: a thread prepares it
idle       any other                    written or refused in the same call
waiting    any batch                    waits behind the others
waiting    the first is prepared        written or refused, and those behind it up to the next long one; idle after all

What waits is bounded by what connections may have in work (pqbroker.inflight.bytes.max).
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from pqbroker.broker.services.topics.topic_schemas import schema_of, typed_schema_of
from pqbroker.conf.topic import AUTO, COMPACT, FULL, PRODUCER, REFUSE, TopicConfig
from pqbroker.pq.log.row_facts import Weighed
from pqbroker.protocol.alike_records import have_keys_alike
from pqbroker.protocol.compression import CODEC_NAMES, NONE
from pqbroker.protocol.errors import ErrorCode, KafkaError, RecordsRefused
from pqbroker.protocol.produced_batches import check_keys, check_size
from pqbroker.protocol.record_parts import decode_parts
from pqbroker.protocol.records import BATCH_HEADER_BYTES, CODEC_MASK, BatchHeader, read_header, recompressed

if TYPE_CHECKING:
    from pqbroker.pq.serving.partition_server import PartitionServer
    from pqbroker.pq.serving.topic import Topic
    from pqbroker.pq.serving.write_queue import Answered
    from pqbroker.tables.row_checks import RowCheck

LONG_RECORDS: Final = 200
LONG_BYTES: Final = 32_768
"""An uncompressed batch below these is checked in less time than it takes to hand it to a thread: some tenths of a
millisecond. Of a compressed one nobody knows that: 600 bytes may stand for 16 MiB."""
ALIKE_BYTES_MAX: Final = 2 << 20
ALIKE_RECORDS_MAX: Final = 10_000
"""Limits of an uncompressed batch whose keys the loop looks at where records are alike: it takes a tenth of a ms, and
some milliseconds where they are made to take long."""

RecordCheck = Callable[[memoryview], Weighed]
"""Looks into a batch, and weighs its rows where that is wanted; KafkaError."""
NAMED_MAX: Final = 100
"""Records of a batch whose faults an answer names."""


class Prepared(NamedTuple):
    """A batch to write: as it came, or recompressed."""

    records: memoryview
    header: BatchHeader
    weights: Weighed


class Preparation(NamedTuple):
    """The work on each batch of a topic before it is written."""

    check: RecordCheck | None
    recompression: "Recompression | None"

    def apply(self, records: memoryview, header: BatchHeader) -> Prepared:
        """The batch to write; KafkaError INVALID_RECORD, MESSAGE_TOO_LARGE."""
        weights = None if self.check is None else self.check(records)
        if self.recompression is not None and self.recompression.codec != header.codec:
            records = self.recompression.apply(records)
            header = read_header(records)
        return Prepared(records, header, weights)

    def is_long(self, header: BatchHeader) -> bool:
        """Return True if a thread has to do it."""
        if self.recompression is not None and self.recompression.codec != header.codec:
            return True
        if self.check is None:
            return False
        is_packed = bool(header.attributes & CODEC_MASK)
        return is_packed or header.record_count > LONG_RECORDS or header.batch_length > LONG_BYTES


@dataclass(frozen=True, slots=True)
class Recompression:
    """The codec of a topic whose `compression.type` is not `producer`; `bytes_max`: its max.message.bytes."""

    codec: int
    level: int | None
    bytes_max: int

    def apply(self, records: memoryview) -> memoryview:
        batch = memoryview(recompressed(records, self.codec, self.level))
        check_size(batch, self.bytes_max)
        return batch


def preparation_of(topic: "Topic") -> Preparation | None:
    """Return the work on each batch of a topic before it is written; None where there is none."""
    check = _check_of(topic)
    recompression = None if topic.config.compression_type == PRODUCER else _recompression(topic.config)
    if recompression is None:
        return KEYS_ONLY if check is _check_keys else None if check is None else Preparation(check, None)
    return Preparation(check, recompression)


def _recompression(config: TopicConfig) -> Recompression:
    codec = CODEC_NAMES.index(config.compression_type) if config.compression_type in CODEC_NAMES else NONE
    return Recompression(codec, config.compression_level, config.max_message_bytes)


def _check_of(topic: "Topic") -> RecordCheck | None:
    config = topic.config
    refuses, weighs = config.value_invalid == REFUSE, topic.keeps_facts
    rows = _row_check(topic, refuses=refuses, weighs=weighs) if refuses or weighs else None
    if COMPACT in config.cleanup_policy:
        return _check_keys if rows is None else partial(_check_both, rows)
    if rows is not None:
        return rows
    is_full = config.pq_batch_check == FULL or (config.pq_batch_check == AUTO and schema_of(topic) is not None)
    return _check_all if is_full else None


def _check_all(records: memoryview) -> None:
    """Read every record of the batch: INVALID_RECORD where its bytes are not the records that it counts."""
    deque(decode_parts(records), maxlen=0)


def weigh(topic: "Topic", records: memoryview) -> Weighed:
    """The weights of rows that are known to be some, where they are wanted."""
    check = _row_check(topic, refuses=False, weighs=True) if topic.keeps_facts else None
    return None if check is None else check(records)


def _row_check(topic: "Topic", *, refuses: bool, weighs: bool) -> RecordCheck | None:
    check = topic.derived(_checked_rows)
    return None if check is None else partial(_check_rows, check, topic.record.name if refuses else None, weighs)


def _checked_rows(topic: "Topic") -> "RowCheck | None":
    schema = typed_schema_of(topic)
    if schema is None:
        return None
    from pqbroker.tables.row_checks import RowCheck  # loaded with the first batch for such a topic

    return RowCheck(schema)


def _check_rows(check: "RowCheck", name: str | None, weighs: bool, records: memoryview) -> Weighed:
    """`name`: the topic's, when what is no row is refused."""
    if name is not None:
        wrong = check.errors(decode_parts(records), NAMED_MAX)
        if wrong:
            number, why = next(iter(wrong.items()))
            text = f"record {number} of the batch is no row of the schema of {name}: {why}"
            raise RecordsRefused(ErrorCode.INVALID_RECORD, text, wrong)
    return check.weights(decode_parts(records)) if weighs else None


def _check_keys(records: memoryview) -> None:
    check_keys(records)


KEYS_ONLY: Final = Preparation(_check_keys, None)
"""The work on batches of a compacted topic: its config alone asks for it, whatever becomes of the topic's record."""


def _has_checked_keys(records: memoryview, header: BatchHeader) -> bool:
    """Check the keys of a batch; False: that takes long. Raises as `check_keys`."""
    if not KEYS_ONLY.is_long(header):
        check_keys(records)
        return True
    if header.attributes & CODEC_MASK or header.batch_length > ALIKE_BYTES_MAX:
        return False
    return header.record_count <= ALIKE_RECORDS_MAX and have_keys_alike(
        bytes(records[BATCH_HEADER_BYTES:]), header.record_count
    )


def _check_both(rows: RecordCheck, records: memoryview) -> Weighed:
    check_keys(records)
    return rows(records)


@dataclass(frozen=True, slots=True)
class _Waiting:
    """One batch whose turn has not come."""

    records: memoryview
    header: BatchHeader
    preparation: Preparation | None
    answered: "Answered"

    @property
    def is_long(self) -> bool:
        return self.preparation is not None and self.preparation.is_long(self.header)

    def prepare(self) -> Prepared:
        if self.preparation is None:
            return Prepared(self.records, self.header, None)
        return self.preparation.apply(self.records, self.header)


class RecordChecks:
    """The batches that wait, by partition; empty but for long batches of topics whose batches are prepared."""

    def __init__(self) -> None:
        self.waiting: dict[PartitionServer, deque[_Waiting]] = {}
        """Read only. Even a batch that needs no preparation has to wait behind others of its partition."""

    def write(
        self,
        partition: "PartitionServer",
        records: memoryview,
        header: BatchHeader,
        answered: "Answered",
        *,
        preparation: Preparation | None,
    ) -> None:
        """Write a batch that is checked but for its records, in its turn. KafkaError, now or as the answer."""
        if partition not in self.waiting:
            if preparation is None:
                partition.writer.append(records, header, answered)
                return
            if preparation is KEYS_ONLY:  # Streams' changelogs: a road without the steps of the others
                if _has_checked_keys(records, header):
                    partition.writer.append(records, header, answered)
                    return
            elif not preparation.is_long(header):
                _append(partition, preparation.apply(records, header), answered)
                return
            self.waiting[partition] = deque()
        queue, waiting = self.waiting[partition], _Waiting(records, header, preparation, answered)
        queue.append(waiting)
        if len(queue) == 1:
            self._begin(partition, waiting)

    def _begin(self, partition: "PartitionServer", first: _Waiting) -> None:
        prepared = partition.reader.decode(first.prepare)
        prepared.add_done_callback(partial(self._end, partition))

    def _end(self, partition: "PartitionServer", prepared: "asyncio.Future[Prepared]") -> None:
        """Write what waits up to the next long batch."""
        queue = self.waiting[partition]
        _settle(partition, queue.popleft(), prepared.exception() or prepared.result())
        while queue:
            first = queue[0]
            if first.is_long:
                self._begin(partition, first)
                return
            _settle(partition, queue.popleft(), _prepared(first))
        del self.waiting[partition]


def _settle(partition: "PartitionServer", waiting: _Waiting, found: Prepared | BaseException) -> None:
    if isinstance(found, BaseException):
        waiting.answered(found)
    else:
        _append(partition, found, waiting.answered)


def _append(partition: "PartitionServer", prepared: Prepared, answered: "Answered") -> None:
    partition.writer.append(prepared.records, prepared.header, answered, prepared.weights)


def _prepared(waiting: _Waiting) -> Prepared | KafkaError:
    try:
        return waiting.prepare()
    except KafkaError as error:
        return error
