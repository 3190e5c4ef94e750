"""Salvages a stopped cell whose commit log is damaged: without what cannot be read, and so that nothing given is given
again.

    damaged bytes set aside (files in `damaged/`) -> marked as begun -> index with all whole rounds on disk, in a new
    generation -> the repair, a round of its own -> marked as held

Each step is durable before the next. A salvage that is interrupted is done again from its beginning; the mark keeps
what the first one gave up. What the repair changes is planned by the caller, who knows what the rows mean.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from pqbroker.storage.disk import index_rows
from pqbroker.storage.disk.blob_reading import BlobReader
from pqbroker.storage.disk.commits.commit_history import CommitHistory, LogPlaces
from pqbroker.storage.disk.commits.commit_log import CommitLog
from pqbroker.storage.disk.commits.commit_scan import Gap
from pqbroker.storage.disk.commits.index_changes import IndexChanges, decode_changes
from pqbroker.storage.disk.commits.log_start import LogStart, start_log
from pqbroker.storage.disk.directory import CellDirectory
from pqbroker.storage.disk.manifest_check import check_manifest
from pqbroker.storage.disk.mending.damaged_rounds import NO_DAMAGE, LogDamage, read_damaged
from pqbroker.storage.disk.mending.manifest_copy import mend_manifest
from pqbroker.storage.disk.mending.salvage_mark import (
    GO_ON,
    MarkState,
    SalvageMark,
    accept_mark,
    read_mark,
    write_mark,
)
from pqbroker.storage.disk.mending.set_aside import set_aside
from pqbroker.storage.disk.offline import OfflineCell, look_into
from pqbroker.storage.disk.rocks_index import RocksIndex
from pqbroker.storage.engine import BlobKey, BlobMissing, Buffer, EngineError


class CellRows(Protocol):
    """The rows of an index with all rounds that were saved, and the blobs that they name."""

    def get(self, keys: list[bytes]) -> list[bytes | None]:
        """Values of index rows, None where absent."""

    def rows(self, lo: bytes, hi: bytes, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Index rows with lo <= key < hi, in order or from the end."""

    def content(self, blob: BlobKey) -> Buffer:
        """A whole blob, verified. Raises BlobMissing, BlobCorrupt."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Losses of a salvage: the greatest number of unreadable rounds, and their bytes."""

    rounds: int
    size_bytes: int
    rewritten: frozenset[bytes]
    """Keys of the index that rounds behind the last lost one set or delete."""
    torn: frozenset[BlobKey] = frozenset()
    """Blobs of rounds that are kept though their payload lacks a sector; some of them are unreadable."""
    log_keys: frozenset[bytes] | None = None
    """Keys of the index that readable rounds of the log set or delete; None where no round is lost, or where an earlier
    salvage had that log."""


@dataclass(frozen=True, slots=True)
class Repair:
    """The rows that make up for what is lost, and the offsets that partitions leave out (see `SalvageMark`)."""

    changes: IndexChanges = field(default_factory=IndexChanges)
    skipped: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)


Plan = Callable[[CellRows, Lost], Repair]


class DamagedLog:
    """A `ReadLog` that reads past damage, and keeps what it found; `on_found` is called before anything is applied."""

    def __init__(self, mark: SalvageMark, on_found: Callable[[LogDamage], None] = lambda damage: None) -> None:
        self.damage = NO_DAMAGE
        self.lost = Lost(0, 0, frozenset())
        self._mark = mark
        self._on_found = on_found

    def __call__(self, places: LogPlaces, flushed: int) -> CommitHistory:
        self.damage = read_damaged(places, flushed)
        self.lost = _lost_with(self.damage, self._mark)  # now: log files go when the index has them
        self._on_found(self.damage)
        return self.damage.history


@contextmanager
def look_past_damage(path: Path, pools: Mapping[str, Path]) -> Iterator[tuple[OfflineCell, LogDamage, Lost]]:
    """A stopped cell as a salvage would leave it but for the repair, and what it would give up. Changes nothing.

    Raises EngineError, OSError.
    """
    log = DamagedLog(read_mark(path))
    with look_into(path, pools, log) as cell:
        yield cell, log.damage, log.lost


def salvage(path: Path, pools: Mapping[str, Path], plan: Plan) -> LogDamage:
    """Salvage a stopped cell, if there is damage or a salvage was interrupted. Raises EngineError, OSError."""
    with look_past_damage(path, pools) as (cell, damage, _):
        places = dict(cell.pools)
        if not damage.is_damaged and read_mark(path).state is not MarkState.BEGUN:
            return damage
    directory = CellDirectory(path, places)
    directory.take(must_exist=True)
    try:
        return _salvage(directory, plan)
    finally:
        directory.release()


def accept(path: Path, pools: Mapping[str, Path]) -> bool:
    """Accept what salvages gave up in a stopped cell; whether there was anything. Raises EngineError, OSError."""
    with look_into(path, pools):
        return accept_mark(path)


def _salvage(directory: CellDirectory, plan: Plan) -> LogDamage:
    facts = directory.facts
    before = read_mark(directory.path)
    log = DamagedLog(before, lambda damage: _begin(directory.path, damage, before))
    mend_manifest(directory.index)
    check_manifest(directory.index)
    index = RocksIndex(directory.index)
    index.open(create=False)
    try:
        started = start_log(
            LogStart(directory.index, facts, directory.pools, log),
            index,
            directory.generation,
            is_synced=facts.durability == "fsync",
            has_room=lambda: True,
            raise_format=directory.raise_format,
        )
        if not started.is_flushed:
            raise EngineError(f"the index of {directory.path} has no room to be written: free some, {GO_ON}")
        rows = _OpenRows(index, BlobReader(index.get, directory.pools))
        repair = plan(rows, log.lost)
        _write(started.log, index, repair.changes)
    finally:
        index.close()
    begun = read_mark(directory.path)
    skipped = {**begun.skipped}
    for name, ranges in repair.skipped.items():
        skipped[name] = [*skipped.get(name, ()), *ranges]
    write_mark(directory.path, SalvageMark(MarkState.HELD, begun.places, skipped=skipped))
    return log.damage


def _lost_with(damage: LogDamage, mark: SalvageMark) -> Lost:
    """Return all that is lost, with what a salvage gave up that has not ended: then no row is known to be newer."""
    keys, torn, known = _Keys(), _Keys(), _Keys()
    if damage.given_up and not mark.lost_rounds:
        for record in damage.history.rounds:
            changes = decode_changes(record.content())
            changes.apply(known)
            if record.header.number > damage.given_up[-1]:
                changes.apply(keys)
    for record in damage.torn_payloads:
        decode_changes(record.content()).apply(torn)
    blobs = frozenset(BlobKey(key[1:]) for key in torn.found if key[:1] == index_rows.BLOB)
    lost = damage.lost_rounds_max + mark.lost_rounds, damage.lost_bytes + mark.lost_bytes
    is_log_known = damage.given_up and not mark.lost_rounds
    return Lost(*lost, frozenset(keys.found), blobs, frozenset(known.found) if is_log_known else None)


class _Keys:
    """An `IndexBatch` that notes the keys that are set or deleted."""

    def __init__(self) -> None:
        self.found: set[bytes] = set()

    def put(self, key: bytes, value: bytes) -> None:
        self.found.add(key)

    def delete(self, key: bytes) -> None:
        self.found.add(key)

    def delete_range(self, begin: bytes, end: bytes) -> None:
        """Nothing is known of the keys of a range."""


@dataclass(frozen=True, slots=True)
class _OpenRows:
    """The `CellRows` of an index that is open."""

    index: RocksIndex
    reader: BlobReader

    def get(self, keys: list[bytes]) -> list[bytes | None]:
        return self.index.get(keys)

    def rows(self, lo: bytes, hi: bytes, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        return self.index.rows(lo, hi, reverse=reverse)

    def content(self, blob: BlobKey) -> Buffer:
        row = self.get([index_rows.BLOB + blob])[0]
        if row is None:
            raise BlobMissing(blob.hex())
        return self.reader.content(blob, row)


def _begin(path: Path, damage: LogDamage, before: SalvageMark) -> None:
    """Set the damaged bytes aside and mark the cell, before anything is applied."""
    places = dict(before.places)
    for record, wrong in damage.mended:
        kept = _set_aside(path, Gap(record.path, record.position, record.position + record.header.record_bytes))
        what = f"one bit was mended, in its byte {wrong.position}; as found it is in {kept}"
        places[f"commit {record.header.number} at byte {record.position} of {record.path.name}"] = what
    for gap in damage.gaps:
        what = f"{gap.end - gap.position} bytes were given up; they are in {_set_aside(path, gap)}"
        places[_named(gap, damage)] = what
    for record in damage.torn_payloads:
        start = record.position - record.header.payload_bytes
        kept = _set_aside(path, Gap(record.path, start, record.position))
        places[f"commit {record.header.number} at byte {start} of {record.path.name}"] = (
            f"a part of its payload was never written or lost; as found it is in {kept}"
        )
    if damage.given_up and not damage.gaps:
        places[damage.numbers] = "nothing is left, so it was given up"
    lost = before.lost_rounds + damage.lost_rounds_max, before.lost_bytes + damage.lost_bytes
    write_mark(path, SalvageMark(MarkState.BEGUN, places, *lost, skipped=before.skipped))


def _named(gap: Gap, damage: LogDamage) -> str:
    place = f"byte {gap.position} of {gap.path.name}"
    return f"{damage.numbers} at {place}" if len(damage.gaps) == 1 else place


def _set_aside(path: Path, gap: Gap) -> str:
    """Keep damaged bytes, with the payload of their round."""
    start = gap.position - gap.payload_bytes
    with gap.path.open("rb") as file:
        file.seek(start)
        return set_aside(path, f"{gap.path.name}-{start}", file.read(gap.end - start))


def _write(log: CommitLog, index: RocksIndex, changes: IndexChanges) -> None:
    """Make the repair durable, as a round of its own behind all others."""
    number = log.last_number + 1
    changes.put(*index_rows.number_row(number))
    log.write(number, changes.encoded())
    log.sync()
    index.write(changes, number)
    index.flush(wait=True)
    log.end.tell(number)
    log.close()
