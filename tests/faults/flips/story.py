"""A short life of a cell, what it acknowledged, and the directories that a kill, a power cut and a clean end leave."""

import asyncio
import copy
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from pqbroker.broker.services.cells.cell_owner import OpenCell, open_cell
from pqbroker.conf.broker import BrokerSettings
from pqbroker.pq.log.consumers import ConsumerOffset
from pqbroker.protocol.produced_batches import check_produced
from pqbroker.protocol.records import Record, encode_batch
from pqbroker.storage.disk.commits.commit_scan import scan_commits
from pqbroker.storage.disk.commits.zero_sectors import SECTOR_BYTES
from pqbroker.storage.disk.rocks import RocksEngine
from tests.faults.hostile import NAMES, payload
from tests.pq.rig import START_MS
from tests.storage.cells import copy_alive, seed_of

PARTITIONS = 2
COVERED_FROM = 16
"""Where the bytes of a batch begin that no start changes."""
SETTINGS = replace(BrokerSettings(), ballast_bytes=0)
KILLED, CUT, STOPPED = "killed", "power cut", "stopped"
_BATCH_BYTES_MAX = 1 << 30
_SIZES = (40, 600, 3_000, 9_000, 40_000, 120_000)
_ROUNDS = 4
_IDLE_S = 0.15
Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Owed:
    """What was acknowledged: batches by partition with their base offsets, and groups' offsets."""

    batches: dict[Place, list[tuple[int, bytes]]] = field(default_factory=dict)
    offsets: dict[str, dict[Place, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Span:
    """The bytes of a round, payload and rows; the path is relative to the directory."""

    path: Path
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Left:
    """A directory, how it was left, what it owes, and the last round that was acknowledged, if it stands in a file."""

    directory: Path
    how: str
    owed: Owed
    last: Span | None


def live(scratch: Path, source: random.Random) -> list[Left]:
    """Let a cell live and end in three ways."""
    return asyncio.run(_live(scratch, source))


def engine(path: Path) -> RocksEngine:
    return RocksEngine(path, ballast_bytes=0, segment_bytes=1 << 20, read_threads=1)


async def opened_cell(path: Path) -> OpenCell:
    """The cell, open. EngineError, CommitRefused."""
    return await open_cell(engine(path), SETTINGS, lambda: START_MS)


async def close(opened: OpenCell) -> None:
    opened.coordinators.close()
    if not opened.cell.lost.done():
        await opened.stop()
    await opened.cell.close()


async def _live(scratch: Path, source: random.Random) -> list[Left]:
    path, owed = scratch / "whole", Owed()
    for _ in range(source.randint(1, 2)):
        opened = await opened_cell(path)
        for name in NAMES:
            if opened.topics.get(name) is None:
                settings = {"pq.partitions.per.tablet": str(source.randint(1, 2)), "pq.low.watermark.bytes": "60000"}
                await opened.topics.create(name, PARTITIONS, settings)
        for _ in range(_ROUNDS):
            await _write(opened, owed, source)
            await _commit(opened, owed, source)
        await _write(opened, owed, source)
        if source.random() < 0.5:
            await asyncio.sleep(_IDLE_S)
        killed = _left(path, scratch / "killed", KILLED, copy.deepcopy(owed))
        await _write(opened, owed, source)
        cut = _left(path, scratch / "cut", CUT, killed.owed)
        _tear(cut.directory, source)
        last = spans(path)
        await close(opened)
        ends = [span for span in last if span.path.suffix == ".segment"]
        stopped = Left(path, STOPPED, copy.deepcopy(owed), ends[-1] if ends else None)
    return [killed, cut, stopped]


def _left(path: Path, directory: Path, how: str, owed: Owed) -> Left:
    copy_alive(path, directory)
    found = spans(directory)
    return Left(directory, how, owed, found[-2 if how == CUT else -1])


def spans(directory: Path) -> list[Span]:
    """Every round of a directory that stands in a file, in order."""
    seed = seed_of(directory)
    files = [*directory.glob("blobs/*.segment"), *directory.glob("index-*/commits/*.commits")]
    records = [each for file in files for each in scan_commits(file, 0, seed).records]
    records.sort(key=lambda each: each.header.number)
    return [
        Span(
            each.path.relative_to(directory),
            each.position - each.header.payload_bytes,
            each.position + each.header.record_bytes,
        )
        for each in records
    ]


def _tear(directory: Path, source: random.Random) -> None:
    """Leave the last round as a power cut does before its sync: without a few of its sectors."""
    span = spans(directory)[-1]
    file = directory / span.path
    content = bytearray(file.read_bytes())
    written = [piece for piece in _sectors(span) if any(content[piece[0] : piece[1]])]
    for begin, end in source.sample(written, source.randint(1, len(written))):
        content[begin:end] = bytes(end - begin)
    file.write_bytes(content)
    for end_file in directory.glob("index-*/commits/*.end"):
        end_file.unlink()  # it may have said that the round was synced, which this one was not


def _sectors(span: Span) -> Iterator[tuple[int, int]]:
    for start in range(span.begin - span.begin % SECTOR_BYTES, span.end, SECTOR_BYTES):
        yield max(start, span.begin), min(start + SECTOR_BYTES, span.end)


async def _write(opened: OpenCell, owed: Owed, source: random.Random) -> None:
    """One round, or a few, of batches to several partitions at once."""
    places = [(name, index) for name in NAMES for index in range(PARTITIONS)]
    chosen = source.sample(places, source.randint(1, len(places)))
    batches = [_batch(source) for _ in chosen]
    done = await asyncio.gather(*(_append(opened, *item) for item in zip(chosen, batches, strict=True)))
    for place, batch, offset in zip(chosen, batches, done, strict=True):
        owed.batches.setdefault(place, []).append((offset, bytes(batch[COVERED_FROM:])))


async def _append(opened: OpenCell, place: Place, batch: bytearray) -> int:
    topic = opened.topics.get(place[0])
    assert topic is not None
    view = memoryview(batch)
    return (await topic.partitions[place[1]].write(view, check_produced(view, _BATCH_BYTES_MAX))).base_offset


def _batch(source: random.Random) -> bytearray:
    records = [
        Record(0, START_MS, source.choice((None, *(name.encode() for name in NAMES))), payload(source, size))
        for size in source.sample(_SIZES, source.randint(1, 3))
    ]
    return encode_batch(records)


async def _commit(opened: OpenCell, owed: Owed, source: random.Random) -> None:
    group, place = source.choice(NAMES), (source.choice(NAMES), source.randrange(PARTITIONS))
    offset = owed.offsets.get(group, {}).get(place, 0) + 1
    outcomes = await opened.topics.offsets.commit(group, {place: ConsumerOffset(offset, 0, "", START_MS)})
    assert outcomes == {place: None}, outcomes
    owed.offsets.setdefault(group, {})[place] = offset
