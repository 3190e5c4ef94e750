"""Bodies that took the place of others, on disk: the doctor finds nothing, and what is sent from files stays whole."""

import asyncio
from pathlib import Path
from tempfile import TemporaryFile

from pqbroker.doctor.findings import Weight
from pqbroker.pq.log.batch_run import Batches
from pqbroker.pq.log.cleaned_log import CleanedLog
from pqbroker.pq.log.keys import cleaned_key, foreign_ranges, renumbered
from pqbroker.protocol.records import batches
from pqbroker.storage.engine import Buffer
from pqbroker.storage.file_regions import FileRegion
from pqbroker.storage.kv.commands import INLINE, Write
from tests.doctor.test_resharded import closed, look, opened
from tests.pq.rig import KIB, MIB, batch, check_crc, query, table_that_keeps_facts, write
from tests.pq.serving.test_replaced_bodies import consumed, replace


async def _fill(data: Path) -> None:
    cell = await opened(data)
    config = {"retention.ms": "-1", "pq.low.watermark.bytes": str(100 * KIB)}
    topic = await cell.topics.create("t", 1, config, table_that_keeps_facts(1))
    server = topic.partitions[0]
    for number in range(60):
        await write(server, batch(b"%06d" % number + bytes(10 * KIB)))
    assert await replace(server, 0, 3, lambda row: row % 5 == 0)
    assert await replace(server, 1, 2, lambda row: False)
    await closed(cell)


async def _check(data: Path) -> None:
    cell = await opened(data)
    topic = cell.topics.get("t")
    assert topic is not None
    first, second = list(topic.partitions[0].state.bodies.spans())[:2]
    expected = [row for row in range(60) if (row < first[1] and row % 5 == 0) or row >= second[1]]
    assert await consumed(topic.partitions[0]) == expected
    await closed(cell)


def test_the_doctor_finds_replaced_bodies_and_their_facts_in_order(tmp_path: Path) -> None:
    data = tmp_path / "data"
    asyncio.run(_fill(data))
    assert look(data) == []
    asyncio.run(_check(data))
    assert look(data) == []


async def _note_cleaning(data: Path, row: bytes) -> None:
    cell = await opened(data)
    topic = cell.topics.get("t")
    assert topic is not None
    await topic.tablets[topic.record.tablets[0]].kv.execute([Write(cleaned_key(0), [row], len(row), INLINE)])
    await closed(cell)


def test_the_doctor_looks_at_what_is_known_of_cleanings(tmp_path: Path) -> None:
    data = tmp_path / "data"
    asyncio.run(_fill(data))
    good = CleanedLog(60, 1, 2).encode()
    for row, told in ((good, ""), (CleanedLog(61, 1).encode(), "behind the end 60"), (b"\2" + good[1:], "version 2")):
        asyncio.run(_note_cleaning(data, row))
        found = look(data)
        assert [one.weight for one in found] == ([Weight.DAMAGE] if told else [])
        assert all(told in one.what and "last cleaning" in one.what for one in found)


def test_a_reshard_gives_the_row_of_cleanings_its_partition() -> None:
    key = cleaned_key(3)
    assert any(lo <= key < hi for lo, hi in foreign_ranges(4))
    assert not any(lo <= key < hi for lo, hi in foreign_ranges(3))
    assert renumbered(key, 4) == cleaned_key(4)


async def _write(data: Path) -> None:
    cell = await opened(data)
    config = {"retention.ms": "-1", "pq.low.watermark.bytes": str(4 * MIB)}
    server = (await cell.topics.create("t", 1, config)).partitions[0]
    for number in range(300):
        await write(server, batch(b"%06d" % number + bytes(100 * KIB)))
    await closed(cell)


async def _send(data: Path) -> None:
    cell = await opened(data)
    topic = cell.topics.get("t")
    assert topic is not None
    server = topic.partitions[0]
    offset = in_files = 0
    while offset < server.end_offset:
        answer = server.read(query(server, offset, MIB, in_files=True))
        found = answer if isinstance(answer, Batches) else await answer
        if any(isinstance(piece, FileRegion) for piece in found.buffers):
            in_files += 1
            if in_files == 2:
                assert await replace(server, 0, len(server.state.bodies), lambda row: row % 3 == 0)
        sent = memoryview(b"".join(map(_bytes, found.buffers)))
        assert len(sent) == found.size > 0
        for position, header in batches(sent):
            check_crc(sent[position : position + header.size_bytes])
            assert header.last_offset >= offset
            offset = header.last_offset + 1
        await asyncio.sleep(0)
    assert in_files >= 2
    assert server.state.bodies.revision == 1
    await closed(cell)


def _bytes(piece: Buffer | FileRegion) -> bytes:
    if not isinstance(piece, FileRegion):
        return bytes(piece)
    with TemporaryFile() as sink:
        while piece.size:
            piece.send(sink.fileno())
        sink.seek(0)
        return sink.read()


def test_an_answer_in_files_stays_whole_while_its_body_is_replaced(tmp_path: Path) -> None:
    asyncio.run(_write(tmp_path / "data"))
    asyncio.run(_send(tmp_path / "data"))
