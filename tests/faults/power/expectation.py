"""Debts of a broker after a power cut, by the answers it had sent; and whether it pays them."""

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from crc32c import crc32c

from pqbroker.protocol import records
from pqbroker.protocol.messages.create_topics import CreateTopicsRequest
from pqbroker.protocol.messages.delete_records import DeleteRecordsRequest
from pqbroker.protocol.messages.delete_topics import DeleteTopicsRequest
from pqbroker.protocol.messages.offset_commit import OffsetCommitRequest
from pqbroker.protocol.messages.produce import ProduceRequest
from tests.faults.power.recording import Event
from tests.faults.power.workload import PARTITIONS, Asked, Book

_HTTP = b"HTTP/"
"""Bytes that begin no answer of Kafka's: it would be of a gigabyte."""
_END = b"\r\n\r\n"
_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *([0-9]+)")
_UNSTAMPED = slice(16, None)
"""Part of a batch that the broker leaves as it came: all but base offset and leader epoch (and the length between)."""


@dataclass(frozen=True, slots=True, repr=False)
class Found:
    """Contents of a broker: start offset and batches of each partition of the topic, offsets of the group, topics; and
    what it lacks of the story.

    Without a text of its own: `asyncio.run` makes one of what a task returned, and of megabytes that takes a second.
    """

    logs: Mapping[int, tuple[int, Sequence[bytes]]]
    offsets: Mapping[int, int]
    topics: frozenset[str]
    missing: Sequence[str] = ()


@dataclass(slots=True)
class Owed:
    """Follows what the broker sends; `check` compares with what is found."""

    book: Book
    acknowledged: list[tuple[Asked, int]] = field(default_factory=list)
    """Produce requests with the base offsets they were answered with."""
    trims: dict[int, int] = field(default_factory=dict)
    offsets: dict[int, int] = field(default_factory=dict)
    created: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)
    answers: int = 0
    """Of HTTP, which the story was told over: as many as were sent whole."""
    _streams: dict[int, bytearray] = field(default_factory=dict)

    def take(self, event: Event) -> None:
        """One event of the recording; of interest are bytes sent, and closed sockets."""
        if event.kind == "C":
            self._streams.pop(event.file, None)
        elif event.kind == "S":
            stream = self._streams.setdefault(event.file, bytearray())
            stream += event.data
            while stream.startswith(_HTTP) and (size := _answer_bytes(stream)) <= len(stream):
                self.answers += 1
                del stream[:size]
            while len(stream) >= 4 and len(stream) >= 4 + (size := int.from_bytes(stream[:4], "big")):
                self._answered(bytes(stream[4 : 4 + size]))
                del stream[: 4 + size]

    def start_process(self, answers: int) -> None:
        """A new process begins; `answers` came from those before."""
        self._streams.clear()
        self.answers = answers

    def check(self, found: Found) -> None:
        """AssertionError unless everything owed is there, and all else whole or not at all."""
        assert not found.missing, found.missing[:5]
        missing = self.created - found.topics - self._asked_to_delete()
        assert not missing, f"topics were acknowledged and are gone: {missing}"
        assert not self.deleted & found.topics, f"deleted topics are there: {self.deleted & found.topics}"
        places: dict[int, tuple[int, int]] = {}
        for partition, (start, batches) in found.logs.items():
            places |= self._walk(partition, start, batches)
        trims = self._trims_asked()
        for asked, base_offset in self.acknowledged:
            if base_offset >= trims.get(asked.partition, 0):
                place = places.get(asked.correlation_id)
                told = f"acknowledged at {asked.partition}:{base_offset}"
                assert place is not None, f"request {asked.correlation_id} is gone, {told}"
                assert place == (asked.partition, base_offset), f"request {asked.correlation_id} is at {place}, {told}"
        for partition, offset in self.trims.items():
            assert found.logs[partition][0] >= offset, f"partition {partition} begins before its trim to {offset}"
        for partition, offset in self.offsets.items():
            stored = found.offsets.get(partition, -1)
            assert stored >= offset, f"the group's offset of partition {partition} is {stored}, {offset} was stored"

    def _walk(self, partition: int, start: int, batches: Sequence[bytes]) -> dict[int, tuple[int, int]]:
        """Where each request's batch is; every one is as it was sent, and no offset is skipped."""
        places: dict[int, tuple[int, int]] = {}
        last_of: dict[int, int] = {}
        following = None
        for batch in batches:
            header = records.read_header(batch)
            assert crc32c(batch[21:]) == header.crc, f"a torn batch at {partition}:{header.base_offset}"
            assert following is None or header.base_offset == following, f"no batch at {partition}:{following}"
            assert following is not None or header.base_offset <= start <= header.last_offset, (header, start)
            following = header.last_offset + 1
            number = _number_of(batch)
            sent = self.book.asked[number]
            assert batch[_UNSTAMPED] == sent.batch[_UNSTAMPED], f"request {number} is stored otherwise than sent"
            assert sent.partition == partition
            assert number not in places, f"request {number} is stored twice"
            assert number > last_of.get(sent.producer, 0), f"request {number} is stored out of order"
            last_of[sent.producer] = number
            places[number] = (partition, header.base_offset)
        return places

    def _answered(self, frame: bytes) -> None:
        read = self.book.read(frame)
        if read is None:
            return
        asked, response = read
        if isinstance(asked.request, ProduceRequest):
            (answer,) = response.responses[0].partition_responses
            assert answer.error_code == 0, answer
            self.acknowledged.append((asked, answer.base_offset))
        elif isinstance(asked.request, DeleteRecordsRequest):
            for answer in response.topics[0].partitions:
                assert answer.error_code == 0, answer
                before = self.trims.get(answer.partition_index, 0)
                self.trims[answer.partition_index] = max(before, answer.low_watermark)
        elif isinstance(asked.request, OffsetCommitRequest):
            for item, answer in _committed(asked.request, response):
                if answer.error_code == 0:
                    self.offsets[item.partition_index] = item.committed_offset
        elif isinstance(asked.request, CreateTopicsRequest):
            self.created |= {answer.name for answer in response.topics if answer.error_code == 0}
        elif isinstance(asked.request, DeleteTopicsRequest):
            self.deleted |= {answer.name for answer in response.responses if answer.error_code == 0}

    def _trims_asked(self) -> dict[int, int]:
        """By partition, before which offset records may be gone: somebody asked for it, answered or not."""
        found: dict[int, int] = {}
        for each in self.book.asked.values():
            if isinstance(each.request, DeleteRecordsRequest):
                for item in each.request.topics[0].partitions:
                    found[item.partition_index] = max(found.get(item.partition_index, 0), item.offset)
        return found

    def _asked_to_delete(self) -> set[str]:
        return {
            name
            for each in self.book.asked.values() if isinstance(each.request, DeleteTopicsRequest)
            for name in each.request.topic_names
        }  # fmt: skip


def _answer_bytes(stream: bytearray) -> int:
    """How long the answer of HTTP is that the stream begins with; more than there is while that is not known."""
    head = stream.find(_END)
    found = _LENGTH.search(stream, 0, head) if head >= 0 else None
    return len(stream) + 1 if found is None else head + len(_END) + int(found[1])


def nothing_found() -> Found:
    """A broker that was never asked."""
    return Found(dict.fromkeys(range(PARTITIONS), (0, ())), {}, frozenset())


def _committed(request: OffsetCommitRequest, response: Any) -> "zip[tuple[Any, Any]]":
    return zip(request.topics[0].partitions, response.topics[0].partitions, strict=True)


def _number_of(batch: bytes) -> int:
    first = next(records.decode_records(batch))
    assert first.value is not None
    number: int = struct.unpack_from(">q", first.value)[0]
    return number


