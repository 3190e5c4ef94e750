"""Merges and scans in a worker process: answered, refused, stopped, and bounded in memory."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pyarrow

from pqbroker.tables.sorted.versions import TooManyVersions
from pqbroker.tables.work.messages import Message
from pqbroker.tables.work.process import WorkerProcess
from tests.tables.work.sorted.test_merging import NEWEST_ALONE, TEXTS, read, texts
from tests.tables.work.sorted.worker_line import in_file, log_of, merged, question

MEMORY_BYTES = 180 << 20


@asynccontextmanager
async def worker() -> AsyncIterator[WorkerProcess]:
    process = await WorkerProcess.start()
    try:
        yield process
    finally:
        await process.end()


async def answers(process: WorkerProcess, kind: str, document: Any, payload: bytes = b"") -> list[Message]:
    """Every message of one answer."""
    await process.send(kind, document, [payload])
    found = [await process.receive()]
    while found[-1].kind in ("piece", "result"):
        found.append(await process.receive())
    return found


async def test_a_worker_flushes_merges_scans_and_refuses_one_after_another() -> None:
    log = log_of(TEXTS, [*texts(range(3000), 1000), *texts([5, 6], 9000)])
    inputs = [{"kind": "log", "pieces": [len(log)]}]
    async with worker() as process:
        *pieces, last = await answers(process, "merge", question(TEXTS, inputs), log)
        chunk = b"".join(bytes(piece.payload) for piece in pieces)
        assert last.kind == "merged"
        assert len(pieces) > 1
        assert last.document["chunks"][0]["size"] == len(chunk)
        assert last.document["resident_bytes"] > 1 << 20
        assert len(read(TEXTS, [chunk])) == 3002
        inputs = [{"kind": "chunk", "pieces": [len(chunk)]}]
        asked = {
            "schema": {"key": TEXTS[0], "value": TEXTS[1]}, "inputs": inputs, "columns": ["id"], "timestamp": 1 << 60,
            "first": "", "end": None, "rows_max": None, "format": "arrow", "memory_bytes_max": 256 << 20,
        }  # fmt: skip
        *pieces, last = await answers(process, "scan", asked, chunk)
        with pyarrow.ipc.open_stream(b"".join(bytes(piece.payload) for piece in pieces)) as stream:
            assert stream.read_all()["id"].to_pylist() == list(range(3000))
        assert (last.kind, last.document["rows"]) == ("done", 3000)
        (refusal,) = await answers(process, "merge", question(TEXTS, inputs, versions_max=1), chunk)
        assert (refusal.kind, refusal.document["code"]) == ("refused", "TOO_MANY_VERSIONS")
        assert refusal.document["cure"] == TooManyVersions("write", 2, 1).cure
        (refusal,) = await answers(process, "merge", question(TEXTS, inputs), bytes(len(chunk)))
        assert (refusal.document["code"], refusal.document["input"]) == ("INPUT_DAMAGED", 0)


async def test_a_merge_that_is_stopped_leaves_a_worker_that_takes_the_next(tmp_path: Path) -> None:
    """The broker reads no pieces meanwhile: the socket is full when it says to stop."""
    (chunk,) = merged(TEXTS, [log_of(TEXTS, texts(range(20_000), 1000))])[0]
    asked = question(TEXTS, [in_file(tmp_path / "chunk", chunk)], clean_up=NEWEST_ALONE)
    async with worker() as process:
        await process.send("merge", asked)
        assert (await process.receive()).kind == "piece"
        assert await process.stop() is not None
        *pieces, last = await answers(process, "merge", asked)
        assert last.kind == "merged"
        assert len(read(TEXTS, [b"".join(bytes(piece.payload) for piece in pieces)])) == 20_000


async def test_a_merge_of_more_than_the_workers_memory_goes_range_by_range(tmp_path: Path) -> None:
    """200 MB of rows within 180 MiB of memory, libraries and all."""
    text = "x" * 10_000
    inputs = []
    for part in range(3):
        rows: list[Any] = [((at,), 1 + at, [text + str(at)], False) for at in range(part, 20_000, 3)]
        (chunk,) = merged(TEXTS, [log_of(TEXTS, rows)])[0]
        inputs.append(in_file(tmp_path / str(part), chunk))
    async with worker() as process:
        await process.send("merge", question(TEXTS, inputs, memory_bytes_max=MEMORY_BYTES))
        while (answer := await process.receive()).kind == "piece":
            pass
        assert answer.kind == "merged"
        assert answer.document["rows_read"] == 20_000
        assert answer.document["resident_bytes"] < MEMORY_BYTES
