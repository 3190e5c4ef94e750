"""A look inside a topic: records from an offset, from a time, or of one key. Decoded in a thread, within bounds."""

from collections.abc import Iterable
from functools import partial
from typing import Any

from pqbroker.broker.http.contents import RECORD, TIMESTAMP, read_text, show_record, size_of
from pqbroker.broker.http.problems import bad_request
from pqbroker.broker.http.routes import LIMIT, Call, Parameter, Route
from pqbroker.broker.http.schemas import COUNT, OFFSET, TEXT, array_of, object_of
from pqbroker.broker.partitions import find_readable
from pqbroker.pq.partition_server import PartitionServer
from pqbroker.pq.run import Pieces
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.records import Record, batches, decode_records
from pqbroker.storage.engine import Buffer

READ_BYTES = 1 << 20
"""Bytes of stored batches taken at once; at least one batch."""
RECORD_OVERHEAD_BYTES = 32
"""What an empty record counts for: a look through many is work too."""


async def look(call: Call) -> Any:
    partition = find_readable(call.group(), call.query.get("partition", 0))
    first = await _first_offset(call, partition)
    search = _Search(call, first)
    while search.wants_more and search.next_offset < partition.end_offset:
        search.next_offset = max(search.next_offset, partition.start_offset)
        async with call.looks:
            await _look_through(partition, search)
    return {
        "partition": partition.index,
        "start_offset": partition.start_offset,
        "end_offset": partition.end_offset,
        "records": search.shown,
        "next_offset": search.next_offset,
    }


async def _first_offset(call: Call, partition: PartitionServer) -> int:
    """Where to begin; KafkaError OFFSET_OUT_OF_RANGE."""
    offset: int | None = call.query.get("offset")
    time_ms: int | None = call.query.get("time")
    if offset is not None and time_ms is not None:
        raise bad_request("offset and time are both given; give one of them")
    if time_ms is not None:
        found = await partition.offset_at_timestamp(time_ms)
        return partition.end_offset if found is None else found.offset
    if offset is None:
        return partition.start_offset
    if offset < 0:
        return max(partition.start_offset, partition.end_offset + offset)
    if not partition.start_offset <= offset <= partition.end_offset:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {offset} is outside [{partition.start_offset}, {partition.end_offset}]",
        )
    return offset


class _Search:
    """What is looked for, what was found, and what may still be looked at."""

    __slots__ = ("_answer_bytes", "_key", "_limit", "_look_bytes", "batch_bytes_max", "next_offset", "shown")

    def __init__(self, call: Call, first: int) -> None:
        settings = call.node.settings
        key = call.query.get("key")
        self._key = None if key is None else read_text(key, "key")
        self._limit = call.limit()
        self._answer_bytes = settings.http_answer_bytes_max
        self._look_bytes = self.batch_bytes_max = settings.http_look_bytes_max
        self.next_offset = first
        self.shown: list[Any] = []

    @property
    def wants_more(self) -> bool:
        return len(self.shown) < self._limit and self._answer_bytes > 0 and self._look_bytes > 0

    def take(self, records: Iterable[Record]) -> None:
        """Look at the records of a batch; those before `next_offset` were asked for by nobody."""
        for record in records:
            if not self.wants_more:
                return
            if record.offset < self.next_offset:
                continue
            size = size_of(record)
            if self._key is None or record.key == self._key:
                if self.shown and size > self._answer_bytes:
                    self._answer_bytes = 0
                    return
                self._answer_bytes -= size
                self.shown.append(show_record(record))
            self.next_offset = record.offset + 1
            self._look_bytes -= size + RECORD_OVERHEAD_BYTES


async def _look_through(partition: PartitionServer, search: _Search) -> None:
    """Let the search see the next batches."""
    read = partition.read(search.next_offset, READ_BYTES)
    pieces = read if isinstance(read, Pieces) else await read
    await partition.decode(partial(_decode, pieces.buffers, search))
    if search.wants_more:
        search.next_offset = max(search.next_offset, pieces.next_offset)


def _decode(buffers: list[Buffer], search: _Search) -> None:
    """Runs in a thread. One batch may be larger than what may be looked at: INVALID_RECORD says so."""
    run = memoryview(b"".join(buffers))
    for position, header in batches(run):
        if not search.wants_more:
            return
        batch = run[position : position + header.size_bytes]
        if not header.is_control:
            search.take(decode_records(batch, search.batch_bytes_max))
        if search.wants_more:
            search.next_offset = max(search.next_offset, header.last_offset + 1)


ROUTES = (
    Route(
        "GET", "/v1/topics/{name}/records", "Look at records of a partition", look,
        object_of(
            {
                "partition": COUNT, "start_offset": OFFSET, "end_offset": OFFSET, "records": array_of(RECORD),
                "next_offset": OFFSET,
            }
        ),
        (
            Parameter("partition", COUNT, "Which partition; 0 unless given."),
            Parameter(
                "offset", {"type": "integer"}, "Begin here; -10 means ten before the end. The start unless given."
            ),
            Parameter("time", TIMESTAMP, "Begin with the first record at or after this time, in ms since 1970."),
            Parameter("key", TEXT, "Only records with this key; go on from `next_offset` for more."),
            LIMIT,
        ),
    ),
)  # fmt: skip
