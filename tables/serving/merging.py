"""One flush, compaction or partitioning: a worker merges what is stored, its pieces are staged, one request names them.

    asked --pieces staged under temporary keys--> merged --one KV request--> named as chunks; what they replace is gone
          --refused, worker lost, cancelled-----> the pieces are removed; nothing else has changed

A crash leaves pieces without a name, which the next start removes.
"""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pqbroker.storage.engine import BlobCorrupt, BlobMissing, Buffer, CommitRefused, FileRange, ShardLost
from pqbroker.storage.kv.commands import Command, DeleteRange, Write
from pqbroker.storage.kv.tablet import KeyValueTablet
from pqbroker.tables.serving.share import SortedSettings, SortedShare
from pqbroker.tables.serving.stored_keys import CHUNK_CHANNEL, piece_key, pieces_of
from pqbroker.tables.sorted.schema import SortedSchema
from pqbroker.tables.sorted.versions import VERSIONS_MAX, CleanUp
from pqbroker.tables.work.messages import Message
from pqbroker.tables.work.process import MEMORY_EXIT, WorkerGone, WorkerProcess

MERGE_ATTEMPTS_MAX = 3
"""Tries of a merge whose inputs are moved to other files meanwhile."""


class MergeFailed(Exception):
    """A merge that changed nothing. `damaged_input`: number of the input that is the cause; None: none is."""

    def __init__(self, code: str, message: str, cure: str, damaged_input: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.cure = cure
        self.damaged_input = damaged_input


class MergeInput(NamedTuple):
    """A value that a merge reads: `kind` is "log" or "chunk"."""

    kind: str
    key: bytes


class MergedChunk(NamedTuple):
    """A new chunk: what the worker says of it, and the keys of its pieces."""

    facts: Mapping[str, Any]
    pieces: Sequence[bytes]


class MergeRules(NamedTuple):
    """Rules for the versions that a merge reads. `clean_up` None: all stay. `pivots`: of the ranges behind the first,
    which have chunks of their own."""

    clean_up: CleanUp | None = None
    pivots: Sequence[bytes] = ()
    merges_deletes: bool = False


class Merged(NamedTuple):
    """The outcome of a merge, staged."""

    chunks: Sequence[MergedChunk]
    rows_read: int
    bytes_read: int
    bytes_written: int


class MergeTablets(NamedTuple):
    """The tablet that a merge reads; `targets`: those that the new chunks are for, one for each range between pivots;
    None: they are for this one."""

    read: KeyValueTablet
    targets: Sequence[KeyValueTablet] | None = None

    def target(self, partition: int) -> KeyValueTablet:
        """Return the tablet that a range's chunks are staged in."""
        return self.read if self.targets is None else self.targets[partition]


class Merge:
    """One merge. `task`: number of its temporary keys."""

    def __init__(
        self, share: SortedShare, tablets: MergeTablets, task: int, inputs: Sequence[MergeInput],
        document: Mapping[str, Any],
    ) -> None:
        self._share = share
        self.kv = tablets.read
        """Keys of the tablet's generation that the merge belongs to."""
        self._tablets = tablets
        self._task = task
        self._inputs = inputs
        self._document = document
        self.bytes_written = 0
        """Bytes that were staged so far."""

    async def run(self) -> Merged:
        """Merge and stage. MergeFailed, CommitRefused, ShardLost; the pieces are gone then."""
        for attempt in range(MERGE_ATTEMPTS_MAX):
            try:
                return await self._try()
            except MergeFailed as failure:
                await self.drop()
                if failure.code != "INPUT_GONE" or attempt + 1 == MERGE_ATTEMPTS_MAX:
                    raise
            except BaseException:
                await self.drop()
                raise
        raise AssertionError("the last try returned or raised")

    async def drop(self) -> None:
        """Remove what was staged; if that is refused, the next look of background work tries again. A tablet that is
        lost, or was started again, has it removed at its start."""
        first, end = pieces_of(self._task)
        for kv in self._tablets.targets or [self.kv]:
            with contextlib.suppress(ShardLost):
                try:
                    await kv.execute([DeleteRange(first, True, end, False)])
                except CommitRefused:
                    self._share.undropped.append(self)

    async def _try(self) -> Merged:
        inputs, payload, bytes_read = await self._located()
        document = {**self._document, "inputs": inputs}
        settings = self._share.settings
        workers = self._share.workers
        while True:
            worker = await workers.take()
            try:
                await worker.send("merge", document, payload)
                answer, pieces = await self._received(worker)
            except WorkerGone:
                status = await workers.end(worker)
                if worker.is_new or status == MEMORY_EXIT:
                    raise _lost(status, settings.memory_bytes_max) from None
                continue
            except BaseException:
                await workers.stop(worker, settings.worker_idle_s, settings.memory_bytes_max // 2)
                raise
            break
        if answer.document.get("resident_bytes", 0) < settings.memory_bytes_max // 2:
            workers.give_back(worker, settings.worker_idle_s)
        else:
            await workers.end(worker)
        if answer.kind == "refused":
            said = answer.document
            raise MergeFailed(said["code"], said["message"], said["cure"], said.get("input"))
        chunks = [
            MergedChunk(facts, pieces.get(number, ())) for number, facts in enumerate(answer.document["chunks"])
        ]
        return Merged(chunks, answer.document["rows_read"], bytes_read, self.bytes_written)

    async def _received(self, worker: WorkerProcess) -> tuple[Message, dict[int, list[bytes]]]:
        """Stage pieces as they come, up to the last message. WorkerGone; CommitRefused, ShardLost."""
        pieces: dict[int, list[bytes]] = {}
        count = 0
        while True:
            message = await worker.receive()
            if message.kind != "piece":
                return message, pieces
            size = len(message.payload)
            await self._share.rate.take(size)
            key = piece_key(self._task, count)
            kv = self._tablets.target(message.document["partition"])
            await kv.execute([Write(key, [message.payload], size, CHUNK_CHANNEL)])
            pieces.setdefault(message.document["chunk"], []).append(key)
            count += 1
            self.bytes_written += size

    async def _located(self) -> tuple[list[Mapping[str, Any]], list[Buffer], int]:
        """Return what a message says of the inputs, and the bytes of those that lie in no file."""
        documents: list[Mapping[str, Any]] = []
        payload: list[Buffer] = []
        total = 0
        for number, (kind, key) in enumerate(self._inputs):
            entry = self.kv.entry(key)
            assert entry is not None, "the tablet alone removes its logs and chunks"
            parts = await self._parts(number, kind, key, entry.size)
            pieces: list[Any] = []
            for part in parts:
                if isinstance(part, FileRange):
                    pieces.append([part.path, part.position, part.size])
                else:
                    pieces.append(len(part))
                    payload.append(part)
            documents.append({"kind": kind, "pieces": pieces})
            total += entry.size
        return documents, payload, total

    async def _parts(self, number: int, kind: str, key: bytes, size: int) -> Sequence[Buffer | FileRange]:
        """Return an input's bytes, or where they lie. Logs are verified; blocks of chunks have checksums that their
        reader looks at. MergeFailed INPUT_DAMAGED; ShardLost."""
        try:
            (located,) = await self.kv.verify([(key, 0, size)], by_reader=kind == "chunk")
            return (await self.kv.read([(key, 0, size)]))[0] if located is None else located
        except (BlobCorrupt, BlobMissing) as damage:
            cure = "Stop the broker, see what `pqbroker doctor` says, and restore the directory from a copy."
            raise MergeFailed("INPUT_DAMAGED", str(damage), cure, number) from None


def merge_document(
    schema: SortedSchema, settings: SortedSettings, rules: MergeRules, samples_max: int
) -> dict[str, Any]:
    """Return the document that asks a worker for a merge; its inputs are added."""
    clean_up = rules.clean_up
    return {
        "schema": {
            "key": [(column.name, column.type.name) for column in schema.keys],
            "value": [(column.name, column.type.name) for column in schema.values],
        },
        "clean_up": None if clean_up is None else {name: getattr(clean_up, name) for name in CleanUp.__slots__},
        "pivots": [pivot.hex() for pivot in rules.pivots],
        "samples_max": samples_max,
        "chunk_bytes_max": settings.chunk_bytes_max,
        "versions_max": VERSIONS_MAX,
        "merge_deletions": rules.merges_deletes,
        "memory_bytes_max": settings.memory_bytes_max,
    }


def removal(inputs: Sequence[MergeInput]) -> list[Command]:
    """Return the commands that remove what was merged, but for the records of chunks."""
    return [DeleteRange(item.key, True, item.key, True) for item in inputs]


def _lost(status: int, memory_bytes_max: int) -> MergeFailed:
    if status == MEMORY_EXIT:
        text = f"the merge needs more memory than pqbroker.table.merge.memory.bytes.max = {memory_bytes_max}"
        return MergeFailed("MERGE_TOO_LARGE", text, "Raise the setting.")
    text = f"the process that merged ended with status {status}"
    return MergeFailed("WORKER_LOST", text, "It is tried again; the log of the broker may say why it ended.")


