"""A cell that is open for reading only, since its disk has no room for a log: what stands in for log, writer and space.

    starting --release--> sealed --room again--> lost, and opened for writing

Nothing in the directory is changed. While it starts, rounds act on the index in memory, so that tablets start as in any
other opening; nobody outside has a commit of that acknowledged. Sealed, every commit is refused with cause and cure.
"""

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pqbroker.storage.disk.free_space import START_BYTES, StatVfs, room_cure
from pqbroker.storage.disk.index import Index
from pqbroker.storage.disk.pools import Pool
from pqbroker.storage.disk.round_plan import RoundPlan
from pqbroker.storage.engine import Batch, EngineError, NoRoom, ReadingOnly, RoomAgain
from pqbroker.storage.pool_status import Colour

TRY_AGAIN_SECONDS = 30.0
"""An opening that failed though there was room by the look is tried again when there is more, or after this."""
_STAGING_BYTES = 4 << 20
_STAGING_PLACES = ("", "/dev/shm")
"""The system's directory for drafts, and its memory where that one is full too."""


class ReadingSpace:
    """Takes every round until `seal`, none from then on; looks now and then whether the cell can be written again."""

    is_full = False
    """Nothing is in memory that could be written while there is room."""

    def __init__(self, path: Path, cause: str, statvfs: Callable[[Path], StatVfs], look_seconds: float) -> None:
        """`cause`: what kept the cell from being opened for writing."""
        self.look_seconds = look_seconds
        self.told = (
            f"the cell at {path} is opened for reading only, since its disk is full: {room_cure()}; deletes are taken"
            f" then, and writes once there is more, without a restart"
        )
        self.cause = cause
        self._path = path
        self._statvfs = statvfs
        self._is_sealed = False
        self._look_due = 0.0
        self._free_at_start = self._free_bytes()
        self._try_due = time.monotonic() + TRY_AGAIN_SECONDS

    def seal(self) -> None:
        """The start is over. Called by the loop; no round that is asked for behind this call is taken."""
        self._is_sealed = True

    def look(self) -> None:
        """RoomAgain when an opening for writing is worth a try."""
        self._look_due = time.monotonic() + self.look_seconds
        if self._is_sealed and self._has_room(self._free_bytes()):
            raise RoomAgain(f"the disk of {self._path} has room again: the cell is opened for writing")

    def colour(self, pool: str) -> Colour:
        """Writes are refused by colour where they would be on any full disk."""
        return Colour.ORANGE_OUT_SPACE

    def take_all(self, size: int) -> bool:
        """Return True while the cell starts."""
        if self._is_sealed and time.monotonic() >= self._look_due:
            self.look()
        return not self._is_sealed

    def take(self, batch: Batch) -> bool:
        """Return True while the cell starts."""
        return not self._is_sealed

    def refusal(self, batch: Batch) -> ReadingOnly:
        """The refusal of every commit once the cell has started."""
        return ReadingOnly(self.told)

    def _has_room(self, free: int) -> bool:
        """Return True if there is enough room. What the look saw before was too little: more is wanted, or some
        time."""
        wanted = START_BYTES if self._free_at_start < START_BYTES else self._free_at_start + START_BYTES
        return free >= wanted or (free >= START_BYTES and time.monotonic() >= self._try_due)

    def _free_bytes(self) -> int:
        space = self._statvfs(self._path)
        return space.f_bavail * space.f_frsize


class ReadingWriter:
    """Applies the rounds of a start to the index in memory. Writes nothing."""

    patience = None
    syncs = 0
    is_held = False

    def __init__(self, index: Index, pools: Sequence[Pool], number: int) -> None:
        self.number = number
        self._index = index
        self._pools = pools

    def write_payload(self, plan: RoundPlan) -> bool:
        """Never called: the planner makes rows of all blobs, so that no segment gets any."""
        raise AssertionError("a cell that is open for reading only writes no payload")

    def write_rows(self, plan: RoundPlan) -> None:
        self.number = plan.number

    def apply(self, plan: RoundPlan) -> None:
        self._index.write(plan.changes, plan.number)
        for pool in self._pools:
            if pool.touched:
                pool.settle(plan.number)

    def tend(self) -> None: ...

    def make_spare(self) -> None: ...

    def close(self) -> None: ...

    def let_go(self, *, is_ours: bool) -> None: ...

    def end(self) -> None: ...

    def tell(self, told: str) -> EngineError:
        return self._index.tell(told)


def _try_room(file: Path) -> None:
    """OSError where a draft of an index would find no room."""
    file.write_bytes(bytes(_STAGING_BYTES))
    file.unlink()


@contextmanager
def staging(cause: str) -> Iterator[Path]:
    """An empty directory, for as long as an index is being opened through it: what is open needs no name. NoRoom."""
    failures: list[str] = []
    for place in _STAGING_PLACES:
        try:
            draft = tempfile.TemporaryDirectory(prefix="pqbroker-reading-", dir=place or None)
        except OSError as failure:
            failures.append(str(failure))
            continue
        with draft as name:
            try:
                _try_room(Path(name, "room"))
            except OSError as failure:
                failures.append(f"{name}: {failure}")
                continue
            yield Path(name)
            return
    failed = "; ".join(failures)
    raise NoRoom(f"{cause}; nor is there room for drafts to open it for reading only: {failed}: set TMPDIR to a place")
