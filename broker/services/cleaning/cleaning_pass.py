"""One pass of the cleaner over one partition: a worker reads its bodies and makes new ones, which take their place.

    keys      dirty   -> keys     batches that are not cleaned yet
    keys      window  -> windows
    windows   window  -> windows  the bodies from an offset on that become one; the worker's answer is kept, or made
                                  durable in their place before the next window is asked for
    windows   cleaned -> over     how far the log is cleaned is durable

A crash, or whatever else ends it, leaves each window as it was or replaced, and how far the log is cleaned as it was.
Nothing waits for a pass: a partition that is moved, unmounted or deleted, or compacted no more, takes no body of it. Of
a window whose oldest bodies were deleted meanwhile the others are shown again.
"""

import asyncio
from array import array
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from pqbroker.broker.services.cleaning.cleanable import is_to_be_cleaned
from pqbroker.broker.services.cleaning.passes import PassFailed, PassRecord, PassStopped
from pqbroker.pq.log.body import BodyName
from pqbroker.pq.log.cleaned_log import CleanedLog
from pqbroker.pq.log.cleaning_windows import WindowLimits, window_from
from pqbroker.pq.log.replacing_cycles import NewBody
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.stretches import StretchQuery
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.engine import Buffer, FileRange
from pqbroker.tables.serving.share import WriteRate
from pqbroker.tables.work.messages import Message
from pqbroker.tables.work.pool import WorkerPool
from pqbroker.tables.work.process import MEMORY_EXIT, WorkerGone, WorkerProcess

DIRTY_BYTES: Final = 8 << 20
"""Stored bytes of the batches that a worker is shown at once, about, to take their keys."""
WHOLE: Final = 1 << 62
"""Stands for all bytes up to the end."""
WINDOW_STRETCHES_MAX: Final = 16
"""Stretches of a window that are looked for at once."""
WINDOW_MEMORY_BYTES: Final = 512 << 20
"""Memory that a worker may have beside its table of keys: a window as it is read and as it is sent, and a batch of it
taken apart."""
MESSAGE_S: Final = 120.0
"""Seconds after which a worker that says nothing is ended."""


class _Damaged(Exception):
    """Batches that cannot be read."""


class _Shown(NamedTuple):
    """The places of batches as a message has them; `payload`: those that lie in no file."""

    stretches: Sequence[Mapping[str, Any]]
    payload: Sequence[Buffer]
    size: int
    next_offset: int
    is_damaged: bool = False
    aborted: Sequence[Sequence[int]] = ()
    """Spans of aborted Kafka transactions that have batches there."""


class PassSettings(NamedTuple):
    """Settings that a pass goes by. Sizes in bytes."""

    buffer_bytes: int
    load_factor: float
    unpacked_bytes_max: int
    delete_retention_ms: int
    worker_idle_s: float


class PassShare(NamedTuple):
    """Things that the passes of a node have in common."""

    workers: WorkerPool
    io: WriteRate
    """Bytes read and written."""
    merges: WriteRate
    """Bytes written, together with those of chunks of sorted tables."""


class CleaningPass:
    """One pass, with its `record`: the work to be done before, the work done afterwards."""

    def __init__(self, server: PartitionServer, share: PassShare, settings: PassSettings, record: PassRecord) -> None:
        self.server = server
        self.record = record
        self._share = share
        self._settings = settings
        self._window: Sequence[BodyName] = ()
        """The bodies that the worker has been shown."""
        self._made: list[Buffer] = []
        """Pieces of the body that the worker makes of them."""
        self._again: int | None = None
        """First offset of the window of which bodies were deleted meanwhile, until it is done; None: the worker's next
        one is shown."""

    async def run(self, now_ms: int) -> None:
        """Clean the partition. PassFailed, PassStopped; KafkaError where the partition does not take it."""
        workers, settings = self._share.workers, self._settings
        memory_bytes_max = settings.buffer_bytes + WINDOW_MEMORY_BYTES
        worker = await workers.take()
        try:
            last = await self._follow(worker, self._document(now_ms, memory_bytes_max))
        except WorkerGone:
            raise _lost(await workers.end(worker), memory_bytes_max) from None
        except TimeoutError:
            await workers.end(worker)
            raise PassFailed(f"the process that cleans said nothing for {MESSAGE_S:.0f} s") from None
        except BaseException:
            await workers.stop(worker, settings.worker_idle_s, memory_bytes_max)
            raise
        if last.document.get("resident_bytes", 0) < memory_bytes_max // 2:
            workers.give_back(worker, settings.worker_idle_s)
        else:
            await workers.end(worker)
        if last.kind != "cleaned":
            raise PassFailed(last.document["message"])
        await self._finish(last.document, now_ms)

    def _document(self, now_ms: int, memory_bytes_max: int) -> dict[str, Any]:
        settings, state, bound = self._settings, self.server.state, self.record.bound
        dirty_from, bodies = max(state.cleaned.end, state.start_offset), state.bodies
        number = bodies.find(dirty_from)
        keys_max = max(bound - bodies.offsets[number], 1) if number < len(bodies) else 1
        return {
            "dirty_from": dirty_from, "bound": bound, "now_ms": now_ms, "keys_max": keys_max,
            "buffer_bytes": settings.buffer_bytes, "load_factor": settings.load_factor,
            "unpacked_bytes_max": settings.unpacked_bytes_max, "memory_bytes_max": memory_bytes_max,
            "delete_retention_ms": settings.delete_retention_ms,
        }  # fmt: skip

    async def _follow(self, worker: WorkerProcess, document: Mapping[str, Any]) -> Message:
        """Answer what the worker asks; return its last message. WorkerGone, TimeoutError, PassFailed, PassStopped,
        KafkaError."""
        await worker.send("clean", document)
        while True:
            async with asyncio.timeout(MESSAGE_S):
                message = await worker.receive()
            asked = message.document
            if message.kind == "dirty":
                await self._show_dirty(worker, asked)
            elif message.kind == "window":
                await self._show_window(worker, asked)
            elif message.kind == "piece":
                await self._take_piece(message.payload)
            elif message.kind == "body":
                if await self._replace(asked["columns"]):
                    self._count(asked)
            elif message.kind == "kept":
                self._again = None
                self._count(asked)
            else:
                return message

    async def _show_window(self, worker: WorkerProcess, asked: Mapping[str, Any]) -> None:
        """Show the bodies that become one; those that reach the bound of the pass are left."""
        self._check_wanted()
        bodies, bound = self.server.state.bodies, asked["bound"]
        first = bodies.find(asked["offset"] if self._again is None else self._again)
        count = min(bodies.find(bound - 1) + 1 if bound else 0, len(bodies))
        if first >= count:
            self._window = ()
            await self._send(worker, _Shown((), (), 0, asked["offset"]), 0)
            return
        first, last = window_from(bodies, first, count, WindowLimits())
        self._window = [bodies.name(number) for number in range(first, last)]
        alone, end = bodies.ends[first], bodies.ends[last - 1]  # bodies change while they are looked for
        try:
            shown = await self._look(self._window[0].offset, end, is_verified=asked["is_verified"])
        except _Damaged:
            self._window = self._window[:1]  # the others do not suffer from it
            try:
                shown = await self._look(self._window[0].offset, alone, is_verified=asked["is_verified"])
            except _Damaged:
                shown = _Shown((), (), 0, alone, is_damaged=True)
        await self._send(worker, shown, len(self._window))

    async def _show_dirty(self, worker: WorkerProcess, asked: Mapping[str, Any]) -> None:
        """Show batches whose keys are to be taken."""
        self._check_wanted()
        offset, end = asked["offset"], asked["end_offset"]
        try:
            shown = await self._look(offset, end, DIRTY_BYTES, is_verified=asked["is_verified"])
        except _Damaged:
            bodies = self.server.state.bodies
            number = bodies.find(offset)
            behind = min(bodies.ends[number], end) if number < len(bodies) else end
            shown = _Shown((), (), 0, behind, is_damaged=True)
        await self._send(worker, shown, 1)

    async def _look(self, offset: int, end: int, bytes_max: int = WHOLE, *, is_verified: bool) -> "_Shown":
        """Return where batches lie: one stretch of about as many bytes; WHOLE: all up to the end. _Damaged."""
        stretches: list[Mapping[str, Any]] = []
        payload: list[Buffer] = []
        size, begin = 0, offset
        while offset < end and (bytes_max == WHOLE or not stretches):
            query = StretchQuery(offset, end, bytes_max, is_verified=is_verified)
            most = WINDOW_STRETCHES_MAX if bytes_max == WHOLE else 1
            try:
                found = await self.server.stretches.read(query, most)
            except KafkaError as refusal:
                if refusal.code is ErrorCode.CORRUPT_MESSAGE:
                    raise _Damaged from refusal
                raise
            for stretch in found:
                stretches.append({"pieces": _places(stretch.pieces, payload), "bounds": stretch.bounds})
                size += sum(piece.size if isinstance(piece, FileRange) else len(piece) for piece in stretch.pieces)
                offset = stretch.next_offset
        aborted = self.server.state.transactions.aborted_between(begin, offset)
        return _Shown(stretches, payload, size, offset, aborted=aborted)

    async def _send(self, worker: WorkerProcess, shown: "_Shown", bodies: int) -> None:
        await self._share.io.take(shown.size)
        self.record.bytes_read += shown.size
        said = {
            "stretches": shown.stretches, "bodies": bodies, "next_offset": shown.next_offset,
            "is_damaged": shown.is_damaged, "aborted": shown.aborted, "is_again": self._again is not None,
        }  # fmt: skip
        await worker.send("bodies", said, shown.payload)

    async def _take_piece(self, piece: Buffer) -> None:
        await self._share.io.take(len(piece))
        await self._share.merges.take(len(piece))
        self._made.append(piece)

    async def _replace(self, columns: Sequence[Sequence[int]]) -> bool:
        """Have a body take the place of the window; False: bodies of it were deleted meanwhile. PassStopped,
        KafkaError."""
        self._check_wanted()
        made, self._made = self._made, []
        positions, offsets, stamps = (array("q", column) for column in columns)
        before = self.server.state.bodies.size
        if not await self.server.replace_bodies([NewBody(self._window, made, (positions, offsets, stamps))]):
            self._check_wanted()
            self._again = self._window[0].offset
            return False
        self._again = None
        record = self.record
        record.bytes_written += sum(map(len, made))
        record.bytes_freed += before - self.server.state.bodies.size
        record.bodies_replaced += len(self._window)
        record.bodies_written += 1
        return True

    def _count(self, asked: Mapping[str, Any]) -> None:
        """Count the records of a window that is done."""
        record = self.record
        record.records += asked["records"]
        record.records_gone += asked["records_gone"]
        record.tombstones_gone += asked["tombstones_gone"]
        record.keyless += asked["keyless"]

    def _check_wanted(self) -> None:
        """PassStopped where records of the partition may not go any more."""
        if not is_to_be_cleaned(self.server):
            raise PassStopped

    async def _finish(self, said: Mapping[str, Any], now_ms: int) -> None:
        """Note how far the log is cleaned. PassFailed, PassStopped, KafkaError."""
        self._check_wanted()
        record, before = self.record, self.server.state.cleaned
        record.bound, record.keys, record.unread = said["bound"], said["keys"], said["unread"]
        end, due_times = said["bound"], [said["due_ms"]]
        if end < before.end:  # it went less far than the one before, as when min.compaction.lag.ms was raised
            end = before.end
            due_times.append(before.due_ms)
        due_ms = min((each for each in due_times if each is not None), default=None)
        if not await self.server.replace_bodies((), CleanedLog(end, now_ms, due_ms), said["emptied"]):
            raise PassStopped


def _places(pieces: Sequence[Buffer | FileRange], payload: list[Buffer]) -> list[Any]:
    """Return where pieces lie; what is in no file is appended to `payload`."""
    places: list[Any] = []
    for piece in pieces:
        if isinstance(piece, FileRange):
            places.append(piece)
        else:
            places.append(len(piece))
            payload.append(piece)
    return places


def _lost(status: int, memory_bytes_max: int) -> PassFailed:
    if status == MEMORY_EXIT:
        return PassFailed(
            f"the process that cleans needed more than {memory_bytes_max} bytes of memory: lower "
            "pqbroker.cleaner.batch.bytes.max, so that large batches stay as they are"
        )
    return PassFailed(f"the process that cleans ended with status {status}")
