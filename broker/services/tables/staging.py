"""Rows that are staged for a batch of a session, and the commit of such a batch (`services.topics.staged_rows`)."""

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.services.tables.at_first_node import check_all_here
from pqbroker.broker.services.tables.callers import TablesCaller
from pqbroker.broker.services.tables.finding import find_typed
from pqbroker.broker.services.tables.inserting import GivenRows, encode_rows, places
from pqbroker.broker.services.topics import staged_rows
from pqbroker.broker.services.topics.staged_rows import BatchRefused, Committed, OnChanged
from pqbroker.pq.log.sessions import Fence
from pqbroker.pq.log.staged_rows import Piece
from pqbroker.storage.uninterrupted import Uninterrupted, uninterrupted
from pqbroker.tables.refusals import TableError

T = TypeVar("T")


async def stage(caller: TablesCaller, name: str, rows: GivenRows, fence: Fence, hint: int | None) -> list[Piece]:
    """Keep rows, invisible to readers, until their batch is committed. Those that name no tablet go into the tablet
    `hint`, if it is mounted. KafkaError and TableError as `insert` with a session, and TableError STAGE_FULL."""
    topic, schema = find_typed(caller, AclOperation.WRITE, name)
    check_all_here(caller, topic)
    encoded = (await encode_rows(caller, topic, schema, rows)).tablets
    bytes_max = caller.node.settings.staged_bytes_max
    staging = (
        staged_rows.stage(topic, fence, index, batch, named, bytes_max)
        for index, (named, _, batch) in zip(places(topic, encoded, hint), encoded, strict=True)
    )
    pieces = await _told(uninterrupted(_gathered(staging)))
    counted = caller.node.metrics.tables
    counted.inserted_rows += sum(some.row_count for some in encoded)
    counted.inserted_bytes += sum(len(some.batch) for some in encoded)
    return pieces


async def commit(
    caller: TablesCaller, name: str, pieces: Sequence[Piece], fence: Fence, on_changed: OnChanged
) -> Committed:
    """Write the rows of a batch that was staged. TableError CHANGED_BATCH, SESSION_AHEAD, STAGE_LOST, BATCH_DAMAGED,
    TABLETS_OF_OTHER_NODES."""
    topic, _ = find_typed(caller, AclOperation.WRITE, name)
    check_all_here(caller, topic)
    return await _told(uninterrupted(staged_rows.commit(topic, fence, pieces, on_changed)))


async def _told(change: Uninterrupted[T]) -> T:
    """Return the result of a change; TableError where it is refused."""
    try:
        return await change
    except BatchRefused as refusal:
        raise TableError(refusal.code, refusal.message, refusal.cure) from None


async def _gathered(staging: Iterable[Coroutine[Any, Any, Piece]]) -> list[Piece]:
    return await asyncio.gather(*staging)
