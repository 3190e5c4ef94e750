"""Makes one backup of a node's open cells while they serve: what every step of a cell is, and which thread does it.

    commit thread, between rounds   hold the cell: nothing of it is removed from now on
    own thread                      copy the index, which has on disk all up to some earlier round
    commit thread, between rounds   take the moment: the last round, its files and how long they are
    own thread                      link or copy them, and write where the log ends

Each cell is copied as it is at one moment. All begin before the first moment; that of the system cell is the last, and
the copies end behind it: what is held back for the moments is held for no longer.
In the end the directory, which was
`.NAME.unfinished`, gets its name. A start on the copy takes from log and segments what the index has not, as after a
crash at that moment.
"""

import asyncio
import logging
import os
import re
import shutil
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pqbroker.conf.storage import MAIN_POOL
from pqbroker.storage.copy_steps import CopySteps, reach
from pqbroker.storage.disk.backups.copying import STOPPED, Copier
from pqbroker.storage.disk.backups.index_copy import RowFiles, copy_index
from pqbroker.storage.disk.backups.moment import Moment, hold, let_go, pool_place, take_moment
from pqbroker.storage.disk.commits.commit_log import COMMITS
from pqbroker.storage.disk.commits.commit_record import cell_seed
from pqbroker.storage.disk.commits.log_end import write_end
from pqbroker.storage.disk.committer import OpenCell
from pqbroker.storage.disk.directory import CELLS, CellDirectory, fsync_directory
from pqbroker.storage.disk.mending.facts_copy import FACTS_COPY, FACTS_FILE
from pqbroker.storage.disk.mending.salvage_mark import SALVAGED
from pqbroker.storage.disk.segments import parse_segment_name
from pqbroker.storage.engine import BackupFacts, BackupRefused

_log = logging.getLogger(__name__)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_NAME_FORM = "give 1 to 100 letters, digits, dots, dashes and underscores, the first a letter or digit"
R = TypeVar("R")


class CopiesInto(Protocol):
    """Copies another cell; `place` says where to, by the names of its pools."""

    async def __call__(
        self, place: "Callable[[Iterable[str]], CopyDirectories]", copier: Copier, steps: CopySteps
    ) -> None: ...


class BetweenRounds(Protocol):
    """Has something done in the commit thread between two rounds."""

    def __call__(self, errand: Callable[[OpenCell], R]) -> asyncio.Future[R]: ...


@dataclass(frozen=True, slots=True)
class BackupDirectory:
    """Place of backups: directories right below `directory`, at most `count_max`. One has another name until it is
    whole."""

    directory: Path
    count_max: int

    def find(self, name: str) -> Path:
        """Return where the backup of that name goes; `name` may be its whole path. Raises BackupRefused."""
        path = Path(name)
        root = self.directory.absolute().resolve()
        if path.is_absolute() and path.parent.resolve() != root:
            raise BackupRefused(
                f"{name} is not right below {root}, where this broker keeps backups: give a name, or set"
                " pqbroker.backup.dir"
            )
        if not _NAME.fullmatch(path.name) or not (path.is_absolute() or path.name == name):
            raise BackupRefused(f"{name!r} is no name of a backup: {_NAME_FORM}")
        if (root / path.name).exists():
            raise BackupRefused(f"{root / path.name} exists: choose another name, or delete it first")
        return root / path.name

    def draft(self, name: str) -> Path:
        """Return where the backup of that name is made. Raises BackupRefused."""
        target = self.find(name)
        return target.with_name(f".{target.name}.unfinished")

    def make(self) -> None:
        """Make the directory, and see that it is not full. BackupRefused, OSError."""
        self.directory.mkdir(0o700, exist_ok=True)  # users and tokens may be in it
        fsync_directory(self.directory.absolute().parent)  # else a power cut takes whole backups with their directory
        count = len(os.listdir(self.directory))
        if count >= self.count_max:
            raise BackupRefused(
                f"{self.directory} has {count} entries, and pqbroker.backups.max is {self.count_max}: delete some"
            )


@dataclass(frozen=True, slots=True)
class CopyDirectories:
    """Directories of the copy of a cell, and of its pools by name."""

    directory: Path
    pools: Mapping[str, Path]

    @classmethod
    def below(cls, root: Path, pools: Iterable[str]) -> "CopyDirectories":
        return cls(root, {pool: root / pool_place(pool) for pool in pools})

    def of_cell(self, name: str, pools: Iterable[str]) -> "CopyDirectories":
        """Return the directories of another cell, as in the data directory and the directories of its pools."""
        directory = self.directory / CELLS / name
        paths = {pool: self.directory / pool_place(pool) / CELLS / name for pool in pools}
        return CopyDirectories(directory, {**paths, MAIN_POOL: directory / pool_place(MAIN_POOL)})


class CellCopy:
    """The copy of one cell in work. `row_files`: see `copy_index`."""

    def __init__(
        self,
        directory: CellDirectory,
        row_files: Callable[[], RowFiles | None],
        between_rounds: BetweenRounds,
        directories: CopyDirectories,
        copier: Copier,
    ) -> None:
        self._directory = directory
        self._row_files = row_files
        self._between_rounds = between_rounds
        self._directories = directories
        self._copier = copier

    async def run(self, steps: CopySteps) -> int:
        """Return the number of the last round that is copied. OSError."""
        try:
            await self._between_rounds(hold)
            await self._in_thread(self._begin)
            steps.begun.set()
            await steps.may_take.wait()
            index = self._directories.directory / self._directory.index.name
            moment = await self._between_rounds(partial(take_moment, index=index, pools=self._directories.pools))
            steps.taken.set()
            await steps.may_end.wait()
            await self._in_thread(partial(self._end, moment))
        finally:
            # Not awaited: it comes behind `hold` in any case, even when this is cancelled.
            self._between_rounds(let_go)
        return moment.number

    async def _in_thread(self, call: Callable[[], None]) -> None:
        """A cancelled copy waits for its thread, which ends at its next look."""
        work = asyncio.get_running_loop().run_in_executor(None, call)
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            self._copier.stopping.set()
            await asyncio.wait([work])
            raise

    def _begin(self) -> None:
        index = self._directory.index
        target = self._directories.directory / index.name
        (target / COMMITS).mkdir(parents=True)
        for directory in self._directories.pools.values():
            directory.mkdir(parents=True, exist_ok=True)
        copy_index(index, target, self._row_files, self._copier)

    def _end(self, moment: Moment) -> None:
        for file in moment.files:
            if file.size is None:
                self._copier.link(file.origin, file.target)
            else:
                self._copier.copy(file.origin, file.target, file.size)
        owner = self._directory
        log = self._directories.directory / owner.index.name / COMMITS
        write_end(log, owner.generation, cell_seed(owner.facts.cell), moment.number)
        for pool, path in self._directory.pools.items():
            self._take_pool(path, self._directories.pools[pool])
        for name in (SALVAGED, FACTS_COPY, FACTS_FILE):
            facts = self._directory.path / name
            if name != SALVAGED or facts.exists():
                self._copier.copy(facts, self._directories.directory / name, facts.stat().st_size)
        if not self._directory.is_ours():
            raise self._directory.loss()

    def _take_pool(self, pool: Path, target: Path) -> None:
        """Take the pool's mark; and segments of earlier owners that no row names, which may have rows of the log."""
        self._copier.copy(pool / "pool", target / "pool", (pool / "pool").stat().st_size)
        for name in os.listdir(pool):
            key = parse_segment_name(name)
            if key is None or key[0] >= self._directory.generation or (target / name).exists():
                continue
            try:
                self._copier.link(pool / name, target / name)
            except FileNotFoundError:
                continue  # nothing needed it: the start that found it has removed it


class Backup:
    """One backup in work, of a cell and the other cells of its broker. `during`: entered before the first moment, and
    left behind the last one. BackupRefused for the name."""

    def __init__(self, directory: BackupDirectory, name: str, during: AbstractAsyncContextManager[None]) -> None:
        self._during = during
        self._directory = directory
        self._target = directory.find(name)
        self._draft = directory.draft(name)
        self._copier = Copier(threading.Event())

    async def run(
        self,
        copy: Callable[[CopyDirectories, Copier], CellCopy],
        pools: Iterable[str],
        others: Mapping[str, CopiesInto],
    ) -> BackupFacts:
        """Make it. Whatever ends it early leaves nothing. Cancelled when a cell ends. BackupRefused, ShardLost.

        The moment of `copy`'s cell is after those of the others: what it knows of them is what they were, or later.
        """
        directories = CopyDirectories.below(self._draft, pools)
        copies: list[Callable[[CopySteps], Coroutine[Any, Any, Any]]] = [
            partial(copy_into, partial(directories.of_cell, name), self._copier) for name, copy_into in others.items()
        ]
        try:
            await asyncio.to_thread(self._begin)
            number = await self._copy([*copies, copy(directories, self._copier).run])
            await asyncio.to_thread(self._end)
        except OSError as failure:
            raise BackupRefused(f"the backup cannot be written: {failure}") from failure
        except asyncio.CancelledError:
            raise BackupRefused(STOPPED) from None
        finally:
            await asyncio.to_thread(shutil.rmtree, self._draft, ignore_errors=True)
        copier = self._copier
        _log.info(
            "backup %s is whole: %d files, %d bytes linked and %d copied; `pqbroker restore` reads it",
            self._target, copier.files, copier.linked_bytes, copier.copied_bytes,
        )  # fmt: skip
        return BackupFacts(str(self._target), number, copier.files, copier.linked_bytes, copier.copied_bytes)

    async def _copy(self, copies: Sequence[Callable[[CopySteps], Coroutine[Any, Any, Any]]]) -> int:
        """Return the number of the last round of the last copy."""
        begun: list[tuple[CopySteps, asyncio.Task[Any]]] = []
        try:
            for copy in copies:
                steps = CopySteps()
                begun.append((steps, asyncio.create_task(copy(steps))))
                await reach(steps.begun, begun[-1][1])
            async with self._during:
                for steps, task in begun:
                    steps.may_take.set()
                    await reach(steps.taken, task)
            number = 0
            for steps, task in begun:
                steps.may_end.set()
                number = await task
        finally:
            await _end_tasks([task for _, task in begun])
        return number

    def _begin(self) -> None:
        self._directory.make()
        shutil.rmtree(self._draft, ignore_errors=True)  # of a broker that was killed

    def _end(self) -> None:
        for folder, _, _ in os.walk(self._draft):
            fsync_directory(Path(folder))
        os.rename(self._draft, self._target)
        fsync_directory(self._target.parent)


async def _end_tasks(tasks: Sequence["asyncio.Task[Any]"]) -> None:
    """End tasks that have not ended by themselves, and return when they have."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
