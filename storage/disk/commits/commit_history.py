"""Rounds that a start takes from the commit log: every one behind the last that the index has on disk, in order.

Numbers are dense over all log files and segments. What is not whole is a torn end only if no whole record with a later
number is anywhere, and if it lacks a sector; else acknowledged rows are damaged, and the cell does not open.

An earlier owner that was stopped amid a round, and woke after a takeover, may have written more than the later one
took. Each generation's files say up to which number it took from those before; what they have behind that never counts,
and neither does what such an owner says of the log's end (`log_end`).
"""

import logging
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pqbroker.storage.disk.commits.commit_log import COMMITS, file_generation, log_files
from pqbroker.storage.disk.commits.commit_record import BEGIN, NOT_SYNCED, TAKEN
from pqbroker.storage.disk.commits.commit_scan import CommitAt, Scanned, Unreadable, payload_is_torn, scan_commits
from pqbroker.storage.disk.commits.index_changes import decode_changes
from pqbroker.storage.disk.commits.log_end import KnownEnd, known_ends
from pqbroker.storage.disk.directory import fsync_directory, sync_data
from pqbroker.storage.disk.index import Index
from pqbroker.storage.engine import IndexDamaged, LogDamaged

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogPlaces:
    """Places of a cell's rounds. `tails`: segments, and behind which byte the index does not know them yet."""

    index: Path
    tails: Sequence[tuple[Path, int]]
    seed: int
    is_synced: bool
    """Rounds were synced before they were acknowledged."""


@dataclass(frozen=True, slots=True)
class CommitHistory:
    """The rounds to apply to the index, in order, and what the last of them leaves."""

    last_number: int
    rounds: tuple[CommitAt, ...]
    files: tuple[Path, ...]
    """Files of earlier generations, all in the log's directory."""
    left_out: tuple[str, ...]
    """Places of what a power cut tore, none of which was acknowledged."""


def read_history(places: LogPlaces, flushed: int) -> CommitHistory:
    """Find the rounds behind number `flushed`, which the index has on disk. Changes nothing. Raises IndexDamaged."""
    ends = known_ends(places.index / COMMITS, places.seed)  # first: an owner that lost the cell may still write
    files = log_files(places.index)
    scanned = [scan_file(path, 0, places.seed) for path in files]
    bounds = Bounds(record for each in scanned for record in each.records if record.header.flags & BEGIN)
    if not bounds.are_known:
        raise LogDamaged(f"{places.index} has no commit log that can be read")
    check_begin(scanned[0].records, flushed)
    scanned += scan_tails(places)
    by_number = counted(scanned, bounds, flushed)
    last = flushed
    while last + 1 in by_number:
        last += 1
    unreadable = [each.rest for each in scanned if each.rest is not None and _may_be(each.rest, last + 1, bounds)]
    _check_behind(by_number, last, unreadable)
    if places.is_synced:
        _check_torn(unreadable, last + 1)
    left_out = [each.place for each in unreadable]
    if last > flushed and by_number[last].header.payload_bytes and payload_is_torn(by_number[last]):
        left_out.append(by_number[last].place)
        last -= 1
    _check_end(ends, bounds, last, left_out)
    rounds = tuple(by_number[number] for number in range(flushed + 1, last + 1))
    return CommitHistory(last, rounds, tuple(files), tuple(left_out))


def scan_tails(places: LogPlaces) -> list[Scanned]:
    """Return what segments hold behind what the index knows of them. Raises IndexDamaged."""
    return [
        scan_file(path, end, places.seed) for path, end in places.tails if path.exists() and path.stat().st_size > end
    ]


def apply_history(history: CommitHistory, index: Index) -> None:
    """Write the rounds to the index. Raises IndexDamaged."""
    for place in history.left_out:
        _log.warning("a power cut tore the commit at %s: left out, it was not acknowledged", place)
    for record in history.rounds:
        try:
            changes = decode_changes(record.content())
        except ValueError as unknown:
            raise IndexDamaged(f"commit {record.header.number} at {record.place}: {unknown}") from unknown
        index.write(changes, record.header.number)


def sync_history(history: CommitHistory) -> None:
    """Make the rounds durable where they are, and the names of their files. OSError."""
    paths = {record.path for record in history.rounds if record.stand_in is None}
    for path in paths:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            sync_data(file)
        finally:
            os.close(file)
    for directory in {path.parent for path in paths}:
        fsync_directory(directory)


def scan_file(path: Path, position: int, seed: int) -> Scanned:
    """Return every round of a file from a position on. Raises IndexDamaged."""
    try:
        return scan_commits(path, position, seed)
    except PermissionError:  # says nothing of the data
        raise
    except OSError as failure:
        raise IndexDamaged(f"{path} cannot be read: {failure.strerror}") from failure


def check_begin(oldest: Iterable[CommitAt], flushed: int) -> None:
    """IndexDamaged when the index is older than the log: files go once the index has all of them on disk."""
    for record in oldest:
        if record.header.flags & BEGIN and record.header.number > flushed:
            raise IndexDamaged(
                f"the index has commits up to {flushed}, but the commit log begins behind commit {record.header.number}"
                f" (at {record.place}): acknowledged rows are lost"
            )


class Bounds:
    """Up to which number each generation's records count: as far as every later generation took them."""

    def __init__(self, begins: Iterable[CommitAt]) -> None:
        self._taken = {each.header.generation: TAKEN.unpack(each.content())[0] for each in begins}

    @property
    def are_known(self) -> bool:
        return bool(self._taken)

    def last_of(self, generation: int) -> int | None:
        """Return the last number of a generation that counts; None if no generation came later."""
        return min((taken for later, taken in self._taken.items() if later > generation), default=None)

    def counts(self, generation: int, number: int) -> bool:
        last = self.last_of(generation)
        return last is None or number <= last


def counted(scanned: Iterable[Scanned], bounds: Bounds, flushed: int) -> dict[int, CommitAt]:
    """Return by number the records behind `flushed` that count."""
    found: dict[int, CommitAt] = {}
    for each in scanned:
        for record in each.records:
            header = record.header
            number = header.number
            if header.flags & BEGIN or number <= flushed or not bounds.counts(header.generation, number):
                continue
            if number in found:
                raise IndexDamaged(f"commit {number} is both at {found[number].place} and at {record.place}")
            found[number] = record
    return found


def _may_be(rest: Unreadable, number: int, bounds: Bounds) -> bool:
    """Return True if the bytes may be what is left of the round of that number, or of a later one."""
    if rest.number is not None and rest.number < number:
        return False
    return bounds.counts(file_generation(rest.path), number)


def _check_behind(by_number: dict[int, CommitAt], last: int, unreadable: Sequence[Unreadable]) -> None:
    """LogDamaged if the log has a round behind a missing one that was synced before it was acknowledged."""
    later = [number for number, record in by_number.items() if number > last and not record.header.flags & NOT_SYNCED]
    if later:
        found = by_number[min(later)]
        damaged = "".join(f", and what is at {each.place} cannot be read" for each in unreadable)
        raise LogDamaged(
            f"commit {last + 1} is missing, though commit {found.header.number} is at {found.place}{damaged}:"
            " acknowledged rows are lost"
        )


def _check_torn(unreadable: Sequence[Unreadable], number: int) -> None:
    """LogDamaged for what no power cut leaves: bytes that were all written, or a round behind a missing one."""
    for rest in unreadable:
        if not rest.is_torn or (rest.number or 0) > number:
            raise LogDamaged(f"the commit log is damaged at {rest.place}: acknowledged rows are lost")


def _check_end(ends: Iterable[KnownEnd], bounds: Bounds, last: int, left_out: Sequence[str]) -> None:
    """LogDamaged when a round is missing at the end that was synced."""
    for path, generation, number in ends:
        counted = bounds.last_of(generation)
        if last < (number if counted is None else min(number, counted)):
            torn = "".join(f", and what is at {place} cannot be read" for place in left_out)
            raise LogDamaged(
                f"the commit log ends at commit {last}, but {path} says that commit {number} was synced{torn}:"
                " acknowledged rows are lost"
            )
