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
from collections.abc import Callable, Collection, Iterable, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from pqbroker.broker.services.topics.staged_places import BatchRefused, PieceUnreadable, StagedPlaces
from pqbroker.pq.log.sessions import Fence, SessionBatch
from pqbroker.pq.log.staged_rows import NO_ROWS, Decision, Piece, Total, decision, total_of_pieces
from pqbroker.pq.serving.topic import Topic

STEP_S: Final = 10.0
"""Seconds that one request writes pieces for; the next one continues."""


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


async def commit(
    topic: Topic, fence: Fence, pieces: Sequence[Piece], on_changed: OnChanged,
    find: Callable[[Topic], StagedPlaces] = StagedPlaces.here,
) -> Committed:
    """Write the staged pieces as one batch of the session. KafkaError, BatchRefused; what is decided stays decided.
    `find`: finds the places of the topic's partitions."""
    until = asyncio.get_running_loop().time() + STEP_S
    async with topic.session_locks.setdefault(fence.session, asyncio.Lock()):
        batches = _Batches(find(topic), until)
        given = await asyncio.to_thread(total_of_pieces, pieces)
        if not await batches.finish_earlier(fence, pieces, on_changed):
            return Committed(given, is_done=False)
        taken = (await batches.places.taken(fence.session)).values()
        if not _is_new(fence, taken, given, on_changed):
            await batches.places.clear(fence)
            return Committed(given, is_duplicate=True)
        if not pieces:
            return Committed(NO_ROWS)
        if not await batches.verify_staged(fence, pieces):
            return Committed(given, is_done=False)
        decided = decision(*fence[:2], pieces)
        async with topic.deciding:  # what nobody has decided for may be going after its day
            await batches.check_staged(fence, pieces)
            await batches.places.of(decided.home).decide(decided)
        return Committed(given, is_done=await batches.finish([decided]))


async def look_after(
    topic: Topic, before_ms: int, find: Callable[[Topic], StagedPlaces] = StagedPlaces.here
) -> None:
    """End what was decided and not ended, and delete pieces that were staged before the time and never named.
    KafkaError NOT_LEADER_OR_FOLLOWER while a partition is not open: what cannot be seen may be decided; others, and
    BatchRefused. `find` as that of `commit`."""
    places = find(topic)
    for one in await places.decisions(None):
        lock = topic.session_locks.setdefault(one.session, asyncio.Lock())
        if not lock.locked():
            async with lock:
                await _Batches(places, asyncio.get_running_loop().time() + STEP_S).finish([one])
    async with topic.deciding:
        decided = await places.decisions(None)
        for place in places.all:
            await place.forget(before_ms, decided)


def is_being_written(topic: Topic) -> bool:
    """Return True while a batch of staged rows is decided and not at its end: its tablets stay as they are."""
    return any(partition.staged.decision_count for partition in topic.partitions)


def _is_new(fence: Fence, taken: Collection[SessionBatch], given: Total, on_changed: OnChanged) -> bool:
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


class _Batches:
    """Batches of one topic that are written until a time of the loop."""

    __slots__ = ("_until", "places")

    def __init__(self, places: StagedPlaces, until: float) -> None:
        self.places = places
        self._until = until

    async def finish_earlier(self, fence: Fence, pieces: Sequence[Piece], on_changed: OnChanged) -> bool:
        """Write what is left of the session's batches; False when the time came before that. StagedBatchDamaged, unless
        it is this batch, and the request says what happens to it."""
        try:
            return await self.finish(await self.places.decisions(fence.session))
        except StagedBatchDamaged as damage:
            if damage.batch.sequence != fence.sequence or on_changed is OnChanged.FAIL:
                raise
            if on_changed is OnChanged.KEEP:
                return await self.finish([damage.batch], leaves_out=True)
            if not await self.verify_staged(fence, pieces):
                return False
            await self.check_staged(fence, pieces)
            await self.places.of(damage.batch.home).retract(damage.batch)
            return True

    async def verify_staged(self, fence: Fence, pieces: Sequence[Piece]) -> bool:
        """Check that every piece that exists can be read; False when the time came before that. BatchRefused
        STAGE_LOST."""
        try:
            return await self.places.verify(fence, pieces, self._until)
        except PieceUnreadable as damage:
            raise _lost(f"the piece {damage.piece.name!r} of the batch is unreadable: {damage.cause}") from damage

    async def check_staged(self, fence: Fence, pieces: Sequence[Piece]) -> None:
        """Check that every piece exists, once. BatchRefused STAGE_LOST."""
        if len(set(pieces)) < len(pieces):
            raise _lost("a piece of the batch is named twice")
        missing = await self.places.missing(fence, pieces)
        if missing:
            raise _lost(f"the piece {missing[-1].name!r} of the batch is not there")

    async def finish(self, decided: Iterable[Decision], *, leaves_out: bool = False) -> bool:
        """Write what is left of the decided batches; False when the time came before that. StagedBatchDamaged, before
        more of the batch is written, where a piece is unreadable; with `leaves_out` it goes unwritten."""
        places = self.places
        for one in decided:
            fence = Fence(one.session, one.sequence)
            try:
                if not (leaves_out or await places.verify(fence, one.pieces, self._until)):
                    return False
                if not await places.write(fence, one.pieces, self._until, leaves_out=leaves_out):
                    return False
            except PieceUnreadable as damage:
                left = len(one.pieces) - len(await places.missing(fence, one.pieces))
                raise _damaged(one, damage, left) from damage
            await places.of(one.home).end(one)
            await places.clear(fence)
        return True


def _lost(why: str) -> BatchRefused:
    return BatchRefused("STAGE_LOST", why, "Stage the rows of the batch again, and commit the pieces of that.")


def _damaged(batch: Decision, damage: PieceUnreadable, left: int) -> StagedBatchDamaged:
    name, count = f"batch {batch.sequence} of session {batch.session!r}", len(batch.pieces)
    rows = f"its piece {damage.piece.name!r} of {damage.piece.total.row_count} rows is unreadable: {damage.cause}"
    cure = (
        f"Commit batch {batch.sequence} with on_changed=keep, and it ends without the unreadable rows; or stage all "
        "its rows again and commit those with on_changed=append: rows that are in the table already are there twice."
    )
    text = f"{name} stands still with {count - left} of {count} pieces written, and {rows}"
    return StagedBatchDamaged(batch, text, cure)
