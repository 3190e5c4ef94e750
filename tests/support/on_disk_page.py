"""Writes the worked example of docs/on-disk.md from a directory made for it: `python -m tests.support.on_disk_page`."""

import asyncio
import json
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from unittest.mock import patch
from uuid import UUID

from pqbroker.broker.services.cells.cell_owner import OpenCell, open_cell
from pqbroker.conf.broker import BrokerSettings
from pqbroker.pq.log.consumers import ConsumerOffset
from pqbroker.protocol import records
from pqbroker.protocol.produced_batches import check_produced
from pqbroker.protocol.records import Record
from pqbroker.storage.disk.commits.commit_log import CommitLog
from pqbroker.storage.disk.rocks import RocksEngine
from pqbroker.storage.disk.rocks_index import RocksIndex
from tests.support.on_disk import (
    ROWS,
    Fields,
    Row,
    blob_id_text,
    explain_body,
    explain_commits,
    explain_log,
    explain_operation,
    explain_row,
    explain_segment,
    read_value,
)

PAGE = Path(__file__).resolve().parents[2] / "docs" / "on-disk.md"
BEGIN = "<!-- written by python -m tests.support.on_disk_page -->\n"
END = "<!-- end -->\n"
NOW_MS = 1_700_000_000_000
TOPIC_TABLET = 65_536
SHOWN_BYTES = 24


async def make_directory(path: Path) -> None:
    """A broker's directory after two starts. In the first a topic was made, with a body of two batches and a head of
    one, and a consumer committed an offset."""
    opened = await _open(path)
    topic = await opened.topics.create("greetings", 1, {"pq.low.watermark.bytes": "2048"})
    partition = topic.partitions[0]
    for sequence, value in enumerate((b"hello", b"x" * 2000, b"bye")):
        encoded = memoryview(
            records.encode_batch(
                [Record(0, NOW_MS, None, value)], producer_id=7, producer_epoch=0, base_sequence=sequence
            )
        )
        await partition.write(encoded, check_produced(encoded, 1 << 20))
    await opened.topics.offsets.commit("readers", {("greetings", 0): ConsumerOffset(2, 1, "half", NOW_MS)})
    await _close(opened)
    await _close(await _open(path))


async def _open(path: Path) -> OpenCell:
    return await open_cell(RocksEngine(path, ballast_bytes=0), BrokerSettings(ballast_bytes=0), lambda: NOW_MS)


async def _close(opened: OpenCell) -> None:
    await opened.stop()
    await opened.cell.close()


def example_directory(path: Path) -> None:
    """The same bytes each time: what is random is not."""
    with (
        patch("pqbroker.storage.ids.secrets.token_bytes", lambda count: bytes(range(count))),
        patch("pqbroker.storage.disk.directory.uuid.uuid4", lambda: UUID(int=12)),
        rounds_kept(),
    ):
        asyncio.run(make_directory(path))


def rounds_kept() -> AbstractContextManager[object]:
    """Cells that are closed leave their rounds in the commit log, as one does where its disk is full."""
    return patch.object(CommitLog, "begin_again", lambda log: None)


def index_rows(path: Path) -> list[tuple[bytes, bytes]]:
    """Every row of the index of a closed directory, in order."""
    (found,) = path.glob("index-*")
    index = RocksIndex(found)
    index.open(create=False)
    rows = list(index.rows(b"\0", b"\xff"))
    index.close()
    return rows


def example_page(path: Path) -> str:
    """The page with the worked example of the directory."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + "\n".join(_example(path)) + "\n" + END + after


def _example(path: Path) -> Iterator[str]:
    rows = [(key, explain_row(key, value)) for key, value in index_rows(path)]
    segments = sorted((path / "blobs").glob("*.segment"))
    logs = sorted(path.glob("index-*/commits/*.commits"))
    cell = json.loads((path / "cell").read_text())["cell"]
    yield "\nThe files:\n"
    yield "```"
    for file in sorted(path.rglob("*")):
        name = file.relative_to(path).as_posix()
        if file.is_file() and (not name.startswith("index-") or file.parent.name == "commits"):
            yield f"{name:40} {file.stat().st_size if name != 'lock' else 'a few'} bytes"
    yield f"{next(path.glob('index-*')).name + '/':40} RocksDB"
    yield "```"
    yield "\nThe file `cell`:\n"
    yield "```json"
    yield (path / "cell").read_text().strip()
    yield "```"
    yield "\nThe rows of the index, but for those that only repeat another tablet's:\n"
    yield "```"
    left_out = 0
    for key, row in rows:
        if _is_like_another(key, row):
            left_out += 1
        else:
            yield from _row(row)
    yield f"\n{left_out} rows more: the same of the coordinators' tablets 17 to 31, and other slots' commit numbers"
    yield "```"
    yield "\nThe segment:\n"
    for segment in segments:
        yield "```"
        for text, record in explain_segment(segment.read_bytes(), cell):
            yield f"{segment.name}: {text if text == ROWS else 'blob ' + text}"
            yield from _fields(record)
            if text == ROWS:
                continue
            yield "    the payload:"
            yield from _fields(explain_body(record.found[-1][1]), "        ")
        yield "```"


    yield "\nThe commit log:\n"
    for log in logs:
        yield "```"
        for record in explain_commits(log.read_bytes(), cell)[:3]:
            yield f"{log.name}:"
            yield from _fields(record)
        yield "```"


def _is_like_another(key: bytes, row: Row) -> bool:
    if row.kind == "commit number":
        return key[1:] != b"\0\1"
    return row.kind in ("tablet", "block") and 16 < int.from_bytes(key[2:10], "big") < TOPIC_TABLET


def _row(row: Row) -> Iterator[str]:
    yield f"\n{row.kind}"
    yield from _fields(row.key, "    key   ")
    if row.kind == "blob" and row.value.found[-1][0] == "payload":
        yield from _fields(Fields(b"", row.value.found[:-1]), "    value ")
        yield from _base_tablet_blob(row.key.data[1:], row.value.found[-1][1])
    else:
        yield from _fields(row.value, "    value ")


def _base_tablet_blob(key: bytes, payload: bytes) -> Iterator[str]:
    """What a blob in channel 0 or 1 says."""
    if key[8] == 0:
        (first, previous, parts), operations = explain_log(payload)
        names = [blob_id_text(part) if part else "none" for part in (first, previous)]
        yield f"          log blob: first {names[0]}, previous {names[1]}, snapshot of {len(parts)} blobs"
    else:
        operations, _ = read_value(payload, 0)
    for operation in operations:
        yield f"            {explain_operation(operation)}"


def _fields(fields: Fields, indent: str = "    ") -> Iterator[str]:
    for name, raw, meaning in fields.found:
        if name == "separator":
            continue
        shown = raw[:SHOWN_BYTES].hex() + (f"… {len(raw)} bytes" if len(raw) > SHOWN_BYTES else "")
        yield f"{indent}{name:20} {shown:50} {meaning}".rstrip()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        example_directory(Path(scratch, "data"))
        PAGE.write_text(example_page(Path(scratch, "data")), encoding="utf-8")
