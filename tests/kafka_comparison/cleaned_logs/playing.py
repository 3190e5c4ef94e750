"""A script played on a broker: each stage is written and cleaned, and what is left of the log is read."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from pqbroker.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from pqbroker.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pqbroker.protocol.records import DELETE_HORIZON, BatchHeader, Record, decode_records, encode_batch, read_header
from tests.kafka_comparison.cleaned_logs.scripts import (
    AT_ONCE,
    SEGMENT_MS,
    STAGE_MS,
    T0_MS,
    Again,
    Batch,
    Script,
    Step,
    Trim,
    one,
)
from tests.kafka_comparison.side import Side
from tests.support.wire import EARLIEST, LATEST, Wire

CONFIGS: Final = {
    "cleanup.policy": "compact", "segment.ms": str(SEGMENT_MS), "min.cleanable.dirty.ratio": "0.01",
    "retention.ms": "-1",
}  # fmt: skip

SEARCHES_MAX: Final = 30
"""Records at most whose times are asked for in a stage."""
_GREATEST: Final = -3
_LIST_OFFSETS_VERSION: Final = 7

Clean = Callable[[str, int, Callable[[], object]], None]
"""Has a topic cleaned up to an offset, calls what writes the record behind it, and returns when both are done."""


class LeftBatch(NamedTuple):
    """One batch that a cleaning left, in words that are alike in all runs."""

    base_offset: int
    last_offset: int
    codec: int
    flags: str
    producer: Sequence[int]
    """The producer's number in the script, its epoch, the first sequence."""
    max_time: int
    """Greatest timestamp, from the first time of the script."""
    records: Sequence[Any]
    """Offset, time, key, value and headers of each record that the log still has: what a batch holds below the log's
    start is read by nobody."""


class Stage(NamedTuple):
    """Outcome of a stage: the answers to its steps, the batches left of the log up to its end, searches by time."""

    answers: Sequence[str]
    left: Sequence[LeftBatch]
    found: Sequence[Sequence[int]]
    """Times asked for with the offset and the time of the record that was found; times from the first of the script,
    -3: the record with the greatest time."""


def play(side: Side, name: str, script: Script, clean: Clean) -> list[Stage]:
    """Write a script to a new topic, stage by stage, and clean each; the topic is deleted behind it."""
    side.begin(name, 0, 0.0)
    try:
        return list(_Play(side, script, clean).stages())
    finally:
        side.end()


class _Play:
    """A script that is played on one topic."""

    def __init__(self, side: Side, script: Script, clean: Clean) -> None:
        self._side = side
        self._script = script
        self._clean = clean
        self._topic = side.topic(configs={**CONFIGS, **script.configs})
        self._ids: dict[int, int] = {}
        self._sent: dict[int, list[bytearray]] = {}
        self._times: list[int] = []

    def stages(self) -> Iterator[Stage]:
        """Play stage after stage."""
        for number, steps in enumerate(self._script.stages):
            began_ms = T0_MS + STAGE_MS * number
            answers = [self._take(step, began_ms + 1000 * place) for place, step in enumerate(steps, 1)]
            with Wire(self._side.address) as wire:
                _, end = wire.offset(self._topic, 0, LATEST)
            self._clean(self._topic, end, partial(self._write, one(b"roll", b""), began_ms + STAGE_MS))
            yield Stage(answers, list(self._left(end)), list(self._found()))

    def _take(self, step: Step, first_ms: int) -> str:
        if isinstance(step, Trim):
            return self._trim(step.offset)
        if isinstance(step, Again):
            return self._send(self._sent[step.producer][step.number])
        return self._write(step, first_ms)

    def _write(self, batch: Batch, first_ms: int) -> str:
        records = batch.records(first_ms)
        self._times += [record.timestamp for record in records]
        if batch.producer < 0:
            return self._send(encode_batch(records, codec=batch.codec))
        if batch.producer not in self._ids:
            self._ids[batch.producer] = self._side.producer_id()
        sent = self._sent.setdefault(batch.producer, [])
        sequence = sum(read_header(one).record_count for one in sent)
        who = {"producer_id": self._ids[batch.producer], "producer_epoch": 0, "base_sequence": sequence}
        sent.append(encode_batch(records, codec=batch.codec, **who))
        return self._send(sent[-1])

    def _send(self, batch: bytearray) -> str:
        answer = self._side.write(self._topic, batch[:]).responses[0].partition_responses[0]
        return f"{answer.error_code.name} {answer.base_offset}"

    def _trim(self, offset: int) -> str:
        asked = DeleteRecordsPartition(partition_index=0, offset=offset)
        topics = [DeleteRecordsTopic(name=self._topic, partitions=[asked])]
        answer = self._side.ask(DeleteRecordsRequest(topics=topics, timeout_ms=5000))
        found = answer.topics[0].partitions[0]
        return f"{found.error_code.name} {found.low_watermark}"

    def _left(self, end: int) -> Iterator[LeftBatch]:
        with Wire(self._side.address) as wire:
            _, start = wire.offset(self._topic, 0, EARLIEST)
            for _, batch in wire.log(self._topic, 0):
                header = read_header(batch)
                if header.base_offset >= end:
                    return
                records = [record for record in decode_records(batch) if record.offset >= start]
                if records or not header.record_count:
                    yield self._shown(header, records)

    def _shown(self, header: BatchHeader, records: Sequence[Record]) -> LeftBatch:
        numbers = {producer_id: number for number, producer_id in self._ids.items()}
        is_whole = len(records) == header.record_count
        latest_ms = header.max_timestamp if is_whole else max(record.timestamp for record in records)
        return LeftBatch(
            header.base_offset, header.last_offset, header.codec,
            "horizon" if header.attributes & DELETE_HORIZON else "",
            [numbers.get(header.producer_id, -1), header.producer_epoch, header.base_sequence],
            latest_ms - T0_MS, [_shown(record) for record in records],
        )  # fmt: skip

    def _found(self) -> Iterator[list[int]]:
        if AT_ONCE.items() <= self._script.configs.items():
            return  # what is left depends on when a cleaning begins
        step = 1 + len(self._times) // SEARCHES_MAX
        for asked in (_GREATEST, *(time_ms for each in self._times[::step] for time_ms in (each, each + 1))):
            place = ListOffsetsPartition(partition_index=0, timestamp=asked)
            topics = [ListOffsetsTopic(name=self._topic, partitions=[place])]
            answer = self._side.ask(ListOffsetsRequest(replica_id=-1, topics=topics), _LIST_OFFSETS_VERSION)
            (found,) = answer.topics[0].partitions
            yield [
                asked if asked == _GREATEST else asked - T0_MS, found.offset,
                found.timestamp if found.timestamp < 0 else found.timestamp - T0_MS,
            ]  # fmt: skip


def _shown(record: Record) -> list[Any]:
    headers = [[name, _text(value)] for name, value in record.headers]
    return [record.offset, record.timestamp - T0_MS, _text(record.key), _text(record.value), headers]


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode("latin-1")
