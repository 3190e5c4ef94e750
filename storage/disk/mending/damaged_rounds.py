"""Looks at a damaged commit log for what can be saved of it: rounds that one bit mends, and those to be given up.

Where a start refuses (`commit_history`), this reads on. A damaged record is mended where one bit makes its checksums
right. Numbers that are missing then are given up: in the place of each stands a round that holds its number alone, so
that the rounds behind it count. What a power cut tore, and nobody knows to be synced, is left out as a start does.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pqbroker.storage.disk import index_rows
from pqbroker.storage.disk.commits.commit_history import (
    Bounds,
    CommitHistory,
    LogPlaces,
    check_begin,
    counted,
    scan_file,
    scan_tails,
)
from pqbroker.storage.disk.commits.commit_log import COMMITS, file_generation, log_files
from pqbroker.storage.disk.commits.commit_record import (
    BEGIN,
    COMMIT_HEADER_BYTES,
    COMMIT_MAGICS,
    NOT_SYNCED,
    TAKEN,
    CommitHeader,
    record_bytes_told,
)
from pqbroker.storage.disk.commits.commit_scan import CommitAt, Gap, Scanned, Unreadable, behind_blobs, payload_is_torn
from pqbroker.storage.disk.commits.index_changes import IndexChanges
from pqbroker.storage.disk.commits.log_end import KnownEnd, known_ends
from pqbroker.storage.disk.commits.zero_sectors import SECTOR_BYTES
from pqbroker.storage.disk.mending.one_bit import RECORD_BYTES_MAX, WrongBit, find_wrong_bit
from pqbroker.storage.disk.segments import UNSYNCED, RecordHeader, parse_segment_name, walk

_NUMBERS_SHOWN = 5
_ROUND_BYTES_MIN = COMMIT_HEADER_BYTES + 32
"""Least that a round takes of a file: its header, and the row of its number."""


class MendedRecord(NamedTuple):
    """A damaged record that one bit makes whole."""

    record: CommitAt
    wrong: WrongBit


@dataclass(frozen=True, slots=True)
class LogDamage:
    """Damage of a commit log, and what a salvage takes from the log."""

    history: CommitHistory
    """The rounds to apply; in the places of those that are given up, rounds that hold their numbers alone."""
    mended: tuple[MendedRecord, ...]
    given_up: tuple[int, ...]
    """Numbers of rounds of which nothing can be read, in order."""
    gaps: tuple[Gap, ...]
    """Damaged bytes that no bit mends, of rounds that the index may lack."""
    torn_payloads: tuple[CommitAt, ...] = ()
    """Rounds whose rows are whole and are taken, though their payload lacks a sector."""
    is_open_ended: bool = False
    """The last rounds are among those given up, so that nobody knows how many they were."""

    @property
    def is_damaged(self) -> bool:
        return bool(self.mended or self.given_up or self.torn_payloads)

    @property
    def numbers(self) -> str:
        """The rounds given up, for people."""
        shown = ", ".join(map(str, self.given_up[:_NUMBERS_SHOWN]))
        more = f" and {len(self.given_up) - _NUMBERS_SHOWN} more" if len(self.given_up) > _NUMBERS_SHOWN else ""
        behind = ", and what came behind" if self.is_open_ended else ""
        return f"{'commit' if len(self.given_up) == 1 else 'commits'} {shown}{more}{behind}"

    @property
    def lost_bytes(self) -> int:
        """Bytes that the rounds given up can have had, payloads included."""
        return sum(gap.end - gap.position + gap.payload_bytes for gap in self.gaps)

    @property
    def lost_rounds_max(self) -> int:
        """The most rounds that are given up: at the log's end, as many as its damaged bytes had room for."""
        count = len(self.given_up)
        return max(count, self.lost_bytes // _ROUND_BYTES_MIN) if self.is_open_ended else count


NO_DAMAGE = LogDamage(CommitHistory(0, (), (), ()), (), (), ())


def read_damaged(places: LogPlaces, flushed: int) -> LogDamage:
    """Read a log of which not all can be read, as `read_history` reads a whole one. Changes nothing.

    IndexDamaged for what no salvage helps: files that the disk does not give, an index older than the log.
    """
    files = log_files(places.index)
    scanned = [*(scan_file(path, 0, places.seed) for path in files), *scan_tails(places)]
    mended = [found for each in scanned for gap in each.gaps for found in _mended(gap, places.seed)]
    whole = [_with_mended(each, mended) for each in scanned]
    bounds = Bounds(_begins(whole))
    check_begin(whole[0].records if files else (), flushed)
    by_number = counted(whole, bounds, flushed)
    known = _known_end(known_ends(places.index / COMMITS, places.seed), bounds)
    synced = [number for number, record in by_number.items() if not record.header.flags & NOT_SYNCED]
    last = _contiguous(by_number, max(flushed, known, *synced, 0))
    rests = [] if not places.is_synced else _last_rests(scanned, mended)
    counting = [rest for rest in rests if bounds.counts(file_generation(rest.path), rest.number or last + 1)]
    damaged = list(_damaged_ends(counting, by_number, flushed, last))
    last = max(last, *damaged, *_of_blobs(places, bounds, last), 0)
    last, torn = _without_torn(by_number, last, known)
    is_open_ended = last not in by_number and last > flushed and not (
        last in damaged and all(map(_is_one_record, counting))
    )
    given_up = tuple(number for number in range(flushed + 1, last + 1) if number not in by_number)
    taken = [by_number.get(number) or _stand_in(number, places.index) for number in range(flushed + 1, last + 1)]
    lost = tuple(_lost_gaps(whole, flushed)) if given_up else ()
    needed = tuple(each for each in mended if each.record in taken)
    left_out = tuple(rest.place for rest in counting) if not given_up else ()
    history = CommitHistory(last, tuple(taken), tuple(files), left_out)
    return LogDamage(history, needed, given_up, lost, torn, is_open_ended)


def _contiguous(by_number: dict[int, CommitAt], last: int) -> int:
    while last + 1 in by_number:
        last += 1
    return last


def _known_end(ends: Iterable[KnownEnd], bounds: Bounds) -> int:
    """Up to which number all rounds are known to have been synced."""
    counted_to = [(end.number, bounds.last_of(end.generation)) for end in ends]
    return max((number if cap is None else min(number, cap) for number, cap in counted_to), default=0)


def _last_rests(scanned: Iterable[Scanned], mended: Iterable[MendedRecord]) -> list[Unreadable]:
    """Return what is left at the ends of the files written last: the log's newest one, and that of each pool."""
    newest = {each.path.parent: each for each in sorted(scanned, key=lambda each: each.path.name)}
    whole = {(each.record.path, each.record.position) for each in mended}
    rests = [each.rest for each in newest.values() if each.rest is not None]
    return [rest for rest in rests if (rest.path, rest.position) not in whole]


def _without_torn(by_number: dict[int, CommitAt], last: int, known: int) -> tuple[int, tuple[CommitAt, ...]]:
    """The last round that counts, and it again if its payload is torn though it was synced."""
    found = by_number.get(last)
    if found is None or not found.header.payload_bytes or not payload_is_torn(found):
        return last, ()
    return (last, (found,)) if last <= known else (last - 1, ())


def _damaged_ends(
    rests: Iterable[Unreadable], by_number: Mapping[int, CommitAt], flushed: int, last: int
) -> Iterator[int]:
    """Numbers of rounds that what is left at the end of a file cannot be what a power cut left of.

    Without its header nothing says which round it is. It may be one that is missing before the last, if it is one
    record alone; else it may have had rounds behind the last.
    """
    for rest in rests:
        if rest.number is not None:
            number = rest.number
        else:
            before = [number for number, record in by_number.items() if record.path == rest.path]
            missing = set(range(max(before, default=flushed) + 1, last)) - by_number.keys()
            number = min(missing) if missing and _is_one_record(rest) else last + 1
        if number > last and (not rest.is_torn or number > last + 1):
            yield number


def _is_one_record(rest: Unreadable) -> bool:
    """Return True if the damaged header gives a size that ends where the file's last bytes are."""
    with rest.path.open("rb") as file:
        file.seek(rest.position)
        written = file.read(RECORD_BYTES_MAX).rstrip(b"\0")
    told = record_bytes_told(written)
    return told is not None and len(written) <= told <= len(written) + SECTOR_BYTES


def _of_blobs(places: LogPlaces, bounds: Bounds, last: int) -> Iterator[int]:
    """Numbers of rounds later than the one in work at a crash, of which segments have blobs."""
    for path, end in places.tails:
        headers = [header for _, header in _blobs_behind(path, end)] if path.exists() else []
        for header in headers:
            counts = bounds.counts(file_generation(path), header.commit) and not header.flags & UNSYNCED
            if header.commit > last + 1 and counts:
                yield header.commit


def _blobs_behind(path: Path, position: int) -> list[tuple[int, RecordHeader]]:
    with path.open("rb") as file:
        return list(walk(file.fileno(), position))


def _mended(gap: Gap, seed: int) -> Iterator[MendedRecord]:
    """The records in damaged bytes that one bit mends."""
    with gap.path.open("rb") as file:
        position = gap.position
        while position < gap.end:
            position = behind_blobs(file.fileno(), position)
            window = os.pread(file.fileno(), RECORD_BYTES_MAX, position)
            wrong = find_wrong_bit(window, seed)
            if wrong is not None:
                yield MendedRecord(CommitAt(gap.path, position, wrong.header, wrong.content), wrong)
                position += wrong.header.record_bytes
                continue
            at = window.find(COMMIT_MAGICS, 1)
            position += at if at > 0 else max(len(window) - len(COMMIT_MAGICS) + 1, 1)


def _with_mended(scanned: Scanned, mended: Sequence[MendedRecord]) -> Scanned:
    found = [each.record for each in mended if each.record.path == scanned.path]
    records = sorted((*scanned.records, *found), key=lambda record: record.position)
    return Scanned(scanned.path, tuple(records), scanned.rest, scanned.gaps)


def _begins(scanned: Iterable[Scanned]) -> list[CommitAt]:
    """The first records of files; of a generation that has lost them, what its first round says it took before."""
    records = [record for each in scanned for record in each.records]
    begins = [record for record in records if record.header.flags & BEGIN]
    known = {record.header.generation for record in begins}
    first: dict[int, CommitAt] = {}
    for record in sorted(records, key=lambda record: record.header.number):
        if record.header.generation not in known:
            first.setdefault(record.header.generation, record)
    return [*begins, *(each._replace(stand_in=TAKEN.pack(each.header.number - 1)) for each in first.values())]


def _stand_in(number: int, path: Path) -> CommitAt:
    """A round that holds its number alone, in the place of one that is given up."""
    changes = IndexChanges()
    changes.put(*index_rows.number_row(number))
    content = changes.encoded()
    return CommitAt(path, 0, CommitHeader(len(content), 0, 0, number, 0, 0), content)


def _lost_gaps(scanned: Iterable[Scanned], flushed: int) -> Iterator[Gap]:
    """The damaged bytes, without records that are mended, where rounds behind `flushed` may have been."""
    for each in scanned:
        for gap in each.gaps:
            behind = next((record for record in each.records if record.position >= gap.end), None)
            is_needed = behind is None or behind.header.number > flushed + 1
            if is_needed or parse_segment_name(gap.path.name):
                yield from _between(gap, [one for one in each.records if gap.position <= one.position < gap.end])


def _between(gap: Gap, mended: Sequence[CommitAt]) -> Iterator[Gap]:
    """Return damaged bytes without the records in them that were mended."""
    position, payload_bytes = gap.position, gap.payload_bytes
    for record in mended:
        if record.position > position:
            yield Gap(gap.path, position, record.position, payload_bytes)
        position, payload_bytes = record.position + record.header.record_bytes, 0
    if position < gap.end:
        yield Gap(gap.path, position, gap.end, payload_bytes)
