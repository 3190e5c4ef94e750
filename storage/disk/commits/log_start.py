"""Steps of a start that bring the index up to the last round, and begin the commit log of its generation.

Every step may be the last before a crash. Rounds that are not on disk yet are applied before anything is removed; the
first file of the new generation, which says up to where the earlier ones count, is durable before the first commit.
Before that file the cell is marked as of this form, for an older version to refuse it: it would take the file's record
for damage.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pqbroker.storage.disk import index_rows
from pqbroker.storage.disk.commits.commit_history import (
    CommitHistory,
    LogPlaces,
    apply_history,
    read_history,
    sync_history,
)
from pqbroker.storage.disk.commits.commit_log import CommitLog, LogOwner, make_log_directory
from pqbroker.storage.disk.commits.commit_record import cell_seed
from pqbroker.storage.disk.directory import CellFacts
from pqbroker.storage.disk.index import ReadableIndex
from pqbroker.storage.disk.segment_check import segment_tails


class StartingIndex(ReadableIndex, Protocol):
    """The index with the calls that a start makes besides."""

    @property
    def is_frugal(self) -> bool:
        """Return True if the disk is so full that what the log has is to stay there alone."""

    def begin(self, number: int) -> None:
        """The index has on disk all up to round `number`."""


ReadLog = Callable[[LogPlaces, int], CommitHistory]
"""Finds the rounds behind a number that the index has; `read_history` for all but a salvage."""


@dataclass(frozen=True, slots=True)
class LogStart:
    """A cell whose index is open. `facts` are as its last owner left them; `pools` says where blobs lie."""

    path: Path
    facts: CellFacts
    pools: Mapping[str, Path]
    read: ReadLog = read_history


@dataclass(frozen=True, slots=True)
class StartedLog:
    """The log of this opening. `rows_in`: by segment, the last round whose rows stand there and nowhere else."""

    log: CommitLog
    rows_in: Mapping[Path, int]
    is_flushed: bool
    """The index has on disk all that earlier generations committed, so that what nothing names can be removed."""


def start_log(
    start: LogStart,
    index: StartingIndex,
    generation: int,
    *,
    is_synced: bool,
    has_room: Callable[[], bool],
    raise_format: Callable[[], None],
) -> StartedLog:
    """Apply what the log has, and begin the generation's. Raises EngineError, OSError.

    `raise_format` marks the cell as of this version's form.
    """
    flushed = index_rows.last_number(index.get(index_rows.number_keys()))
    history = take_rounds(start, index, flushed, syncs=True)
    if not index.is_frugal:
        index.flush(wait=True)
    is_flushed = index.flushed() >= history.last_number
    rows_in = {} if is_flushed else {record.path: record.header.number for record in history.rounds}
    raise_format()
    owner = LogOwner(generation, cell_seed(start.facts.cell), history.last_number, is_synced)
    log = CommitLog(make_log_directory(start.path), owner, list(history.files), has_room)
    log.forget(index.flushed())
    return StartedLog(log, rows_in, is_flushed)


def take_rounds(start: LogStart, index: StartingIndex, flushed: int, *, syncs: bool) -> CommitHistory:
    """Apply to the index the rounds behind number `flushed`, which it has. Changes nothing else.

    `syncs`: make them durable first, since a killed owner may not have come to that, and the index may have its rows on
    disk before the payload that they name. Raises EngineError, OSError.
    """
    index.begin(flushed)
    if not start.facts.ready:
        return CommitHistory(flushed, (), (), ())
    tails = segment_tails(start.pools, index.rows(*index_rows.SEGMENT_ROWS))
    is_synced = start.facts.durability == "fsync"
    history = start.read(LogPlaces(start.path, tails, cell_seed(start.facts.cell), is_synced), flushed)
    if syncs:
        sync_history(history)
    apply_history(history, index)
    return history
