"""A commit log as owners of several generations write it, and an index in memory to apply it to."""

import os
from collections.abc import Sequence
from pathlib import Path

from pqbroker.storage.disk.commits.commit_history import CommitHistory, LogPlaces, apply_history, read_history
from pqbroker.storage.disk.commits.commit_log import (
    HEADER_STAND_IN,
    CommitLog,
    LogOwner,
    log_files,
    make_log_directory,
)
from pqbroker.storage.disk.commits.commit_record import cell_seed
from pqbroker.storage.disk.commits.index_changes import IndexChanges
from pqbroker.storage.disk.commits.zero_sectors import encode_runs, find_zero_sectors, may_have_zero_sectors
from pqbroker.storage.disk.segments import encode_record, segment_name
from pqbroker.storage.engine import EngineError
from tests.storage.cells import blob_key, content

SEED = cell_seed("c")


def rows_of(number: int, size: int = 100, value: bytes | None = None) -> bytes:
    """The rows of the round of that number; `value`: that of the large one."""
    changes = IndexChanges()
    changes.put(b"K%06d" % number, content(number, size) if value is None else value)
    changes.put(b"last", b"%d" % number)
    return changes.encoded()


class Rows:
    """An index: keys and values, in memory."""

    is_flushing = False
    unwritten_bytes = 0

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes] = {}
        self.numbers: list[int] = []

    def write(self, changes: IndexChanges, number: int) -> None:
        changes.apply(self)
        self.numbers.append(number)

    def put(self, key: bytes, value: bytes) -> None:
        self.rows[key] = value

    def delete(self, key: bytes) -> None:
        self.rows.pop(key, None)

    def delete_range(self, begin: bytes, end: bytes) -> None:
        self.rows = {key: value for key, value in self.rows.items() if not begin <= key < end}

    def flush(self, *, wait: bool = False) -> None: ...

    def flushed(self) -> int:
        return 0

    def tend(self) -> None: ...

    def tell(self, told: str) -> EngineError:
        return EngineError(told)


class Written:
    """A cell's index directory with a commit log, and a pool beside it."""

    def __init__(self, path: Path, *, is_synced: bool = True) -> None:
        self.index = path / "index"
        self.pool = path / "pool"
        self.is_synced = is_synced
        self.flushed = 0
        self.index.mkdir(parents=True)
        self.pool.mkdir()

    def begin(self, generation: int, taken: int = 0) -> CommitLog:
        owner = LogOwner(generation, SEED, taken, self.is_synced)
        earlier = log_files(self.index)
        return CommitLog(make_log_directory(self.index), owner, earlier, lambda: True)

    def segment(self, generation: int, sequence: int = 1) -> Path:
        return self.pool / segment_name(generation, sequence)

    def write_behind(
        self, log: CommitLog, generation: int, number: int, sizes: Sequence[int] = (5_000,),
        blobs: Sequence[bytes] | None = None, rows: bytes | None = None,
    ) -> int:
        """A round with a blob of each size in the generation's segment, its rows behind; where the round begins.

        `blobs` are what is in them, `rows` the round's.
        """
        blobs = blobs or [content(number, size) for size in sizes]
        payload = b"".join(
            b"".join(encode_record(blob_key(100 * number + each), [blob], len(blob), number, 0))
            for each, blob in enumerate(blobs)
        )
        rows = rows or rows_of(number)
        file = self.segment(generation)
        begin = file.stat().st_size if file.exists() else 0
        zeros = b""
        if may_have_zero_sectors(rows, [payload]):
            zeros = encode_runs(find_zero_sectors([payload, HEADER_STAND_IN, rows], begin))
        with open(file, "ab") as segment:
            head = log.header(rows, number=number, payload_bytes=len(payload), zeros=zeros)
            segment.write(payload + head + rows + zeros)
        log.note(number)
        return begin

    def history(self) -> CommitHistory:
        tails = [(path, 0) for path in sorted(self.pool.glob("*.segment"))]
        return read_history(LogPlaces(self.index, tails, SEED, self.is_synced), self.flushed)

    def numbers(self) -> list[int]:
        """Rounds that a start applies."""
        index = Rows()
        history = self.history()
        apply_history(history, index)
        assert sorted(index.rows) == [*(b"K%06d" % number for number in index.numbers), *[b"last"][: len(index.rows)]]
        assert history.last_number == max(index.numbers, default=self.flushed)
        for number in index.numbers:
            value = index.rows[b"K%06d" % number]
            assert value == content(number, len(value))
        return index.numbers

    def newest(self) -> Path:
        return log_files(self.index)[-1]


def overwrite(path: Path, position: int, data: bytes) -> None:
    file = os.open(path, os.O_WRONLY)
    os.pwrite(file, data, position)
    os.close(file)


def flip(path: Path, position: int) -> None:
    byte = path.read_bytes()[position]
    overwrite(path, position, bytes([byte ^ 0x10]))
