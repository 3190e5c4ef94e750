"""Power cuts at random points of a broker's life: python -m tests.faults.power --cuts 500 --seed 7

A broker works under load on a fresh directory, is told the story of the long runs (cells, a table, moves, backups),
dies twice and starts again, and all it does is recorded. Then for each point the directory is rebuilt as a power cut
there would leave it, and a broker on it must have all that was answered.
"""

import asyncio
import os
import random
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from pqbroker.cli.commands.doctor import examine_directory
from pqbroker.fixture.process import BrokerProcess
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.protocol.records import batches
from pqbroker.testing import BrokerFailedError, broker
from tests.faults.power.disk import Directory, Disk, File, cut_power
from tests.faults.power.expectation import Found, Owed, nothing_found
from tests.faults.power.recording import Event, build, environment, events, resident
from tests.faults.power.workload import GROUP, PARTITIONS, TOPIC, Book, load
from tests.faults.story.book import Book as Told
from tests.faults.story.book import Owed as Promised
from tests.faults.story.reading import close, opened_cell, read_back, restore_all
from tests.faults.story.story import SETTINGS, BrokerGone, Story
from tests.pq.rig import read
from tests.support.in_memory import in_memory
from tests.support.wire import EARLIEST, Wire

_REQUESTS = 120
"""Of each producer in one life of the broker."""
_LIVES = ((1200, 3000), (200, 2000), None)
"""After how many events the broker kills itself: the bounds of chance; None: it is stopped in order."""
_READ_BYTES = 1 << 20
_LIMITS = {**SETTINGS, "log.retention.check.interval.ms": "300"}
_STORY_STEPS = 9
"""In one life of the broker."""
_BACKUPS_EVERY = 8
"""Events: after a cut behind one of so many the backups are restored too."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A broker's lives: the events of each, the requests it was sent, and the story that it was told."""

    root: Path
    lives: list[list[Event]]
    book: Book
    told: Told
    begins: list[int]
    """By life, how many answers of the story came before it."""


@dataclass(slots=True)
class Outcome:
    """Counts of a run: cuts, the events between which they fell, how many writes were acknowledged by the last one."""

    cuts: int = 0
    events: int = 0
    acknowledged: int = 0
    answers: int = 0
    backups: int = 0
    """Restored and read."""


@dataclass(frozen=True, slots=True)
class Chapter:
    """The story as far as it was answered."""

    book: Told
    answers: int

    @property
    def owed(self) -> Promised:
        return self.book.owed(self.answers)


def record(scratch: Path, seed: int) -> Recorded:
    """Let a broker live and die under load, and check that the recording explains every byte it left."""
    source = random.Random(seed)
    library = build(scratch)
    root, book, told = scratch / "disk", Book(), Told()
    root.mkdir()
    node = BrokerProcess(root / "data", _LIMITS, scratch / "log", "info")
    story = Story(lambda: node.http, told, random.Random(source.random()))
    recorded = Recorded(root, [], book, told, [])
    for number, bounds in enumerate(_LIVES):
        into = scratch / f"life-{number}"
        die_at = None if bounds is None else source.randint(*bounds)
        recorded.begins.append(len(told.answers))
        _live(node, scratch / "log", _Clients(book, source, story), environment(library, root, into, die_at))
        recorded.lives.append(list(events(into)))
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
        with tempfile.TemporaryDirectory(prefix="pqbroker-cut-", dir=in_memory()) as place:
            cut_power(disk.root, Path(place), random.Random(f"{seed}:{point}"))
            story = Chapter(recorded.told, owed.answers)
            try:
                _check(Path(place, "data"), owed, story, by_process=point in by_process)
                if not point % _BACKUPS_EVERY:
                    outcome.backups += restore_all(Path(place, "data", "backups"), story.book, story.owed.backups)
            except Exception as failure:
                kept = scratch / f"cut-{point}"
                kept.mkdir()
                cut_power(disk.root, kept, random.Random(f"{seed}:{point}"))
                raise AssertionError(f"seed {seed}, power cut after event {point}, see {kept}: {failure}") from failure
        outcome.acknowledged, outcome.answers = len(owed.acknowledged), owed.answers
    return outcome


def _check(data: Path, owed: Owed, story: Chapter, *, by_process: bool) -> None:
    """Look at what a power cut left, then serve it."""
    if owed.acknowledged:
        found = examine_directory(data, {})
        assert not found.damages, found.found
    owed.check(_serve(data, story) if by_process else asyncio.run(_open(data, story)))


def _at(recorded: Recorded, points: list[int]) -> Iterator[tuple[int, tuple[Disk, Owed]]]:
    """The disk, and what the broker owes, at each point."""
    disk, owed = Disk(recorded.root), Owed(recorded.book)
    wanted = set(points)
    number = 0
    for life, begin in zip(recorded.lives, recorded.begins, strict=True):
        disk.start_process()
        owed.start_process(begin)
        for event in life:
            disk.take(event)
            owed.take(event)
            number += 1
            if number in wanted:
                yield number, (disk, owed)


class _Clients(NamedTuple):
    book: Book
    source: random.Random
    story: Story


def _live(node: BrokerProcess, log: Path, clients: _Clients, variables: Mapping[str, str]) -> None:
    """One life of the broker, under load."""
    log.touch()
    with patch.dict(os.environ, variables), suppress(BrokerFailedError):
        node.start()
    if not node.running:
        node.kill()
        return
    telling = threading.Thread(target=_tell, args=(clients.story,))
    telling.start()
    asyncio.run(load(node.kafka, clients.book, clients.source, _REQUESTS))
    telling.join()
    if "RECORD_DIE_AT" in variables:
        node.kill()
    else:
        node.stop()


def _tell(story: Story) -> None:
    """Tell a piece of the story, or as much as the broker lives to hear."""
    with suppress(BrokerGone):
        story.begin()
        for number in range(_STORY_STEPS):
            if number % 3 == 1:
                story.move()
            if number % 3 == 2:
                story.back_up()
            story.write()


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


async def _open(data: Path, story: Chapter) -> Found:
    """Return what a broker of this process finds in the directory: quicker than a process of its own."""
    opened = await opened_cell(data)
    try:
        topics, missing = frozenset(opened.topics.names()), await read_back(opened, story.book, story.owed)
        topic = opened.topics.get(TOPIC)
        if topic is None:
            return Found(nothing_found().logs, {}, topics, missing)
        logs = {server.index: (server.start_offset, await _batches(server)) for server in topic.partitions}
        offsets = {place[1]: state.offset for place, state in opened.topics.offsets.of(GROUP).items()}
        return Found(logs, offsets, topics, missing)
    finally:
        await close(opened)


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


def _serve(data: Path, story: Chapter) -> Found:
    """Return what a broker serves that is started on the directory, and what it then leaves there."""
    logs = {}
    with broker(data, _LIMITS) as node, Wire(node.kafka) as wire:
        for partition in range(PARTITIONS):
            error_code, start = wire.offset(TOPIC, partition, EARLIEST)
            logs[partition] = (0, []) if error_code else (start, [batch for _, batch in wire.log(TOPIC, partition)])
    found = asyncio.run(_open(data, story))
    return Found(logs, found.offsets, found.topics, found.missing)
