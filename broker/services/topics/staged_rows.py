"""Batches of a session that are staged in pieces, and then committed by one request.

    what the session knows      the request            answer
    no batch, or an earlier one any pieces             decided, then written piece by piece
    a batch under way           any                    that batch is written to its end first
    this batch                  the same rows          done before: nothing is written
    this batch                  other rows             CHANGED_BATCH, or as `OnChanged` says
    a later batch               any                    SESSION_AHEAD

Where a piece of a batch that is decided is unreadable, nothing more of it is written, and the answer is BATCH_DAMAGED:
with `OnChanged.KEEP` it ends without the piece, with `OnChanged.APPEND` the request's pieces are decided in its place.

Rows are compared by their total, whatever pieces they came in. A decision is durable before the first piece is
written, so that what a crash cuts short is ended as it was decided: by the next request of the session, or without one.
"""

import asyncio
import secrets
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Final, NamedTuple

from pqbroker.broker.services.topics.partitions import check_batch
from pqbroker.broker.services.topics.record_checks import weigh
from pqbroker.pq.log.sessions import Fence, SessionBatch
from pqbroker.pq.log.staged_rows import NO_ROWS, Decision, Piece, Total, batch_of, decision, total_of
from pqbroker.pq.serving.joint_write import batches_taken
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.store_refusals import not_leader
from pqbroker.pq.serving.topic import Topic
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.record_parts import decode_parts
from pqbroker.storage.engine import BlobCorrupt, BlobMissing
from pqbroker.storage.unreadable import StoredUnreadable

PIECES_MAX: Final = 20_000
"""Pieces of one batch, and pieces that one tablet holds."""
_AT_ONCE: Final = 500
"""Pieces that are looked at in one turn of the loop."""
STEP_S: Final = 10.0
"""Seconds that one request writes pieces for; the next one continues."""


class BatchRefused(Exception):
    """A refusal: a code for programs; cause and cure for people."""

    def __init__(self, code: str, message: str, cure: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.cure = cure


class StagedBatchDamaged(BatchRefused):
    """A refusal of a batch that is decided, and of which a piece is unreadable."""

    def __init__(self, batch: Decision, message: str, cure: str) -> None:
        super().__init__("BATCH_DAMAGED", message, cure)
        self.batch = batch


class OnChanged(StrEnum):
    """The choice of what happens to a batch that comes again with other rows."""

    FAIL = "fail"
    KEEP = "keep"
    APPEND = "append"


class Committed(NamedTuple):
    """The outcome of a commit. `is_done` False: pieces are left to write, and the same request continues."""

    total: Total
    is_duplicate: bool = False
    is_done: bool = True


async def stage(
    topic: Topic, fence: Fence, index: int, batch: memoryview, named_tablet: int | None, bytes_max: int
) -> Piece:
    """Keep rows for a batch in the partition `index`; durable when this returns. `named_tablet`: the tablet that the
    rows say they are for. KafkaError, BatchRefused STAGE_FULL."""
    check_batch(topic, batch)
    server = topic.partitions[index]
    if server.staged.bytes + len(batch) > bytes_max:
        held = f"tablet {index} holds {server.staged.bytes} bytes of staged rows"
        text = f"{held}, and these would be more than pqbroker.staged.bytes.max = {bytes_max}"
        cure = "Commit smaller batches, raise the setting, or wait: what nobody commits goes after a day."
        raise BatchRefused("STAGE_FULL", text, cure)
    if server.staged.count >= PIECES_MAX:
        text = f"tablet {index} holds {server.staged.count} pieces of staged rows, as many as it may"
        raise BatchRefused("STAGE_FULL", text, "Stage more rows in a request, or commit what is staged.")
    total = await asyncio.to_thread(lambda: total_of(decode_parts(batch), named_tablet))
    piece = Piece(index, total, secrets.token_hex(8))
    await server.staged.add(piece.key(*fence[:2]), batch)
    return piece


async def commit(topic: Topic, fence: Fence, pieces: Sequence[Piece], on_changed: OnChanged) -> Committed:
    """Write the staged pieces as one batch of the session. KafkaError, BatchRefused; what is decided stays decided."""
    until = asyncio.get_running_loop().time() + STEP_S
    async with topic.session_locks.setdefault(fence.session, asyncio.Lock()):
        given = await asyncio.to_thread(_total, pieces)
        if not await _finish_earlier(topic, fence, pieces, on_changed, until):
            return Committed(given, is_done=False)
        taken = batches_taken(topic.partitions, fence.session).values()
        if not _is_new(fence, list(taken), given, on_changed):
            await _clear(topic, fence)
            return Committed(given, is_duplicate=True)
        if not pieces:
            return Committed(NO_ROWS)
        if not await _check_staged(topic, fence, pieces, until):
            return Committed(given, is_done=False)
        decided = decision(*fence[:2], pieces)
        await topic.partitions[decided.home].staged.decide(decided)
        return Committed(given, is_done=await _finish(topic, [decided], until))


async def look_after(topic: Topic, before_ms: int) -> None:
    """End what was decided and not ended, and delete pieces that were staged before the time and never named; those of
    a held cell stay, for the decision that names them may be among what was given up. KafkaError, BatchRefused."""
    staged = [partition.staged for partition in topic.partitions]
    if not any(one.bytes or one.decision_count for one in staged):
        return
    if not all(partition.is_loaded for partition in topic.partitions):
        return  # what cannot be seen may be decided
    decided = await _decisions(topic, None)
    for one in decided:
        lock = topic.session_locks.setdefault(one.session, asyncio.Lock())
        if not lock.locked():
            async with lock:
                await _finish(topic, [one], asyncio.get_running_loop().time() + STEP_S)
    batches = {batch_of(one.key) for one in decided}
    for partition in topic.partitions:
        if not partition.is_held:
            old = partition.staged.older_than(before_ms)
            await partition.staged.drop([key for key in old if batch_of(key) not in batches])


def is_being_written(topic: Topic) -> bool:
    """Return True while a batch of staged rows is decided and not at its end: its tablets stay as they are."""
    return any(partition.staged.decision_count for partition in topic.partitions)


def _is_new(fence: Fence, taken: Sequence[SessionBatch], given: Total, on_changed: OnChanged) -> bool:
    """Return True if the rows are to be written. `taken`: what partitions know of the session."""
    last = max((batch.sequence for batch in taken), default=-1)
    if last < fence.sequence:
        return True
    name = f"batch {fence.sequence} of session {fence.session!r}"
    if last > fence.sequence:
        text = f"{name} comes after batch {last}: the number of a batch is used once"
        raise BatchRefused("SESSION_AHEAD", text, "Give another session name, or a greater number.")
    totals = [batch.total for batch in taken if batch.sequence == last]
    if given in totals or on_changed is OnChanged.KEEP:
        return False
    if on_changed is OnChanged.APPEND:
        return True
    before = " and ".join(f"{total.row_count} rows" if total else "rows in one request" for total in totals)
    text = f"{name} comes again with other rows: {before} were committed as it, now it has {given.row_count}"
    cure = (
        "With on_changed=keep the rows that are there stay and the new ones are left out; with on_changed=append the "
        "new ones are written too, and rows of both are there twice."
    )
    raise BatchRefused("CHANGED_BATCH", text, cure)


def _total(pieces: Iterable[Piece]) -> Total:
    total = NO_ROWS
    for piece in pieces:
        total = total.plus(piece.total)
    return total


async def _finish_earlier(
    topic: Topic, fence: Fence, pieces: Sequence[Piece], on_changed: OnChanged, until: float
) -> bool:
    """Write what is left of the session's batches; False when the time came before that. StagedBatchDamaged, unless it
    is this batch, and the request says what happens to it."""
    try:
        return await _finish(topic, await _decisions(topic, fence.session), until)
    except StagedBatchDamaged as damage:
        if damage.batch.sequence != fence.sequence or on_changed is OnChanged.FAIL:
            raise
        if on_changed is OnChanged.KEEP:
            return await _finish(topic, [damage.batch], until, leaves_out=True)
        if not await _check_staged(topic, fence, pieces, until):
            return False
        await topic.partitions[damage.batch.home].staged.retract(damage.batch)
        return True


async def _check_staged(topic: Topic, fence: Fence, pieces: Sequence[Piece], until: float) -> bool:
    """Check that every piece exists, once, and can be read; False when the time came before that. BatchRefused
    STAGE_LOST."""
    why = "a piece of the batch is named twice" if len(set(pieces)) < len(pieces) else ""
    for number, piece in enumerate(pieces):
        if not number % _AT_ONCE:
            await asyncio.sleep(0)
        if _size(topic, fence, piece) is None:
            why = f"the piece {piece.name!r} of the batch is not there"
    try:
        if not why:
            return await _verify(topic, fence, pieces, until)
    except _PieceUnreadable as damage:
        why = f"the piece {damage.piece.name!r} of the batch is unreadable: {damage.cause}"
    raise BatchRefused("STAGE_LOST", why, "Stage the rows of the batch again, and commit the pieces of that.")


async def _verify(topic: Topic, fence: Fence, pieces: Sequence[Piece], until: float) -> bool:
    """Read the pieces once that were staged before a start; False when the time came before that. _PieceUnreadable."""
    for number, piece in enumerate(pieces):
        if not number % _AT_ONCE:
            await asyncio.sleep(0)
        key, staged = piece.key(*fence[:2]), topic.partitions[piece.partition].staged
        if not staged.is_unread(key):
            continue
        if asyncio.get_running_loop().time() > until:
            return False
        with _reading(piece):
            await staged.verify(key)
    return True


class _PieceUnreadable(Exception):
    def __init__(self, piece: Piece, cause: BlobCorrupt | BlobMissing) -> None:
        super().__init__(piece.name)
        self.piece = piece
        self.cause = cause


@contextmanager
def _reading(piece: Piece) -> Iterator[None]:
    """Read a piece. _PieceUnreadable; KafkaError where the disk does not answer."""
    try:
        yield
    except (BlobCorrupt, BlobMissing) as damage:
        raise _PieceUnreadable(piece, damage) from damage
    except OSError as failure:
        text = f"staged rows of tablet {piece.partition} cannot be read: {failure}"
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, text) from failure


def _size(topic: Topic, fence: Fence, piece: Piece) -> int | None:
    if piece.partition >= len(topic.partitions):
        return None
    return topic.partitions[piece.partition].staged.size_of(piece.key(*fence[:2]))


async def _decisions(topic: Topic, session: str | None) -> list[Decision]:
    """The batches that are being written, of a session or of all."""
    found: list[Decision] = []
    try:
        for partition in topic.partitions:
            if partition.staged.decision_count:
                found += await partition.staged.decisions()
    except (BlobCorrupt, BlobMissing, OSError, StoredUnreadable) as damage:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"a decided batch cannot be read: {damage}") from damage
    return [one for one in found if session in (None, one.session)]


async def _finish(topic: Topic, decided: Sequence[Decision], until: float, *, leaves_out: bool = False) -> bool:
    """Write what is left of the decided batches; False when the time came before that. StagedBatchDamaged, before more
    of the batch is written, where a piece is unreadable; with `leaves_out` it goes unwritten."""
    for one in decided:
        fence = Fence(one.session, one.sequence)
        try:
            if not await _finish_one(topic, fence, one, until, leaves_out=leaves_out):
                return False
        except _PieceUnreadable as damage:
            raise _damaged(topic, fence, one, damage) from damage
        await topic.partitions[one.home].staged.end(one)
        await _clear(topic, fence)
    return True


async def _finish_one(topic: Topic, fence: Fence, batch: Decision, until: float, *, leaves_out: bool) -> bool:
    if not leaves_out and not await _verify(topic, fence, batch.pieces, until):
        return False
    by_partition: defaultdict[int, list[Piece]] = defaultdict(list)
    for piece in batch.pieces:
        by_partition[piece.partition].append(piece)
    writing = (_write(topic, fence, pieces, until, leaves_out=leaves_out) for pieces in by_partition.values())
    done = await asyncio.gather(*writing, return_exceptions=True)
    for outcome in done:
        if isinstance(outcome, BaseException):
            raise outcome
    return all(done)


def _damaged(topic: Topic, fence: Fence, batch: Decision, damage: _PieceUnreadable) -> StagedBatchDamaged:
    name, count = f"batch {batch.sequence} of session {batch.session!r}", len(batch.pieces)
    left = sum(_size(topic, fence, piece) is not None for piece in batch.pieces)
    rows = f"its piece {damage.piece.name!r} of {damage.piece.total.row_count} rows is unreadable: {damage.cause}"
    cure = (
        f"Commit batch {batch.sequence} with on_changed=keep, and it ends without the unreadable rows; or stage all "
        "its rows again and commit those with on_changed=append: rows that are in the table already are there twice."
    )
    text = f"{name} stands still with {count - left} of {count} pieces written, and {rows}"
    return StagedBatchDamaged(batch, text, cure)


async def _write(topic: Topic, fence: Fence, pieces: Sequence[Piece], until: float, *, leaves_out: bool) -> bool:
    """Write the pieces of one partition, in their order; one that is not there any more was written."""
    server: PartitionServer = topic.partitions[pieces[0].partition]
    now = asyncio.get_running_loop().time
    for number, piece in enumerate(pieces):
        if not number % _AT_ONCE:
            await asyncio.sleep(0)
        key = piece.key(*fence[:2])
        if not server.is_loaded:
            raise not_leader()  # nobody knows which pieces are there
        if server.staged.size_of(key) is None:
            continue
        if now() > until:
            return False
        try:
            with _reading(piece):
                batch = await server.staged.read(key)
        except _PieceUnreadable:
            if leaves_out:
                continue
            raise
        weights = await asyncio.to_thread(weigh, topic, batch) if topic.keeps_facts else None
        await server.staged.write(key, batch, weights)
    return True


async def _clear(topic: Topic, fence: Fence) -> None:
    """Delete what other tries of the session's batches have staged."""
    for partition in topic.partitions:
        if partition.staged.bytes:
            await partition.staged.drop(partition.staged.stale(*fence[:2]))
