"""Rows that are staged for a batch of a session, and the commit of such a batch (`services.topics.staged_rows`)."""

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.services.leaders import cells_of
from pqbroker.broker.services.tables.callers import TablesCaller
from pqbroker.broker.services.tables.finding import find_typed
from pqbroker.broker.services.tables.inserting import GivenRows, encode_rows, places
from pqbroker.broker.services.tables.sessions_away import holding_elsewhere, staged_places
from pqbroker.broker.services.topics import staged_rows
from pqbroker.broker.services.topics.staged_places import BatchRefused, RowsToStage
from pqbroker.broker.services.topics.staged_rows import Committed, OnChanged
from pqbroker.pq.log.sessions import Fence
from pqbroker.pq.log.staged_rows import Piece
from pqbroker.pq.serving.topic import Topic
from pqbroker.protocol.errors import KafkaError
from pqbroker.storage.engine import CommitRefused
from pqbroker.storage.uninterrupted import Uninterrupted, uninterrupted
from pqbroker.tables.refusals import TableError

T = TypeVar("T")
_log = logging.getLogger(__name__)


async def stage(caller: TablesCaller, name: str, rows: GivenRows, fence: Fence, hint: int | None) -> list[Piece]:
    """Keep rows, invisible to readers, until their batch is committed. Those that name no tablet go into the tablet
    `hint`, if it is mounted. KafkaError and TableError as `insert` with a session, and TableError STAGE_FULL."""
    topic, schema = find_typed(caller, AclOperation.WRITE, name)
    encoded = (await encode_rows(caller, topic, schema, rows)).tablets
    indexes = places(topic, encoded, hint)
    found = staged_places(caller, topic, indexes)
    staging = (
        found.of(index).stage(fence, RowsToStage(index, batch, named))
        for index, (named, _, batch) in zip(indexes, encoded, strict=True)
    )
    pieces = await _told(uninterrupted(_gathered(staging)))
    counted = caller.node.metrics.tables
    counted.inserted_rows += sum(some.row_count for some in encoded)
    counted.inserted_bytes += sum(len(some.batch) for some in encoded)
    return pieces


async def commit(
    caller: TablesCaller, name: str, pieces: Sequence[Piece], fence: Fence, on_changed: OnChanged
) -> Committed:
    """Write the rows of a batch that was staged. TableError CHANGED_BATCH, SESSION_AHEAD, STAGE_LOST, BATCH_DAMAGED."""
    topic, _ = find_typed(caller, AclOperation.WRITE, name)
    find = partial(staged_places, caller)
    return await _told(uninterrupted(staged_rows.commit(topic, fence, pieces, on_changed, find)))


async def look_after_staged(caller: TablesCaller, topics: Iterable[Topic], before_ms: int) -> None:
    """End batches of staged rows that were decided, and delete rows that were staged before a time and never committed,
    of these topics and of those in several cells that other nodes have such rows of: one in one cell is looked after
    by the node that commits its batches."""
    known = caller.node.cell.current.topics
    held = {topic.record.topic_id: topic for topic in topics}
    elsewhere = ((one, known.by_id(one)) for one in await holding_elsewhere(caller))
    held.update({one: topic for one, topic in elsewhere if topic is not None and len(cells_of(topic)) > 1})
    for topic in held.values():
        try:
            await staged_rows.look_after(topic, before_ms, partial(staged_places, caller))
        except (KafkaError, BatchRefused, CommitRefused) as refusal:
            _log.warning("staged rows of %s wait: %s", topic.record.name, refusal)


async def _told(change: Uninterrupted[T]) -> T:
    """Return the result of a change; TableError where it is refused."""
    try:
        return await change
    except BatchRefused as refusal:
        raise TableError(refusal.code, refusal.message, refusal.cure) from None


async def _gathered(staging: Iterable[Coroutine[Any, Any, Piece]]) -> list[Piece]:
    return await asyncio.gather(*staging)
