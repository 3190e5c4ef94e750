"""Power cuts at random points of a broker's life: python -m tests.faults.power --cuts 500 --seed 7

A broker works under load on a fresh directory, dies twice and starts again, and all it does is recorded. Then for each
point the directory is rebuilt as a power cut there would leave it, and a broker on it must have all that was answered.
"""

import asyncio
import os
import random
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from pqbroker.broker.services.cells.cell_owner import open_cell
from pqbroker.cli.commands.doctor import examine_directory
from pqbroker.conf.broker import BrokerSettings
from pqbroker.fixture.process import BrokerProcess
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.protocol.records import batches
from pqbroker.storage.disk.rocks import RocksEngine
from pqbroker.testing import BrokerFailedError, broker
from tests.faults.power.disk import Directory, Disk, File, cut_power
from tests.faults.power.expectation import Found, Owed, nothing_found
from tests.faults.power.recording import Event, build, environment, events, resident
from tests.faults.power.workload import GROUP, PARTITIONS, TOPIC, Book, load
from tests.pq.rig import read
from tests.support.wire import EARLIEST, Wire

_REQUESTS = 120
"""Of each producer in one life of the broker."""
_LIVES = ((400, 1200), (30, 800), None)
"""After how many events the broker kills itself: the bounds of chance; None: it is stopped in order."""
_SEGMENT_BYTES = 1 << 20
_READ_BYTES = 1 << 20
_LIMITS = {"pqbroker.segment.bytes": str(_SEGMENT_BYTES), "log.retention.check.interval.ms": "300"}


@dataclass(frozen=True, slots=True)
class Recorded:
    """A broker's lives: the events of each, and the requests it was sent."""

    root: Path
    lives: list[list[Event]]
    book: Book


@dataclass(slots=True)
class Outcome:
    """What a run saw: cuts, the events between which they fell, how many writes were acknowledged by the last one."""

    cuts: int = 0
    events: int = 0
    acknowledged: int = 0


def record(scratch: Path, seed: int) -> Recorded:
    """Let a broker live and die under load, and check that the recording explains every byte it left."""
    source = random.Random(seed)
    library = build(scratch)
    root, book, lives = scratch / "disk", Book(), []
    root.mkdir()
    for number, bounds in enumerate(_LIVES):
        into = scratch / f"life-{number}"
        die_at = None if bounds is None else source.randint(*bounds)
        _live(root / "data", scratch / "log", book, source, environment(library, root, into, die_at))
        lives.append(list(events(into)))
    recorded = Recorded(root, lives, book)
    _check_recording(recorded)
    return recorded


def run(scratch: Path, recorded: Recorded, *, cuts: int, served: int, seed: int) -> Outcome:
    """Cut the power at random points. AssertionError, which names the cut, when something owed is not there."""
    source = random.Random(f"{seed}:cuts")
    total = sum(map(len, recorded.lives))
    points = sorted(source.sample(range(1, total + 1), min(cuts, total)))
    by_process = set(source.sample(points, served))
    outcome = Outcome(len(points), total)
    for point, (disk, owed) in _at(recorded, points):
        with tempfile.TemporaryDirectory(prefix="pqbroker-cut-", dir=_in_memory()) as place:
            cut_power(disk.root, Path(place), random.Random(f"{seed}:{point}"))
            try:
                _check(Path(place, "data"), owed, by_process=point in by_process)
            except Exception as failure:
                kept = scratch / f"cut-{point}"
                kept.mkdir()
                cut_power(disk.root, kept, random.Random(f"{seed}:{point}"))
                raise AssertionError(f"seed {seed}, power cut after event {point}, see {kept}: {failure}") from failure
        outcome.acknowledged = len(owed.acknowledged)
    return outcome


def _in_memory() -> str | None:
    """Where a directory takes no time to sync, if there is such a place."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _check(data: Path, owed: Owed, *, by_process: bool) -> None:
    """Look at what a power cut left, then serve it."""
    if owed.acknowledged:
        found = examine_directory(data, {})
        assert not found.damages, found.found
    owed.check(_serve(data) if by_process else asyncio.run(_open(data)))


def _at(recorded: Recorded, points: list[int]) -> Iterator[tuple[int, tuple[Disk, Owed]]]:
    """The disk, and what the broker owes, at each point."""
    disk, owed = Disk(recorded.root), Owed(recorded.book)
    wanted = set(points)
    number = 0
    for life in recorded.lives:
        disk.start_process()
        owed.start_process()
        for event in life:
            disk.take(event)
            owed.take(event)
            number += 1
            if number in wanted:
                yield number, (disk, owed)


def _live(data: Path, log: Path, book: Book, source: random.Random, variables: Mapping[str, str]) -> None:
    """One life of the broker, under load."""
    log.touch()
    node = BrokerProcess(data, _LIMITS, log, "info")
    with patch.dict(os.environ, variables), suppress(BrokerFailedError):
        node.start()
    if not node.running:
        return
    asyncio.run(load(node.kafka, book, source, _REQUESTS))
    if "RECORD_DIE_AT" in variables:
        node.kill()
    else:
        node.stop()


def _check_recording(recorded: Recorded) -> None:
    """A call that is not recorded, such as a write by mmap, would show here."""
    last = sum(map(len, recorded.lives))
    ((_, (disk, _)),) = _at(recorded, [last])
    explained, there = _live_files(disk.root), resident(recorded.root)
    assert explained.keys() == there.keys(), explained.keys() ^ there.keys()
    unlike = [name for name, content in there.items() if content != explained[name]]
    assert not unlike, f"the recording does not explain {unlike}"


def _live_files(directory: Directory, above: str = "") -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name, item in directory.history.live.items():
        if isinstance(item, File):
            found[above + name] = bytes(item.history.live)
        else:
            found |= _live_files(item, f"{above}{name}/")
    return found


async def _open(data: Path) -> Found:
    """What a broker of this process finds in the directory: quicker than a process of its own."""
    engine = RocksEngine(data, segment_bytes=_SEGMENT_BYTES, read_threads=1)
    opened = await open_cell(engine, BrokerSettings(), lambda: 1_700_000_000_000)
    try:
        topic = opened.topics.get(TOPIC)
        if topic is None:
            return Found(nothing_found().logs, {}, frozenset(opened.topics.names()))
        logs = {server.index: (server.start_offset, await _batches(server)) for server in topic.partitions}
        offsets = {place[1]: state.offset for place, state in opened.topics.offsets.of(GROUP).items()}
        return Found(logs, offsets, frozenset(opened.topics.names()))
    finally:
        await opened.stop()
        await opened.cell.close()


async def _batches(server: PartitionServer) -> list[bytes]:
    found: list[bytes] = []
    offset = server.start_offset
    while offset < server.end_offset:
        pieces = await read(server, offset, _READ_BYTES)
        data = b"".join(pieces.in_memory())
        found += [data[position : position + header.size_bytes] for position, header in batches(data)]
        assert pieces.next_offset > offset, f"nothing at {offset}, before the end at {server.end_offset}"
        offset = pieces.next_offset
    return found


def _serve(data: Path) -> Found:
    """What a broker serves that is started on the directory, and what it then leaves there."""
    logs = {}
    with broker(data, _LIMITS) as node, Wire(node.kafka) as wire:
        for partition in range(PARTITIONS):
            error_code, start = wire.offset(TOPIC, partition, EARLIEST)
            logs[partition] = (0, []) if error_code else (start, [batch for _, batch in wire.log(TOPIC, partition)])
    found = asyncio.run(_open(data))
    return Found(logs, found.offsets, found.topics)
