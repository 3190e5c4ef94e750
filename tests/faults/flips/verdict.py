"""Whether a directory with a flipped bit gives back what it owes, and if not, whether a start or the doctor says so."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pqbroker.broker.services.cells.cell_owner import OpenCell
from pqbroker.conf.storage import MAIN_POOL
from pqbroker.storage.disk.backups.restoring import restore
from pqbroker.storage.disk.preview import preview
from pqbroker.storage.engine import EngineError
from pqbroker.storage.tablets.start_check import check_start
from tests.faults.diagnosis import named_damages
from tests.faults.story.book import Book, Owed
from tests.faults.story.reading import close, opened_cell, read_back

_TORN = "a power cut tore"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`missing`: what is owed and was not read back the same; `named`: what a start or the doctor says of damage."""

    missing: tuple[str, ...]
    named: tuple[str, ...]
    is_torn: bool
    """The start took something for what a power cut leaves."""

    @property
    def is_silent(self) -> bool:
        return bool(self.missing) and not self.named


def judge(path: Path, book: Book, owed: Owed, *, restored: Path | None = None) -> Verdict:
    """Ask the doctor, then start on the directory, or on what is restored of it, and read all."""
    return asyncio.run(_judge(path, book, owed, restored))


async def _judge(path: Path, book: Book, owed: Owed, restored: Path | None) -> Verdict:
    with _warnings() as heard:
        named = await named_damages(path)
        try:
            if restored is not None:
                restore(path, restored, {}, lambda size: None)
                path = restored
            await preview(path, {MAIN_POOL: path / "blobs"}, check_start)
            opened = await opened_cell(path)
        except EngineError as refusal:
            return Verdict((), (*named, str(refusal)), _is_torn(heard))
        try:
            missing = await read_back(opened, book, owed)
            named += tuple(_damages(opened))
        finally:
            await close(opened)
    return Verdict(tuple(missing), named, _is_torn(heard))


def _damages(opened: OpenCell) -> Iterator[str]:
    """Return the findings of the start in each cell."""
    for cell, host in opened.cells.hosts():
        yield from (f"{cell}: {place}: {cause}" for place, cause in host.cell.quarantine.damages.items())
    yield from (failure for cell in opened.hive.cells if (failure := opened.others.failure(cell)))


class _Heard(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@contextmanager
def _warnings() -> Iterator[_Heard]:
    """Collect warnings of the storage floor, and show none."""
    heard, logger = _Heard(), logging.getLogger("pqbroker")
    was = logger.propagate
    logger.addHandler(heard)
    logger.propagate = False
    try:
        yield heard
    finally:
        logger.propagate = was
        logger.removeHandler(heard)


def _is_torn(heard: _Heard) -> bool:
    return any(line.startswith(_TORN) for line in heard.lines)
