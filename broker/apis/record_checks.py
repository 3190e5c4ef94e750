"""Batches that are looked into before they are written: records of a compacted topic need a key, and those of a topic
with a schema and `value.invalid=refuse` are rows of it. Rows of tables that keep their weights are weighed.

A long batch is looked into by a thread, and what comes after it for its partition waits, so that order stays.

partition  event                        next
idle       a long batch                 waiting: a thread looks into it
idle       any other                    written or refused in the same call
waiting    any batch                    waits behind the others
waiting    the first is looked into     written or refused, and those behind it up to the next long one; idle after all

What waits is bounded by what connections may have in work (pqbroker.inflight.bytes.max).
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from pqbroker.broker.apis.topic_schemas import schema_of
from pqbroker.conf.topic import COMPACT, REFUSE
from pqbroker.pq.log.row_facts import Weighed
from pqbroker.protocol.errors import ErrorCode, KafkaError, RecordsRefused
from pqbroker.protocol.produced_batches import check_keys
from pqbroker.protocol.record_parts import decode_parts
from pqbroker.protocol.records import BatchHeader

if TYPE_CHECKING:
    from pqbroker.pq.serving.partition_server import PartitionServer
    from pqbroker.pq.serving.topic import Topic
    from pqbroker.pq.serving.write_queue import Answered
    from pqbroker.tables.row_checks import RowCheck

LONG_RECORDS: Final = 200
LONG_BYTES: Final = 32_768
LONG_COMPRESSED_BYTES: Final = 1024
"""What is less than these takes less time to look into than to hand to a thread: some tenths of a millisecond."""


RecordCheck = Callable[[memoryview], Weighed]
"""Looks into a batch, and weighs its rows where that is wanted; KafkaError."""
NAMED_MAX: Final = 100
"""Records of a batch whose faults an answer names."""


def check_of(topic: "Topic") -> RecordCheck | None:
    """What looks into the batches for a topic; None: nothing has to."""
    config = topic.config
    refuses, weighs = config.value_invalid == REFUSE, topic.keeps_facts
    rows = _row_check(topic, refuses=refuses, weighs=weighs) if refuses or weighs else None
    if COMPACT not in config.cleanup_policy:
        return rows
    return _check_keys if rows is None else partial(_check_both, rows)


def weigh(topic: "Topic", records: memoryview) -> Weighed:
    """The weights of rows that are known to be some, where they are wanted."""
    check = _row_check(topic, refuses=False, weighs=True) if topic.keeps_facts else None
    return None if check is None else check(records)


def _row_check(topic: "Topic", *, refuses: bool, weighs: bool) -> RecordCheck | None:
    stored = schema_of(topic)
    if stored is None:
        return None
    made = _made.get(topic)
    if made is None or made[0] != stored:
        from pqbroker.tables.row_checks import RowCheck  # loaded with the first batch for such a topic
        from pqbroker.tables.schema import read_schema

        made = _made[topic] = stored, RowCheck(read_schema(stored.columns, len(stored.columns), stored.formats))
    return partial(_check_rows, made[1], topic.record.name if refuses else None, weighs)


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


def _check_both(rows: RecordCheck, records: memoryview) -> Weighed:
    check_keys(records)
    return rows(records)


_made: "WeakKeyDictionary[Topic, tuple[object, RowCheck]]" = WeakKeyDictionary()
"""With the schema that each is for."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """One batch whose turn has not come."""

    records: memoryview
    header: BatchHeader
    check: RecordCheck | None
    answered: "Answered"


class RecordChecks:
    """The batches that wait, by partition; empty but for long batches of topics whose records are checked."""

    def __init__(self) -> None:
        self.waiting: dict[PartitionServer, deque[_Waiting]] = {}
        """Where it holds something, a batch may have to wait that needs no check itself; only to be looked at."""

    def write(
        self,
        partition: "PartitionServer",
        records: memoryview,
        header: BatchHeader,
        answered: "Answered",
        *,
        check: RecordCheck | None,
    ) -> None:
        """Write a batch that is checked but for its records, in its turn. KafkaError, now or as the answer."""
        if partition not in self.waiting:
            if check is None or not _is_long(header):
                partition.append(records, header, answered, None if check is None else check(records))
                return
            self.waiting[partition] = deque()
        waiting = _Waiting(records, header, check, answered)
        queue = self.waiting[partition]
        queue.append(waiting)
        if len(queue) == 1:
            self._look(partition, waiting)

    def _look(self, partition: "PartitionServer", first: _Waiting) -> None:
        looked = partition.decode(partial(_check, first))
        looked.add_done_callback(partial(self._looked, partition))

    def _looked(self, partition: "PartitionServer", looked: "asyncio.Future[Weighed]") -> None:
        """Write what waits up to the next long batch."""
        queue = self.waiting[partition]
        _settle(partition, queue.popleft(), looked.exception() or looked.result())
        while queue:
            first = queue[0]
            if first.check is not None and _is_long(first.header):
                self._look(partition, first)
                return
            _settle(partition, queue.popleft(), _checked(first))
        del self.waiting[partition]


def _settle(partition: "PartitionServer", waiting: _Waiting, found: Weighed | BaseException) -> None:
    if isinstance(found, BaseException):
        waiting.answered(found)
    else:
        partition.append(waiting.records, waiting.header, waiting.answered, found)


def _check(waiting: _Waiting) -> Weighed:
    return None if waiting.check is None else waiting.check(waiting.records)


def _checked(waiting: _Waiting) -> Weighed | KafkaError:
    try:
        return _check(waiting)
    except KafkaError as error:
        return error


def _is_long(header: BatchHeader) -> bool:
    most = LONG_COMPRESSED_BYTES if header.codec else LONG_BYTES
    return header.record_count > LONG_RECORDS or header.size_bytes > most
