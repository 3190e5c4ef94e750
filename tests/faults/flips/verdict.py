"""Whether a directory with a flipped bit gives back what it owes, and if not, whether a start or the doctor says so."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pqbroker.broker.services.cells.cell_owner import OpenCell
from pqbroker.conf.storage import MAIN_POOL
from pqbroker.doctor.checkup import examine
from pqbroker.doctor.findings import Findings, Weight
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.protocol.errors import KafkaError
from pqbroker.protocol.records import read_header
from pqbroker.storage.engine import EngineError
from pqbroker.storage.tablets.preview import preview
from tests.faults.flips.story import COVERED_FROM, Owed, Place, close, opened_cell
from tests.pq.rig import read

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


def judge(path: Path, owed: Owed) -> Verdict:
    """Ask the doctor, then start on the directory and read all."""
    return asyncio.run(_judge(path, owed))


async def _judge(path: Path, owed: Owed) -> Verdict:
    with _warnings() as heard:
        named = await _diagnose(path)
        try:
            await preview(path, {MAIN_POOL: path / "blobs"})
            opened = await opened_cell(path)
        except EngineError as refusal:
            return Verdict((), (*named, str(refusal)), _is_torn(heard))
        try:
            missing = await _read_back(opened, owed)
            named += tuple(f"{place}: {cause}" for place, cause in opened.cell.quarantine.damages.items())
        finally:
            await close(opened)
    return Verdict(tuple(missing), named, _is_torn(heard))


async def _read_back(opened: OpenCell, owed: Owed) -> list[str]:
    """What is not read back the same."""
    missing: list[str] = []
    for place, known in owed.batches.items():
        topic = opened.topics.get(place[0])
        if topic is None:
            missing.append(f"topic {place[0]} is gone")
        else:
            missing += await _read_partition(topic.partitions[place[1]], place, known)
    for group, offsets in owed.offsets.items():
        missing += _read_offsets(opened, group, offsets)
    return missing


async def _read_partition(server: PartitionServer, place: Place, known: list[tuple[int, bytes]]) -> list[str]:
    name = f"{place[0]}-{place[1]}"
    if server.state.unreadable is not None:
        return [f"{name} is unreadable"]
    end = known[-1][0] + 1
    missing = [f"{name} ends at {server.end_offset}, not {end}"] if server.end_offset < end else []
    for offset, content in known:
        try:
            found = b"".join((await read(server, offset, 1)).in_memory())
        except (KafkaError, AssertionError) as cannot:
            missing.append(f"{name} at {offset}: {cannot!r}")
            continue
        header = read_header(memoryview(found), 0) if found else None
        if header is None or header.base_offset != offset or found[COVERED_FROM : header.size_bytes] != content:
            missing.append(f"{name} at {offset} has other bytes")
    return missing


def _read_offsets(opened: OpenCell, group: str, offsets: dict[Place, int]) -> list[str]:
    missing = []
    for place, offset in offsets.items():
        topic = opened.topics.get(place[0])
        state = topic.partitions[place[1]].consumers.get(group) if topic else None
        found = state.offset if state else None
        if found != offset:
            missing.append(f"group {group} has {found} in {place}, not {offset}")
    return missing


async def _diagnose(path: Path) -> tuple[str, ...]:
    """What the doctor names."""
    findings = Findings(lambda size: None)
    try:
        await examine(path, {}, findings, lambda total: None)
    except EngineError as refusal:
        return (str(refusal),)
    return tuple(f"{found.where}: {found.what}" for found in findings.found if found.weight is Weight.DAMAGE)


class _Heard(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@contextmanager
def _warnings() -> Iterator[_Heard]:
    """What the storage floor warns of, and nothing of it is shown."""
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
