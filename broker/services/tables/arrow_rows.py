"""Rows that come as an Arrow IPC stream. A worker makes record batches of them: the broker loads none of the libraries
that can, and what a hostile stream takes of memory or time is the worker's.
"""

import asyncio
from typing import Any

from pqbroker.broker.services.tables.callers import TablesNode
from pqbroker.broker.services.tables.encoded_rows import EncodedRows, TabletRows
from pqbroker.tables.refusals import TableError
from pqbroker.tables.schema import Schema
from pqbroker.tables.work.messages import Message
from pqbroker.tables.work.process import MEMORY_EXIT, WorkerGone, WorkerProcess


async def encode_arrow(node: TablesNode, schema: Schema, stream: bytes, batch_bytes_max: int) -> EncodedRows:
    """TableError. Each stream has a worker of its own."""
    settings, workers = node.settings, node.workers
    document = {
        "schema": schema.documents(), "formats": schema.format_configs, "now_ms": node.clock(),
        "batch_bytes_max": batch_bytes_max,
        "memory_bytes_max": settings.sql_memory_bytes_max,
    }  # fmt: skip
    worker, answer = await _answered(node, document, stream)
    if answer.document.get("resident_bytes", 0) < settings.sql_memory_bytes_max // 2:
        workers.give_back(worker, settings.sql_worker_idle_ms / 1000)
    else:
        await workers.end(worker)
    return _encoded(answer)


async def _answered(node: TablesNode, document: dict[str, Any], stream: bytes) -> tuple[WorkerProcess, Message]:
    """Return a worker and what it makes of the rows. One that rested may be dead by now; then another is asked."""
    settings, workers = node.settings, node.workers
    while True:
        worker = await workers.take()
        try:
            return worker, await _asked(worker, document, stream, settings.sql_time_ms_max)
        except WorkerGone:
            status = await workers.end(worker)
            if worker.is_new or status == MEMORY_EXIT:
                raise _gone(status, settings.sql_memory_bytes_max) from None
        except BaseException:
            await workers.end(worker)
            raise


async def _asked(worker: WorkerProcess, document: dict[str, Any], stream: bytes, time_ms: int) -> Message:
    try:
        async with asyncio.timeout(time_ms / 1000):
            await worker.send("rows", document, [stream])
            return await worker.receive()
    except TimeoutError:
        text = f"the rows took longer to encode than pqbroker.sql.time.ms.max = {time_ms}"
        raise TableError("ROWS_TOO_LARGE", text, "Send fewer rows at once, or raise the setting.") from None


def _encoded(answer: Message) -> EncodedRows:
    if answer.kind == "refused":
        raise TableError(**answer.document)
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
