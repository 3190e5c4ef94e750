"""docs/on-disk.md is true: whole directories are taken apart by what it says, and no byte is left without a name."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from pqbroker.broker.services.cells.cell_owner import open_cell
from pqbroker.conf.broker import BrokerSettings
from pqbroker.pq.log.cleaned_log import CleanedLog
from pqbroker.pq.log.consumers import ConsumerOffset
from pqbroker.pq.log.keys import part_key
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.storage.blobs.blob_id import BlobId
from pqbroker.storage.blobs.blob_storage import BlobStorage
from pqbroker.storage.blobs.garbage import Collection
from pqbroker.storage.disk.rocks import RocksEngine
from pqbroker.storage.engine import Batch
from pqbroker.storage.ids import TabletId
from pqbroker.storage.kv.commands import CopyRange, IncrementGeneration, Write
from pqbroker.storage.tablets.base_tablet import BaseTablet
from pqbroker.storage.tablets.row_sets import RowChanges
from pqbroker.storage.tablets.tablet import TabletType
from tests.pq.rig import START_MS, batch, transactional
from tests.support.on_disk import (
    ROWS,
    Fields,
    Row,
    blob_id_text,
    explain_body,
    explain_commits,
    explain_end,
    explain_log,
    explain_row,
    explain_segment,
    read_value,
)
from tests.support.on_disk_page import BEGIN, PAGE, example_directory, example_page, index_rows, rounds_kept

LONER, LOGGER = TabletId(40), TabletId(41)
"""Tablets with a kept blob, and with a base tablet that makes snapshots."""
BLOBS = ("head blob", "body blob", "part of a batch")
KINDS = {
    "blob", "segment", "commit number", "cell fact", "tablet", "block", "barriers", "keep flag", "user generation",
    "body blob", "head blob", "part of a batch", "partition", "producer", "consumer", "aborted transaction",
    "cleaning",
}  # fmt: skip


@pytest.mark.spec("A.3", "B.1", "K.6")
def test_the_worked_example_is_what_is_on_the_disk(tmp_path: Path) -> None:
    example_directory(tmp_path / "data")
    assert PAGE.read_text(encoding="utf-8") == example_page(tmp_path / "data"), (
        "run: python -m tests.support.on_disk_page"
    )


async def make_busy(path: Path) -> None:
    """A directory with every kind of row, after two starts."""
    for _ in range(2):
        opened = await open_cell(
            RocksEngine(path, segment_bytes=1 << 20, ballast_bytes=1 << 20), BrokerSettings(), lambda: START_MS
        )
        cell, groups = opened.cell, opened.topics
        if groups.get("a") is None:
            await groups.create("a", 3, {"pq.low.watermark.bytes": "20000"})
            await groups.create("gone", 1, {})
            await groups.delete("gone")
        for partition in partitions(groups):
            await fill(partition)
        await groups.offsets.commit("readers", {("a", 0): ConsumerOffset(3, 1, "metadata", START_MS)})
        await change_keys(partitions(groups)[0])
        await cell.create_tablets([(LOGGER, TabletType.COORDINATOR, "logger")])
        await log(BaseTablet(cell.storage(LOGGER), log_blobs_max=3))
        await opened.stop()
        await cell.close()
    await keep_one(path)


def partitions(groups: Any) -> list[PartitionServer]:
    found: list[PartitionServer] = groups.get("a").partitions
    return found


async def fill(partition: PartitionServer) -> None:
    start = partition.end_offset
    sizes = (100, 3_000, 900, 40_000, 70_000, 100, 5_000)
    for number, size in enumerate(sizes):
        await partition.write(*batch(size=size, producer=(5, 0, number + (len(sizes) if start else 0))))
    for producer_id in (6, 7):
        await partition.write(*transactional(b"aborted or open", producer=(producer_id, 0, 1 if start else 0)))
    await partition.end_transaction(6, 0, 3, is_commit=False)
    assert await partition.replace_bodies((), CleanedLog(1, START_MS))


async def change_keys(partition: PartitionServer) -> None:
    """Copies under a partition that nobody reads, another user generation, and a batch of which one part has come."""
    tablet, _ = partition.consumers.plan("nobody", None)
    partition.consumers.settle("nobody", None, is_durable=False)
    await tablet.execute([CopyRange(None, b"d0000000000_", b"d0000000009_")])
    await tablet.execute([IncrementGeneration()])
    await tablet.execute([Write(part_key(0, partition.end_offset, 0), [bytes(2000)], 2000)])


async def log(tablet: BaseTablet) -> None:
    await tablet.start()
    if not tablet.row_sets:
        await tablet.change(lambda changes: changes.create_row_set("t", [("k", "int")], ["v"]))

    def put(changes: RowChanges) -> None:
        key = len(changes.row_sets["t"])
        changes.put("t", (key,), {"v": [None, True, -key, 0.5, "text", b"bytes", {"more": 1 << 40}]})

    for _ in range(7):
        await tablet.change(put)
    await tablet.stop()


async def keep_one(path: Path) -> None:
    """Of three blobs one is kept, one is not, and one has no flag."""
    shard = await RocksEngine(path, ballast_bytes=0).open()
    await shard.release()
    blobs = BlobStorage(shard, shard.pools)
    puts = Batch()
    kept, given_up, _ = [blobs.put(puts, BlobId(LONER, 2, 1, 1, cookie, 5), [b"hello"], 0) for cookie in range(3)]
    await shard.commit(puts)
    await blobs.collect_garbage(Collection(LONER, 2, 1, 1, (1, 1), keep=(kept,), do_not_keep=(given_up,)))
    await shard.close()


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("busy") / "data"
    with rounds_kept():
        asyncio.run(make_busy(path))
    return path


@pytest.fixture(scope="module")
def rows(busy: Path) -> list[tuple[bytes, Row]]:
    return [(key, explain_row(key, value)) for key, value in index_rows(busy)]


def value(row: Row, name: str) -> int:
    (found,) = [raw for field, raw, _ in row.value.found if field == name]
    return int.from_bytes(found, "big")


@pytest.mark.spec("A.3", "B.1", "K.6")
def test_every_row_has_a_meaning_and_every_kind_is_met(rows: list[tuple[bytes, Row]]) -> None:
    assert {row.kind for _, row in rows} == KINDS
    forms = {value(row, "form") for _, row in rows if row.kind == "body blob"}
    assert forms == {2, 3}


def test_every_byte_of_the_segments_has_a_meaning_and_the_index_knows_it(
    busy: Path, rows: list[tuple[bytes, Row]]
) -> None:
    found = {}
    for file in (busy / "blobs").glob("*.segment"):
        generation, number = (int(part, 16) for part in file.stem.split("-"))
        position = 0
        for text, record in explain_segment(file.read_bytes(), cell_of(busy)):
            if text != ROWS:
                found[text, generation, number, position] = record.found[-1][1]
            position += record.position
    named = {
        (blob_id_text(key[1:]), *(value(row, name) for name in ("segment generation", "segment number", "position")))
        for key, row in rows
        if row.kind == "blob" and value(row, "kind") == 1
    }
    assert found.keys() >= named
    ends = {
        (int.from_bytes(key[-12:-4], "big"), int.from_bytes(key[-4:], "big")): value(row, "bytes of records")
        for key, row in rows
        if row.kind == "segment"
    }
    sizes = {
        tuple(int(part, 16) for part in file.stem.split("-")): file.stat().st_size
        for file in (busy / "blobs").glob("*.segment")
    }
    assert ends == sizes
    bodies = {blob_id_text(raw) for _, row in rows if row.kind == "body blob" for raw in chain(row)[-1:]}
    assert bodies
    explained = [explain_body(payload) for place, payload in found.items() if place in named and place[0] in bodies]
    assert explained


def cell_of(path: Path) -> str:
    name = json.loads((path / "cell").read_text())["cell"]
    assert isinstance(name, str)
    return name


def commits(busy: Path) -> list[Fields]:
    cell = cell_of(busy)
    logs = busy.glob("index-*/commits/*.commits")
    return [record for file in logs for record in explain_commits(file.read_bytes(), cell)]


def test_every_byte_of_the_commit_log_has_a_meaning(busy: Path) -> None:
    cell, segments = cell_of(busy), (busy / "blobs").glob("*.segment")
    behind = [each for file in segments for text, each in explain_segment(file.read_bytes(), cell) if text == ROWS]
    found = commits(busy)
    assert behind
    assert len(found) > 1
    numbers = [int.from_bytes(record.found[4][1], "big") for record in (*found[1:], *behind)]
    assert len(set(numbers)) == len(numbers)


def test_every_byte_of_the_end_kept_a_second_time_has_a_meaning(busy: Path) -> None:
    last = max(int.from_bytes(record.found[4][1], "big") for record in commits(busy))
    files = {file.suffix: file for file in busy.glob("index-*/commits/*")}
    assert files.keys() == {".commits", ".end"}
    slots = explain_end(files[".end"].read_bytes(), cell_of(busy))
    assert max(int.from_bytes(slot.found[2][1], "big") for slot in slots) == last


def chain(row: Row) -> list[bytes]:
    return [raw for name, raw, _ in row.value.found if name == "blob id"]


def test_every_blob_is_named_by_a_row_or_a_log(rows: list[tuple[bytes, Row]]) -> None:
    named = {raw for _, row in rows if row.kind in BLOBS for raw in chain(row)}
    named |= {key[-24:] for key, row in rows if row.kind == "keep flag" and value(row, "flag") == 1}
    blobs = {key[1:]: row for key, row in rows if row.kind == "blob"}
    for key, row in blobs.items():
        if key[8] == 0:
            (first, previous, parts), _ = explain_log(row.value.found[-1][1])
            named |= {key, *parts, *(blob for blob in (first, previous) if blob)}
    assert blobs.keys() == named


def test_a_snapshot_is_a_list_of_operations(rows: list[tuple[bytes, Row]]) -> None:
    part = [row.value.found[-1][1] for key, row in rows if row.kind == "blob" and key[9] == 1][-1]
    operations, end = read_value(part, 0)
    assert end == len(part)
    assert operations[0] == [1, "t", [["k", "int"]], ["v"]]
    assert operations[3] == [4, "t", [2], {"v": [None, True, -2, 0.5, "text", b"bytes", {"more": 1 << 40}]}]


def test_every_field_is_in_the_document(busy: Path, rows: list[tuple[bytes, Row]]) -> None:
    document = PAGE.read_text(encoding="utf-8").partition(BEGIN)[0]
    told = set(re.findall(r"`([^`]+)`", document))
    names = {name for _, row in rows for fields in (row.key, row.value) for name, _, _ in fields.found}
    segment = next((busy / "blobs").glob("*.segment"))
    explained = [record for _, record in explain_segment(segment.read_bytes(), cell_of(busy))]
    names |= {name for record in (*explained, *commits(busy)) for name, _, _ in record.found}
    assert names - told - {"floor", "engine", "separator", "fact"} == set()


def test_every_table_of_the_scheme_is_in_the_document(rows: list[tuple[bytes, Row]]) -> None:
    lines = PAGE.read_text(encoding="utf-8").partition(BEGIN)[0].splitlines()
    log = next(row.value.found[-1][1] for key, row in rows if row.kind == "blob" and blob_id_text(key[1:])[1:3] == "1:")
    created = [operation for operation in explain_log(log)[1] if operation[0] == 1]
    assert created
    for _, table, _, columns in created:
        (line,) = [line for line in lines if line.startswith(f"| scheme | `{table}` |")]
        assert set(columns) <= set(re.findall(r"\w+", line))
