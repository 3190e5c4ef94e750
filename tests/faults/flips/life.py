"""A life of a broker that tells the story, and the directories that a kill, a power cut, a clean end and a backup
leave."""

import os
import random
import shutil
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pqbroker.storage.disk.commits.commit_scan import scan_commits
from pqbroker.storage.disk.commits.zero_sectors import SECTOR_BYTES
from pqbroker.storage.disk.segments import parse_segment_name
from pqbroker.testing import broker
from tests.faults.story.book import Book, Owed
from tests.faults.story.story import SETTINGS, Story
from tests.storage.cells import copy_alive, seed_of

KILLED, CUT, STOPPED, BACKUP = "killed", "power cut", "stopped", "backup"
_ROUNDS = 3
_IDLE_S = 0.15


@dataclass(frozen=True, slots=True)
class RoundBytes:
    """The bytes of a round, payload and rows; the path is relative to the directory."""

    path: Path
    begin: int
    record: int
    """Position of the record, behind the payload."""
    end: int


@dataclass(frozen=True, slots=True)
class Left:
    """A directory, how it was left, what it owes, and of each cell the last round that was acknowledged, if it stands
    in a file."""

    directory: Path
    how: str
    owed: Owed
    lasts: tuple[RoundBytes, ...]

    def copied(self, to: Path) -> Path:
        """Copy the directory, and return where the copy is."""
        return Path(shutil.copytree(self.directory, to))


def live(scratch: Path, source: random.Random, book: Book) -> list[Left]:
    """Let a broker live and end in four ways."""
    data, backups = scratch / "whole", scratch / "backups"
    with broker(data, {**SETTINGS, "pqbroker.backup.dir": str(backups)}, log_level="warning") as node:
        story = Story(lambda: node.http, book, source)
        story.begin()
        for _ in range(source.randint(0, 1)):
            _write(story, source)
            node.restart()
        _write(story, source)
        story.back_up()
        (made,) = book.answers[-1].backups
        story.write()
        if source.random() < 0.5:
            time.sleep(_IDLE_S)
        _keep_segments(data, scratch / "kept")  # before the round that may empty one, of which the cut tears a part
        killed = _left(data, scratch / "killed", KILLED, book.owed())
        cut = _cut(data, scratch / "cut", killed, story, source)
        before = _last_spans(data)
    lasts = tuple(span for span in before.values() if span.path.suffix == ".segment")
    stopped = Left(data, STOPPED, book.owed(), lasts)
    backup = Path(made.directory)
    return [killed, cut, stopped, Left(backup, BACKUP, book.owed(made.answers), tuple(_last_spans(backup).values()))]


def _write(story: Story, source: random.Random) -> None:
    """Some rounds, with a move among them."""
    moves = source.randrange(_ROUNDS)
    for number in range(_ROUNDS):
        if number == moves:
            story.move()
        story.write()


def _left(data: Path, directory: Path, how: str, owed: Owed) -> Left:
    copy_alive(data, directory)
    return Left(directory, how, owed, tuple(_last_spans(directory).values()))


def _cut(data: Path, directory: Path, killed: Left, story: Story, source: random.Random) -> Left:
    """Write more, which counts as not acknowledged: the last round of each cell is torn, of one so that it shows."""
    begun: list[tuple[Path, RoundBytes]] = []
    kept = directory.with_name("kept")
    flushed: set[Path] = set()
    while not any(_of_payload(directory, span) for _, span in begun) or flushed or _has_lost_segments(directory, kept):
        before = _index_files(data)
        _keep_segments(data, kept)
        story.write(is_transacting=False)  # no cell forgets a decision that another one has carried out
        copy_alive(data, directory)
        begun = [(cell, last) for cell, last in _last_spans(directory).items() if last not in killed.lasts]
        flushed = _index_files(directory) - before  # an index may have the last round, since that was synced
    for file in kept.rglob("*.segment"):
        if not (again := directory / file.relative_to(kept)).exists():
            shutil.copy(file, again)  # it went once a round was synced that is torn here
    shutil.rmtree(kept)
    shown = next(span for _, span in begun if _of_payload(directory, span))
    for cell, last in begun:
        written = _of_payload(directory, last) if last is shown else _written(directory, last)
        _tear(directory / last.path, source.sample(written, source.randint(1, max(1, len(written) - 1))))
        for end_file in cell.glob("index-*/commits/*.end"):
            end_file.unlink()  # it may have said that the round was synced, which this one was not
    return Left(directory, CUT, killed.owed, killed.lasts)


def _index_files(directory: Path) -> set[Path]:
    return {file.relative_to(directory) for file in directory.rglob("index-*/*.sst")}


def _keep_segments(data: Path, kept: Path) -> None:
    """Link each segment, so that one that is removed can be put back as it was then, with what was added to it."""
    for file in data.rglob("*.segment"):
        again = kept / file.relative_to(data)
        again.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError, FileNotFoundError):
            os.link(file, again)


def _has_lost_segments(directory: Path, kept: Path) -> bool:
    """Return True if a segment has come and gone since segments were kept: it went once a round was synced that may be
    torn here, and nobody can put it back."""
    for blobs in {file.parent for file in directory.rglob("*.segment")}:
        before = _sequences(kept / blobs.relative_to(directory))
        for generation, found in _sequences(blobs).items():
            begin = max(before.get(generation, ()), default=min(found) - 1) + 1
            if not found >= {*range(begin, max(found) + 1)}:
                return True
    return False


def _sequences(blobs: Path) -> dict[int, set[int]]:
    """Return the numbers of the segments of a pool, by generation."""
    found: defaultdict[int, set[int]] = defaultdict(set)
    for file in blobs.glob("*.segment"):
        name = parse_segment_name(file.name)
        assert name is not None
        found[name[0]].add(name[1])
    return found


def _last_spans(directory: Path) -> dict[Path, RoundBytes]:
    """The last round that stands in a file of each cell, by the cell's directory."""
    found = {}
    for cell in (directory, *sorted(place for place in directory.glob("cells/*") if place.is_dir())):
        seed = seed_of(cell)
        files = [*cell.glob("blobs/*.segment"), *cell.glob("index-*/commits/*.commits")]
        records = [each for file in files for each in scan_commits(file, 0, seed).records]
        last = max(records, key=lambda each: each.header.number, default=None)
        if last is not None:
            begin, end = last.position - last.header.payload_bytes, last.position + last.header.record_bytes
            found[cell] = RoundBytes(last.path.relative_to(directory), begin, last.position, end)
    return found


def _tear(file: Path, sectors: Sequence[tuple[int, int]]) -> None:
    """Leave a file as a power cut does before its sync: without these sectors."""
    content = bytearray(file.read_bytes())
    for begin, end in sectors:
        content[begin:end] = bytes(end - begin)
    file.write_bytes(content)


def _written(directory: Path, span: RoundBytes) -> list[tuple[int, int]]:
    """Sectors of a round that are not zeros."""
    content = (directory / span.path).read_bytes()
    return [piece for piece in _sectors(span) if any(content[piece[0] : piece[1]])]


def _of_payload(directory: Path, span: RoundBytes) -> list[tuple[int, int]]:
    """Those of them before the record: what a whole record misses is called torn. Without the beginning of a round
    nobody can tell that there was one."""
    return [piece for piece in _written(directory, span) if piece[1] <= span.record]


def _sectors(span: RoundBytes) -> Iterator[tuple[int, int]]:
    for start in range(span.begin - span.begin % SECTOR_BYTES, span.end, SECTOR_BYTES):
        yield max(start, span.begin), min(start + SECTOR_BYTES, span.end)
