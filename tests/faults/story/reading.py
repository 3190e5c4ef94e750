"""Compares what a directory gives back with what its broker owes: in this process, which is quicker than a broker."""

import asyncio
import tempfile
import time
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pqbroker.broker.services.cells.cell_owner import OpenCell, open_cell
from pqbroker.broker.services.topics.topic_schemas import typed_schema_of
from pqbroker.cli.commands.doctor import examine_directory
from pqbroker.conf.broker import BrokerSettings
from pqbroker.pq.log.staged_rows import Piece
from pqbroker.pq.serving.joint_write import batches_taken
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.topic import Topic
from pqbroker.protocol.errors import KafkaError
from pqbroker.protocol.records import Record, batches, decode_records
from pqbroker.storage.disk.backups.restoring import restore
from pqbroker.storage.disk.rocks import RocksEngine
from pqbroker.storage.engine import BlobCorrupt, BlobMissing
from pqbroker.tables.refusals import TableError
from pqbroker.tables.rows import decode_row
from tests.faults.story.book import SOMEWHERE, Backup, Book, Owed, Staged, TopicPartition
from tests.faults.story.story import PAIRS, TABLE
from tests.pq.rig import check_crc, read
from tests.support.in_memory import in_memory

NOW_MS = 1_700_000_000_000
_READ_BYTES = 1 << 20
_FINISHES_S = 5.0
"""Seconds that a start may take to end what commits had left."""
_CANNOT_READ = (KafkaError, BlobCorrupt, BlobMissing, AssertionError, ValueError)


async def opened_cell(path: Path) -> OpenCell:
    """The node's cells, open. EngineError, CommitRefused."""
    engine = RocksEngine(path, ballast_bytes=0, segment_bytes=1 << 20, read_threads=1)
    return await open_cell(engine, replace(BrokerSettings(), ballast_bytes=0), lambda: NOW_MS)


async def close(opened: OpenCell) -> None:
    """Close what was opened, whatever became of it."""
    if not opened.cell.lost.done():
        await opened.stop()
    await opened.cell.close()


async def missing_in(path: Path, book: Book, owed: Owed) -> list[str]:
    """Return the promises that a start on a directory does not keep. EngineError, CommitRefused."""
    opened = await opened_cell(path)
    try:
        return await read_back(opened, book, owed)
    finally:
        await close(opened)


def restore_all(directory: Path, book: Book, whole: Iterable[Backup], count_max: int = 1000) -> int:
    """Restore and read the backups in a directory, of which those that were answered hold what they owe: all, or as
    many as `count_max`. How many; AssertionError."""
    owed = {Path(each.directory).name: each.answers for each in whole}
    there = {path.name: path for path in directory.glob("[!.]*")}
    assert owed.keys() <= there.keys(), f"backups that were whole are gone: {owed.keys() - there.keys()}"
    chosen = sorted(there)[:: 1 + len(there) // count_max]
    for name in chosen:
        path = there[name]
        findings = examine_directory(path, {})
        assert not findings.damages, (name, findings.found)
        with tempfile.TemporaryDirectory(prefix="pqbroker-restored-", dir=in_memory()) as place:
            restored = Path(place, "data")
            restore(path, restored, {}, lambda size: None)
            missing = asyncio.run(missing_in(restored, book, book.owed(owed.get(name, 0))))
        assert not missing, (name, missing)
    return len(chosen)


async def read_back(opened: OpenCell, book: Book, owed: Owed) -> list[str]:
    """Say what is not as it is owed; nothing where all is."""
    await _finished(opened)
    names = {*opened.topics.names(), *opened.sorted_tables.tables}
    missing = [f"topic {name} is gone" for name in sorted(owed.names - names)]
    transacted = [number for numbers in book.transactions for number in numbers]
    found: set[int] = set()
    for place in sorted({book.sent[number].place for number in (*owed.written, *transacted)}):
        topic = opened.topics.get(place[0])
        if topic is not None:
            one = _Partition(topic, place, book, owed)
            missing += await one.compare()
            found |= one.found.keys()
    missing += await _compare_pairs(opened, book, owed, found)
    if not missing:  # what is damaged is not torn
        missing += _compare_transactions(book, owed, found)
    for (group, place), offset in owed.offsets.items():
        missing += _compare_offset(opened, group, place, offset)
    table = opened.topics.get(TABLE)
    if table is not None:
        missing += _compare_sessions(table, owed)
        for staged in owed.staged:
            missing += await _compare_staged(table, staged, book)
    return missing


async def _finished(opened: OpenCell) -> None:
    """Return when the start has ended what commits had left, or cannot: a home is damaged."""
    await _wait(lambda: not opened.commits.is_busy)


async def _wait(condition: Callable[[], bool]) -> None:
    """Return when something holds, or the time is over."""
    until = time.monotonic() + _FINISHES_S
    while not condition() and time.monotonic() < until:  # noqa: ASYNC110 (a state, nobody sets an event)
        await asyncio.sleep(0.01)


async def _compare_pairs(opened: OpenCell, book: Book, owed: Owed, found: set[int]) -> list[str]:
    """Compare the rows of the sorted table with those that were sent; add the numbers of those that are there."""
    table = opened.sorted_tables.get(PAIRS)
    if table is None:
        return []
    (tablet,) = table.tablets
    await _wait(lambda: tablet.is_serving)
    if not tablet.is_serving:
        return [f"{PAIRS} is not served: {tablet.unreadable}"]
    wrong: list[str] = []
    for number, sent in book.sent.items():
        if sent.place[0] != PAIRS:
            continue
        try:
            values = await tablet.lookup(tablet.visible).find(table.schema.encode_key([number]))
        except (*_CANNOT_READ, TableError) as cannot:
            wrong.append(f"row {number} of {PAIRS}: {cannot!r}")
            continue
        if values is None and number in owed.written:
            wrong.append(f"row {number} of {PAIRS} is gone")
        elif values is not None:
            found.add(number)
            assert isinstance(sent.content, Mapping)
            if values[-1] != sent.content["data"]:
                wrong.append(f"row {number} of {PAIRS} has other bytes")
    return wrong


def _compare_transactions(book: Book, owed: Owed, found: set[int]) -> Iterator[str]:
    for numbers in book.transactions:
        there = found & {*numbers}
        if there and len(there) < len(numbers):
            yield f"of the rows {numbers} of one transaction only {sorted(there)} are there"
    for number in sorted(found & owed.refused):
        yield f"row {number} is there, of a transaction that was refused"


@dataclass
class _Partition:
    """One partition that is compared."""

    topic: Topic
    place: TopicPartition
    book: Book
    owed: Owed
    found: dict[int, int] = field(default_factory=dict)
    """Offsets by number."""
    wrong: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.place[0]}-{self.place[1]}"

    async def compare(self) -> list[str]:
        """Read all that can be read."""
        server = self.topic.partitions[self.place[1]]
        if server.state.unreadable is not None or not server.is_loaded:
            return [f"{self.name} is unreadable"]
        offset = server.start_offset
        while offset < server.end_offset:
            try:
                offset = await self._take(server, offset)
            except _CANNOT_READ as cannot:
                self.wrong.append(f"{self.name} at {offset}: {cannot!r}")
                later = [known for known in self._places().values() if known > offset]
                offset = min(later, default=server.end_offset)
        self._compare_places()
        await self._compare_timestamps(server)
        return self.wrong

    async def _take(self, server: PartitionServer, offset: int) -> int:
        """Compare the records of one read with what was sent; the offset behind them."""
        pieces = await read(server, offset, _READ_BYTES)
        data = memoryview(b"".join(pieces.in_memory()))
        for position, header in batches(data):
            batch = data[position : position + header.size_bytes]
            check_crc(batch)
            for record in decode_records(batch):
                if record.offset >= offset:
                    self._take_record(record)
        if pieces.next_offset <= offset:
            raise ValueError(f"nothing is there, before the end at {server.end_offset}")
        return pieces.next_offset

    def _take_record(self, record: Record) -> None:
        number, content = self._content_of(record)
        sent = self.book.sent.get(number)
        where = f"{self.name} at {record.offset}"
        if sent is None or sent.place != self.place or sent.content != content:
            self.wrong.append(f"{where} has other bytes than were sent as {number}")
        elif number in self.found:
            self.wrong.append(f"{where} has record {number} again")
        else:
            self.found[number] = record.offset

    def _content_of(self, record: Record) -> tuple[int, bytes | Mapping[str, Any]]:
        """The number of a record, and its content as it was sent."""
        if self.place[0] != TABLE:
            value = bytes(record.value or b"")
            return int(value.partition(b":")[0] or -1), value
        schema = typed_schema_of(self.topic)
        assert schema is not None
        row = decode_row(schema, record.key, record.value)
        return row["n"], {"n": row["n"], "note": row["note"], "data": _bytes_of(row["data"])}

    def _places(self) -> dict[int, int]:
        """The offsets that were acknowledged here, by number."""
        here = self.book.sent
        return {number: offset for number, offset in self.owed.written.items() if here[number].place == self.place}

    def _compare_places(self) -> None:
        for number, offset in self._places().items():
            found = self.found.get(number)
            if found is None or offset not in (SOMEWHERE, found):
                self.wrong.append(f"record {number} is at {found} of {self.name}, not at {offset}")

    async def _compare_timestamps(self, server: PartitionServer) -> None:
        known = {self.found[number]: at for number, at in self.owed.timestamps.items() if number in self.found}
        try:
            facts = await server.facts.read(min(known, default=0), max(known, default=-1) + 1)
        except _CANNOT_READ as cannot:
            self.wrong.append(f"the facts of {self.name}: {cannot!r}")
            return
        found = {fact.row_index: fact.timestamp for fact in facts}
        for offset, timestamp in known.items():
            if found.get(offset) != timestamp:
                self.wrong.append(f"{self.name} at {offset} is of {found.get(offset)}, not of {timestamp}")


def _compare_offset(opened: OpenCell, group: str, place: TopicPartition, offset: int) -> Iterator[str]:
    topic = opened.topics.get(place[0])
    if topic is None:
        return
    state = topic.partitions[place[1]].consumers.get(group)
    if state is None or state.offset < offset:
        yield f"group {group} has {state.offset if state else None} in {place}, not {offset}"


def _compare_sessions(table: Topic, owed: Owed) -> Iterator[str]:
    """A later batch of a session may have been taken, and its answer lost."""
    if not all(partition.is_loaded for partition in table.partitions):
        yield f"a tablet of {TABLE} is unreadable"
        return
    for session, sequence in owed.batches.items():
        taken = max((batch.sequence for batch in batches_taken(table.partitions, session).values()), default=-1)
        if taken < sequence:
            yield f"session {session} has batch {taken}, not {sequence}"


async def _compare_staged(table: Topic, staged: Staged, book: Book) -> list[str]:
    piece = Piece.named(staged.name)
    server, schema = table.partitions[piece.partition], typed_schema_of(table)
    assert schema is not None
    key = piece.key(*staged.fence[:2])
    if server.staged.size_of(key) is None:
        return [f"the piece {staged.name} is gone"]
    try:
        rows = [decode_row(schema, one.key, one.value) for one in decode_records(await server.staged.read(key))]
    except _CANNOT_READ as cannot:
        return [f"the piece {staged.name}: {cannot!r}"]
    found = [{"n": row["n"], "note": row["note"], "data": _bytes_of(row["data"])} for row in rows]
    sent = [book.sent[number].content for number in staged.numbers]
    return [] if found == sent else [f"the piece {staged.name} has other rows"]


def _bytes_of(shown: Any) -> bytes | None:
    """The bytes of a value of type string as a row shows it."""
    if isinstance(shown, dict):
        return b64decode(shown["base64"])
    return None if shown is None else shown.encode()
