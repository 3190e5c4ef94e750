"""Rows that come as an Arrow IPC stream. A worker makes record batches of them: the broker loads none of the libraries
that can, and what a hostile stream takes of memory or time is the worker's.
"""

import asyncio
from itertools import accumulate, pairwise
from typing import Any, Final

from pqbroker.broker.services.tables.callers import TablesNode
from pqbroker.broker.services.tables.encoded_rows import EncodedRows, TabletRows
from pqbroker.tables.refusals import TableError
from pqbroker.tables.schema import Schema
from pqbroker.tables.sorted.log_entries import NewRow
from pqbroker.tables.sorted.schema import SortedSchema
from pqbroker.tables.work.messages import Message
from pqbroker.tables.work.process import MEMORY_EXIT, WorkerGone, WorkerProcess

LENGTH_BYTES: Final = 4


async def encode_arrow(node: TablesNode, schema: Schema, stream: bytes, batch_bytes_max: int) -> EncodedRows:
    """TableError. Each stream has a worker of its own."""
    settings = node.settings
    document = {
        "schema": schema.documents(), "formats": schema.format_configs, "now_ms": node.clock(),
        "batch_bytes_max": batch_bytes_max,
        "memory_bytes_max": settings.sql_memory_bytes_max,
    }  # fmt: skip
    return _encoded(await _answer(node, "rows", document, stream))


async def encode_sorted_arrow(
    node: TablesNode, schema: SortedSchema, stream: bytes, *, is_update: bool
) -> list[NewRow]:
    """Return the rows of a stream as a sorted table writes them, as `sorted.rows.encode_rows` does. TableError."""
    document = {
        "schema": schema.documents(), "is_update": is_update, "memory_bytes_max": node.settings.sql_memory_bytes_max,
    }  # fmt: skip
    answer = await _answer(node, "sorted_rows", document, stream)
    return await asyncio.to_thread(_unpacked, answer)


def _unpacked(answer: Message) -> list[NewRow]:
    rows, payload = answer.document["rows"], memoryview(answer.payload)
    lengths = payload[: 2 * rows * LENGTH_BYTES].cast("I")
    content = bytes(payload[2 * rows * LENGTH_BYTES :])
    ends = list(accumulate(lengths, initial=0))
    parts = [content[begin:end] for begin, end in pairwise(ends)]
    return list(map(NewRow, parts[:rows], parts[rows:]))


async def _answer(node: TablesNode, kind: str, document: dict[str, Any], stream: bytes) -> Message:
    """Return what a worker makes of rows. TableError."""
    settings, workers = node.settings, node.workers
    worker, answer = await _answered(node, kind, document, stream)
    if answer.document.get("resident_bytes", 0) < settings.sql_memory_bytes_max // 2:
        workers.give_back(worker, settings.sql_worker_idle_ms / 1000)
    else:
        await workers.end(worker)
    if answer.kind == "refused":
        raise TableError(**answer.document)
    return answer


async def _answered(
    node: TablesNode, kind: str, document: dict[str, Any], stream: bytes
) -> tuple[WorkerProcess, Message]:
    """Return a worker and what it makes of the rows. One that rested may be dead by now; then another is asked."""
    settings, workers = node.settings, node.workers
    while True:
        worker = await workers.take()
        try:
            return worker, await _asked(worker, (kind, document), stream, settings.sql_time_ms_max)
        except WorkerGone:
            status = await workers.end(worker)
            if worker.is_new or status == MEMORY_EXIT:
                raise _gone(status, settings.sql_memory_bytes_max) from None
        except BaseException:
            await workers.end(worker)
            raise


async def _asked(
    worker: WorkerProcess, question: tuple[str, dict[str, Any]], stream: bytes, time_ms: int
) -> Message:
    try:
        async with asyncio.timeout(time_ms / 1000):
            await worker.send(*question, [stream])
            return await worker.receive()
    except TimeoutError:
        text = f"the rows took longer to encode than pqbroker.sql.time.ms.max = {time_ms}"
        raise TableError("ROWS_TOO_LARGE", text, "Send fewer rows at once, or raise the setting.") from None


def _encoded(answer: Message) -> EncodedRows:
    payload = memoryview(bytearray(answer.payload))  # offsets are stamped into batches
    batches = []
    start = 0
    for index, row_count, size in answer.document["tablets"]:
        batches.append(TabletRows(index, row_count, payload[start : start + size]))
        start += size
    return EncodedRows(batches, answer.document["weight"])


def _gone(status: int, memory_bytes_max: int) -> TableError:
    if status == MEMORY_EXIT:
        text = f"the rows need more memory than pqbroker.sql.memory.bytes.max = {memory_bytes_max}"
        return TableError("ROWS_TOO_LARGE", text, "Send fewer rows at once, or raise the setting.")
    text = f"the process that encoded the rows ended with status {status}"
    return TableError("WORKER_LOST", text, "Try again; the log of the broker may say why it ended.")
