"""A directory whose index has many blocks, what is in it, and whether a start on a damaged copy tells the truth.

The truth: the cell is refused, with file and cure, and nothing in the directory changed; or it is served, and each
partition and group is complete or refused with a clear error. A second start says the same, and the doctor names it.
"""

import asyncio
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from pqbroker.broker.services.cells.cell_owner import OpenCell, open_cell
from pqbroker.broker.services.coordination.classic.messages import Join, Joined, Sync, Synced
from pqbroker.broker.services.coordination.classic.states import GroupState
from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.storage import MAIN_POOL
from pqbroker.pq.log.cleaned_log import CleanedLog
from pqbroker.pq.log.consumers import ConsumerOffset
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.records import read_header
from pqbroker.storage.disk.preview import preview
from pqbroker.storage.disk.rocks import RocksEngine
from pqbroker.storage.engine import EngineError
from pqbroker.storage.tablets.coordinator_rows import MemberProtocol
from pqbroker.storage.tablets.start_check import check_start
from tests.faults.diagnosis import named_damages
from tests.pq.rig import START_MS, batch, query, read

TOPICS = 5
GROUPS = 24
OPENINGS = 3
_COVERED_FROM = 16
"""Where the bytes of a batch begin that no start changes."""
_BODIES = {"pq.low.watermark.bytes": "20000"}
"""One topic has bodies, the others have only heads."""
_ALONE = (700, 7_000, 7_000)
"""A value in its key's row; a blob in the index; another, which has a block there to itself."""
_SETTINGS = replace(BrokerSettings(), ballast_bytes=0, group_initial_rebalance_delay_ms=0)
_AT = " at "
TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Written:
    """Everything that was acknowledged: batches by partition with base offsets, generations and offsets of groups."""

    batches: dict[TopicPartition, list[tuple[int, bytes]]] = field(default_factory=dict)
    generations: dict[str, int] = field(default_factory=dict)
    offsets: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    doubtful: dict[TopicPartition, bytes] = field(default_factory=dict)
    """Writes under way when the cell was lost: each may be stored, or not."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Fate of a damaged directory: `refused` whole (why), or else the refused parts; `named` by the doctor."""

    refused: str
    unreadable: frozenset[str]
    named: tuple[str, ...]
    was_lost: bool = False


def build(path: Path) -> Written:
    """A directory of topics with one and several partitions to a tablet, groups and offsets, over several openings."""
    return asyncio.run(_build(path))


async def _build(path: Path) -> Written:
    written = Written()
    for opening in range(OPENINGS):
        opened = await _open(_engine(path))
        for number in range(TOPICS):
            name = f"topic-{number}"
            topic = opened.topics.get(name) or await opened.topics.create(
                name, 3, {"pq.partitions.per.tablet": str(1 + 2 * (number % 2)), **(_BODIES if not number else {})}
            )
            for server in topic.partitions:
                await _fill(written, (name, server.index), server, opening)
        for number in range(GROUPS):
            await _commit(opened, written, f"group-{number}", opening)
        await _close(opened)
    return written


async def _fill(written: Written, place: TopicPartition, server: PartitionServer, opening: int) -> None:
    """Batches that are rows of the index, and at times one that lies in a segment; one alone in the last topic."""
    sizes: tuple[int, ...] = tuple(20_000 if opening == number else 700 for number in range(5))
    if place[0] == f"topic-{TOPICS - 1}":
        sizes = (_ALONE[place[1]],) if opening == OPENINGS - 1 else ()
    for number, size in enumerate(sizes):
        content = hashlib.shake_128(repr((place, opening, number)).encode()).digest(size)
        view, header = batch(content, producer=(7, 0, opening * 5 + number))
        done = await server.write(view, header)
        written.batches.setdefault(place, []).append((done.base_offset, bytes(view[_COVERED_FROM:])))
    if sizes:
        assert await server.replace_bodies((), CleanedLog(1, START_MS))


async def _commit(opened: OpenCell, written: Written, group_id: str, opening: int) -> None:
    place = (f"topic-{opening % TOPICS}", opening % 3)
    outcomes = await opened.topics.offsets.commit(group_id, {place: ConsumerOffset(opening + 1, 1, "m" * 50, START_MS)})
    assert outcomes == {place: None}, outcomes
    written.offsets.setdefault(group_id, {})[place] = opening + 1
    joined: asyncio.Future[Joined] = asyncio.get_running_loop().create_future()
    synced: asyncio.Future[Synced] = asyncio.get_running_loop().create_future()
    protocols = (MemberProtocol("range", b"x" * 200 + bytes((opening,))),)
    request = Join("", f"{group_id}-static", "consumer", protocols, 1_800_000, 1_800_000, f"{group_id}-{opening}")
    opened.coordinators.join(group_id, request, joined.set_result)
    answer = await joined
    assert answer.error is ErrorCode.NONE, answer
    sync = Sync(answer.member_id, f"{group_id}-static", answer.generation, assignments={answer.member_id: b"all"})
    opened.coordinators.sync(group_id, sync, synced.set_result)
    assert (await synced).error is ErrorCode.NONE
    written.generations[group_id] = answer.generation


def judge(path: Path, written: Written, *, starts: int = 2) -> Verdict:
    """Start on a damaged directory, then ask the doctor. AssertionError unless all of it is the truth."""
    return asyncio.run(_judge(path, written, starts))


async def _judge(path: Path, written: Written, starts: int) -> Verdict:
    before = tree(path)
    refused = await _refusal(path)
    if refused:
        assert tree(path) == before, f"refused, and yet changed: {refused}"
        assert await _refusal(path) == refused
        named = await named_damages(path)
        assert named, f"refused, and the doctor finds nothing: {refused}"
        assert str(path) in refused, f"it names no file: {refused}"
        assert any(cure in refused for cure in ("restore", "run th", "choose")), f"it names no cure: {refused}"
        return Verdict(refused, frozenset(), named)
    batches = {place: list(known) for place, known in written.batches.items()}
    written = replace(written, batches=batches, doubtful={})
    unreadable, was_lost = await _serve(path, written)
    for _ in range(starts - 1):
        assert not await _refusal(path), "the first start was served, the second is refused"
        again, _ = await _serve(path, written)
        assert again >= unreadable, f"damage was forgotten: {unreadable - again}"
    named = await named_damages(path)
    assert named or not unreadable, f"the doctor finds nothing, but {unreadable} was refused"
    return Verdict("", unreadable, named, was_lost)


async def _refusal(path: Path) -> str:
    """Why the directory is refused untouched; nothing where it is not."""
    try:
        await preview(path, {MAIN_POOL: path / "blobs"}, check_start)
    except EngineError as refusal:
        return str(refusal)
    return ""


async def _serve(path: Path, written: Written) -> tuple[frozenset[str], bool]:
    """Ask for everything that was written; return what was refused, and whether the cell was lost meanwhile."""
    engine = _engine(path)
    opened = await _open(engine)
    files = _segments(path)
    asked = await _ask(opened, written)
    was_lost = opened.cell.lost.done()
    if was_lost:  # RocksDB's compaction met what no start reads: opened again, it lets it be
        await _close(opened)
        opened = await _open(engine)
        assert opened.cell.quarantine.is_damaged
        asked = await _ask(opened, written)
        assert not opened.cell.lost.done(), "lost again and again"
    is_damaged = opened.cell.quarantine.is_damaged
    whole = {place for place in asked if _AT not in place}  # a single blob's damage is its own
    assert is_damaged or not whole, f"{whole} is refused in a cell that is thought sound"
    await _close(opened)
    if is_damaged:
        assert files <= _segments(path), "a segment was removed"
    return asked | {place for place in opened.cell.quarantine.damages if was_lost}, was_lost


async def _ask(opened: OpenCell, written: Written) -> frozenset[str]:
    refused: set[str] = set()
    for place, known in written.batches.items():
        topic = opened.topics.get(place[0])
        assert topic is not None, f"{place[0]} is gone"
        server = topic.partitions[place[1]]
        doubtful = written.doubtful.pop(place, None)
        if doubtful is not None and server.end_offset > known[-1][0] + 1:
            known.append((known[-1][0] + 1, doubtful))
        refused |= await _ask_partition(server, place, known)
        if opened.cell.lost.done() and f"{place[0]}-{place[1]} writes" in refused:
            written.doubtful[place] = bytes(batch(b"more", producer=(-1, -1, -1))[0][_COVERED_FROM:])
    for group_id, generation in written.generations.items():
        refused |= _ask_group(opened, written, group_id, generation)
    return frozenset(refused)


async def _ask_partition(server: PartitionServer, place: TopicPartition, known: list[tuple[int, bytes]]) -> set[str]:
    """Read all, then write one more."""
    name = f"{place[0]}-{place[1]}"
    view, header = batch(b"more", producer=(-1, -1, -1))
    if server.state.unreadable is not None:
        with pytest.raises(KafkaError) as refusal:
            await server.write(view, header)
        assert refusal.value.code is ErrorCode.KAFKA_STORAGE_ERROR, refusal.value
        with pytest.raises(KafkaError) as refusal:
            server.read(query(server, 0, 1))
        assert refusal.value.code is ErrorCode.CORRUPT_MESSAGE, refusal.value
        return {name}
    refused: set[str] = set()
    assert server.start_offset == 0, f"{name} begins at {server.start_offset}"
    assert server.end_offset == known[-1][0] + 1, f"{name} ends at {server.end_offset}, not {known[-1][0] + 1}"
    for base_offset, content in known:
        try:
            pieces = await read(server, base_offset, 1)
        except KafkaError as error:
            _expect(error, ErrorCode.CORRUPT_MESSAGE, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            refused.add(f"{name}{_AT}{base_offset}")
            continue
        found = b"".join(pieces.in_memory())
        served = read_header(memoryview(found), 0)
        assert served.base_offset == base_offset, f"{name} serves {served.base_offset} for {base_offset}"
        assert found[_COVERED_FROM : served.size_bytes] == content, f"{name} serves other bytes at {base_offset}"
    try:
        done = await server.write(view, header)
        known.append((done.base_offset, bytes(view[_COVERED_FROM:])))
    except KafkaError as error:
        _expect(error, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        refused.add(f"{name} writes")
    return refused


def _ask_group(opened: OpenCell, written: Written, group_id: str, generation: int) -> set[str]:
    refused: set[str] = set()
    try:
        described = opened.coordinators.describe(group_id)
        assert described is not None, f"{group_id} is gone"
        assert described.state is GroupState.STABLE
        assert described.image.generation == generation, f"{group_id} is in generation {described.image.generation}"
    except KafkaError as error:
        _expect(error, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
        refused.add(group_id)
    for (asked, index), offset in written.offsets[group_id].items():
        topic = opened.topics.get(asked)
        assert topic is not None
        server = topic.partitions[index]
        if server.state.unreadable is None:
            state = server.consumers.get(group_id)
            assert state is not None, f"{group_id} has no offset in {asked}-{index}"
            assert state.offset == offset
    return refused


def _engine(path: Path) -> RocksEngine:
    return RocksEngine(path, ballast_bytes=0, index_blob_bytes_max=_SETTINGS.index_blob_bytes_max)


async def _open(engine: RocksEngine) -> OpenCell:
    return await open_cell(engine, _SETTINGS, lambda: START_MS)


async def _close(opened: OpenCell) -> None:
    opened.coordinators.close()
    if not opened.cell.lost.done():
        await opened.stop()
    await opened.cell.close()


def _expect(error: KafkaError, *codes: ErrorCode) -> None:
    assert error.code in codes, error


def _segments(path: Path) -> set[str]:
    return {file.name for file in path.rglob("*.segment")}


def tree(path: Path) -> Mapping[str, bytes]:
    """Every file and what is in it, but for the lock's process id."""
    return {
        file.relative_to(path).as_posix(): hashlib.blake2b(file.read_bytes()).digest()
        for file in path.rglob("*")
        if file.is_file() and file.name != "lock"
    }
