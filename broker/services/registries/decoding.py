"""Records of an answer decoded by a worker, within the limits of settings. Where that fails, records stay raw, and each
says why.

The worker asks the registry: the loop waits for nobody, and a schema that takes memory or time costs a worker at most.
"""

import asyncio
import json
from collections.abc import Sequence
from typing import Any, Final

from pqbroker.broker.services.sql.workers import Workers
from pqbroker.conf.broker import BrokerSettings
from pqbroker.tables.work.messages import Message
from pqbroker.tables.work.process import MEMORY_EXIT, WorkerGone, WorkerProcess

Contents = Sequence[tuple[bytes | None, bytes | None]]
"""Keys and values of records."""
GRACE_MS: Final = 2_000
"""Time beyond its own limits after which a worker is ended."""


class RecordDecoding:
    """Decodes for one client."""

    def __init__(self, workers: Workers, settings: BrokerSettings, holder: str) -> None:
        self._workers = workers
        self._settings = settings
        self._holder = holder

    async def decode(self, decoding: dict[str, Any], contents: Contents) -> list[dict[str, Any]]:
        """Return by record, and then by part, {schema, type, content} or {code, reason}."""
        settings, slots = self._settings, self._workers.decodings
        if not contents:
            return []
        most = settings.registry_decodings_max
        try:
            async with asyncio.timeout(settings.registry_decoding_ms_max / 1000 if most else 0):
                await slots.begin(self._holder, most)
        except TimeoutError:
            text = f"{slots.running} answers are being decoded, of at most pqbroker.registry.decodings.max = {most}"
            return _raw(decoding, contents, "TOO_MANY_DECODINGS", text)
        try:
            return await self._decoded(decoding, contents)
        finally:
            slots.end(self._holder)

    async def _decoded(self, decoding: dict[str, Any], contents: Contents) -> list[dict[str, Any]]:
        """Ask a worker. One that rested may be dead by now; then another is asked."""
        settings = self._settings
        while True:
            worker = await self._workers.take()
            try:
                answer = await self._ask(worker, decoding, contents)
                break
            except WorkerGone:
                status = await self._workers.end(worker)
                if worker.is_new or status == MEMORY_EXIT:
                    return _raw(decoding, contents, "WORKER_LOST", _lost(status, settings.sql_memory_bytes_max))
            except TimeoutError:
                await self._workers.end(worker)
                most_ms = settings.registry_decoding_ms_max
                text = f"decoding took longer than pqbroker.registry.decoding.ms.max = {most_ms}"
                return _raw(decoding, contents, "DECODING_TOO_LONG", text)
            except BaseException:
                await self._workers.end(worker)
                raise
        if answer.document["resident_bytes"] < settings.sql_memory_bytes_max // 2:
            self._workers.give_back(worker, settings.sql_worker_idle_ms / 1000)
        else:
            await self._workers.end(worker)
        found: list[dict[str, Any]] = await asyncio.to_thread(json.loads, bytes(answer.payload))
        return found

    async def _ask(self, worker: WorkerProcess, decoding: dict[str, Any], contents: Contents) -> Message:
        settings = self._settings
        document = {
            "decoding": decoding, "time_ms": settings.registry_decoding_ms_max,
            "sizes": [[None if part is None else len(part) for part in record] for record in contents],
            "answer_bytes_max": settings.http_answer_bytes_max, "memory_bytes_max": settings.sql_memory_bytes_max,
        }  # fmt: skip
        time_ms = settings.registry_decoding_ms_max + settings.registry_timeout_ms + GRACE_MS
        async with asyncio.timeout(time_ms / 1000):
            await worker.send("decode", document, [part for record in contents for part in record if part is not None])
            return await worker.receive()


def _raw(decoding: dict[str, Any], contents: Contents, code: str, reason: str) -> list[dict[str, Any]]:
    parts = decoding["parts"]
    shown = {"code": code, "reason": reason}
    return [
        {part: shown for part, content in zip(("key", "value"), record, strict=True) if part in parts and content}
        for record in contents
    ]


def _lost(status: int, memory_bytes_max: int) -> str:
    if status == MEMORY_EXIT:
        return f"decoding needs more memory than pqbroker.sql.memory.bytes.max = {memory_bytes_max}"
    return f"the process that decoded ended with status {status}; the broker's log may say why"
