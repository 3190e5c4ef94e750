"""A reshard that a crash cut short behind its commit: rows have their earlier numbers until the next start."""

import asyncio
from dataclasses import replace
from pathlib import Path

from pqbroker.broker.services.cells.cell_owner import OpenCell, open_cell
from pqbroker.conf.broker import BrokerSettings
from pqbroker.doctor.checkup import examine
from pqbroker.doctor.findings import Finding, Findings, Weight
from pqbroker.storage.disk.rocks import RocksEngine
from pqbroker.storage.tablets.mounted_attributes import MountedAttributes
from pqbroker.storage.tablets.scheme_state import Resharded, TableRecord, TopicRecord
from pqbroker.storage.tablets.scheme_topics import TopicChanges
from tests.pq.rig import batch, read_all, write

COLUMN = {"name": "id", "type": "int64", "required": True, "from": "value"}
TABLE = TableRecord((COLUMN,), {}, MountedAttributes.collect([{}] * 2), ("mounted", "mounted"), (0, 0))


async def opened(data: Path) -> OpenCell:
    return await open_cell(RocksEngine(data, segment_bytes=1 << 20), BrokerSettings(), lambda: 1_700_000_000_000)


async def closed(cell: OpenCell) -> None:
    await cell.stop()
    await cell.cell.close()


def look(data: Path) -> list[Finding]:
    findings = Findings(lambda size: None)
    asyncio.run(examine(data, {}, findings, lambda total: None))
    return findings.found


def resharded(record: TopicRecord) -> Resharded:
    assert record.table is not None
    states, rows = ("mounted",) * 4, (0, 0, 0, 0)
    table = replace(record.table, states=states, first_rows=rows, epoch_base=9)
    return Resharded(replace(record, table=table), (0, None, None, 1))


async def fill(data: Path) -> None:
    cell = await opened(data)
    topic = await cell.topics.create("t", 2, {"pq.partitions.per.tablet": "1"}, TABLE)
    await write(topic.partitions[1], batch(b"a"), batch(b"b", producer=(7, 0, 0)))
    await TopicChanges(cell.scheme, lambda: 0).reshard("t", resharded)
    await closed(cell)


async def read(data: Path) -> list[tuple[int, bytes | None]]:
    cell = await opened(data)
    topic = cell.topics.get("t")
    assert topic is not None
    found = await read_all(topic.partitions[3])
    assert [server.leader_epoch for server in topic.partitions] == [11, 10, 10, 11]
    await closed(cell)
    return found


def test_the_doctor_calls_earlier_numbers_harmless_and_a_start_ends_them(tmp_path: Path) -> None:
    data = tmp_path / "data"
    asyncio.run(fill(data))
    assert {finding.weight for finding in look(data)} == {Weight.HARMLESS}
    assert any("number from before a reshard" in finding.what for finding in look(data))
    assert asyncio.run(read(data)) == [(0, b"a"), (1, b"b")]
    assert look(data) == []
