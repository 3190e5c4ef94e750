"""Rows that are staged for a batch of a session, and the commit of such a batch (`services.topics.staged_rows`)."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.services.tables.finding import find_typed
from pqbroker.broker.services.topics import staged_rows
from pqbroker.broker.services.topics.staged_rows import PIECES_MAX, BatchRefused, OnChanged
from pqbroker.broker.web.routing.problems import bad_request
from pqbroker.broker.web.routing.routes import Call
from pqbroker.broker.web.tables.inserting import encode_rows, places, read_fence
from pqbroker.pq.log.sessions import Fence
from pqbroker.pq.log.staged_rows import Piece
from pqbroker.storage.uninterrupted import Uninterrupted, uninterrupted
from pqbroker.tables.refusals import TableError

T = TypeVar("T")


async def stage(call: Call) -> Any:
    """Keep rows until the batch is committed; nobody sees them before."""
    topic, schema = find_typed(call, AclOperation.WRITE, call.path["name"])
    fence = _fence(call)
    rows = (await encode_rows(call, schema, topic.config.max_message_bytes)).tablets
    bytes_max = call.node.settings.staged_bytes_max
    staging = (
        staged_rows.stage(topic, fence, index, batch, named, bytes_max)
        for index, (named, _, batch) in zip(places(topic, rows, call.query.get("tablet_hint")), rows, strict=True)
    )
    pieces = await _told(uninterrupted(_gathered(staging)))
    counted = call.node.metrics.tables
    counted.inserted_rows += sum(some.row_count for some in rows)
    counted.inserted_bytes += sum(len(some.batch) for some in rows)
    shown = [
        {"name": piece.name, "tablet_index": piece.partition, "row_count": piece.total.row_count} for piece in pieces
    ]
    return {"pieces": shown}


async def commit(call: Call) -> Any:
    """Write the rows of a batch that was staged."""
    topic, _ = find_typed(call, AclOperation.WRITE, call.path["name"])
    names, on_changed = call.body["pieces"], call.body.get("on_changed", OnChanged.FAIL.value)
    if len(names) > PIECES_MAX:
        raise bad_request(f"body.pieces has {len(names)} pieces; a batch has at most {PIECES_MAX}")
    if on_changed not in set(OnChanged):
        raise bad_request(f"body.on_changed is {on_changed[:100]!r}; give {', '.join(OnChanged)}")
    try:
        pieces = await asyncio.to_thread(lambda: [Piece.named(name) for name in names])
    except ValueError as wrong:
        raise bad_request(f"body.pieces: {wrong}") from None
    done = await _told(uninterrupted(staged_rows.commit(topic, _fence(call), pieces, OnChanged(on_changed))))
    return {"row_count": done.total.row_count, "duplicate": done.is_duplicate, "done": done.is_done}


async def _told(change: Uninterrupted[T]) -> T:
    """Return the result of a change; TableError where it is refused."""
    try:
        return await change
    except BatchRefused as refusal:
        raise TableError(refusal.code, refusal.message, refusal.cure) from None


async def _gathered(staging: Iterable[Coroutine[Any, Any, Piece]]) -> list[Piece]:
    return await asyncio.gather(*staging)


def _fence(call: Call) -> Fence:
    fence = read_fence(call)
    if fence is None:
        raise bad_request("session and sequence are missing; give both")
    return fence
