"""Rows of tables, inserted as record batches through the partitions' ordinary queues."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.services.tables.arrow_rows import encode_arrow
from pqbroker.broker.services.tables.callers import TablesCaller
from pqbroker.broker.services.tables.encoded_rows import EncodedRows, TabletRows
from pqbroker.broker.services.tables.finding import check_tablet, find_typed, state_of, states
from pqbroker.broker.services.tables.sessions_away import taken_anywhere
from pqbroker.broker.services.topics.partitions import check_batch
from pqbroker.broker.services.topics.record_checks import weigh
from pqbroker.conf.broker import BrokerSettings
from pqbroker.pq.log.sessions import Fence, SessionBatch
from pqbroker.pq.serving.joint_write import Share, is_of_one_cell, write_together
from pqbroker.pq.serving.topic import Topic
from pqbroker.pq.serving.transacted_batches import BatchesPart
from pqbroker.pq.transactions.participants import CommitPart
from pqbroker.protocol.produced_batches import RECORD_BYTES_MIN
from pqbroker.protocol.records import Record, encode_batch
from pqbroker.tables.mount import MountState, closed
from pqbroker.tables.paths import table_path
from pqbroker.tables.refusals import TableError
from pqbroker.tables.rows import TABLET_INDEX, TABLETS_MAX, encode_row
from pqbroker.tables.schema import Schema

MANY_ROWS: Final = 10_000
"""More rows of a request wait for a turn to be encoded (`pqbroker.http.looks.max`), for they take memory."""


@dataclass(frozen=True, slots=True)
class GivenRows:
    """Rows as they were given: objects, or an Arrow IPC stream. `look` is entered while many are encoded, for they take
    memory; `place` is what refusals call them."""

    items: Sequence[Any] | bytes
    look: AbstractAsyncContextManager[None] = field(default_factory=nullcontext)
    place: str = "rows"


class InsertedRange(NamedTuple):
    """The place of inserted rows."""

    tablet_index: int
    first_row_index: int
    row_count: int


class Inserted(NamedTuple):
    """The outcome of an insertion. `is_duplicate`: they were taken before, and none was taken now."""

    tablets: Sequence[InsertedRange]
    weight: int
    is_duplicate: bool = False


async def insert(caller: TablesCaller, name: str, rows: GivenRows, fence: Fence | None = None) -> Inserted:
    """Insert rows, which appear together or not at all; those of a session's batch that was taken are not taken again.

    KafkaError as `find_topic` and `PartitionServer.write`; TableError, among others NO_MOUNTED_TABLETS, WRONG_STATE,
    TOO_MANY_PARTICIPANTS, ROWS_TOO_LARGE, and those of rows that do not fit their schema.
    """
    topic, schema = find_typed(caller, AclOperation.WRITE, name)
    if fence is None:
        return await insert_encoded(caller, topic, await encode_rows(caller, topic, schema, rows), None, {})
    async with topic.session_locks.setdefault(fence.session, asyncio.Lock()):
        taken = await taken_anywhere(caller, topic, fence.session)
        if fence.sequence <= max((batch.sequence for batch in taken.values()), default=-1):
            return _taken_before(taken, fence.sequence)
        return await insert_encoded(caller, topic, await encode_rows(caller, topic, schema, rows), fence, taken)


async def insert_encoded(
    caller: TablesCaller, topic: Topic, encoded: EncodedRows, fence: Fence | None, taken: Mapping[int, SessionBatch]
) -> Inserted:
    """`taken`: what the session's last batches were, by tablet."""
    shares = await _shares(topic, encoded, taken)
    offsets = await _written(caller, shares, fence)
    counted = caller.node.metrics.tables
    pause_ms, tablets = 0, []
    for share, first_offset in zip(shares, offsets, strict=True):
        size, row_count = share.size, share.row_count
        counted.inserted_rows += row_count
        counted.inserted_bytes += size
        pause_ms = max(pause_ms, share.partition.throttle_ms(size, row_count))
        tablets.append(InsertedRange(share.partition.index, first_offset, row_count))
    if pause_ms:
        await asyncio.sleep(pause_ms / 1000)
    return Inserted(tablets, encoded.weight)


async def _shares(topic: Topic, encoded: EncodedRows, taken: Mapping[int, SessionBatch]) -> list[Share]:
    """Return the rows of each tablet. TableError WRONG_STATE, NO_MOUNTED_TABLETS and others of `places`."""
    last = max(taken, key=lambda index: taken[index].sequence, default=None)
    shares = [
        Share(topic.partitions[index], [(batch, check_batch(topic, batch)) for batch in batches])
        for index, batches in _placed(topic, encoded.tablets, last).items()
    ]
    return await asyncio.to_thread(_weighed, topic, shares) if topic.keeps_facts else shares


async def _written(caller: TablesCaller, shares: Sequence[Share], fence: Fence | None) -> list[int]:
    """Write rows of tablets, and return the index of the first row in each."""
    commits = caller.node.cell.current.commits
    is_here = commits.away is None or not any(
        commits.is_elsewhere(share.partition.storage.tablet_id) for share in shares
    )
    if is_here and fence is None and len(shares) == 1 and len(shares[0].batches) == 1:
        partition, ((batch, header),), weights = shares[0]
        return [(await partition.write(batch, header, *weights)).base_offset]
    if is_here and is_of_one_cell([share.partition for share in shares]):
        return [some[0].base_offset for some in await write_together(shares, fence, caller.node.clock)]
    check_participants(caller.node.settings, len(shares))
    parts = [BatchesPart(share, fence, caller.node.clock) for share in shares]
    await commits.write(parts)
    return [part.first_offset for part in parts]


def check_participants(settings: BrokerSettings, count: int) -> None:
    """TableError TOO_MANY_PARTICIPANTS for more tablets than one commit may write to."""
    most = settings.transaction_participants_max
    if count > most:
        text = f"rows of {count} tablets are written, and pqbroker.transaction.participants.max = {most}"
        raise TableError("TOO_MANY_PARTICIPANTS", text, "Write to fewer tablets at once, or raise the setting.")


async def batch_parts(caller: TablesCaller, topic: Topic, encoded: EncodedRows) -> Sequence[CommitPart]:
    """Return rows as parts of a commit, one a tablet. TableError as `_shares`."""
    return [BatchesPart(share, None, caller.node.clock) for share in await _shares(topic, encoded, {})]


def _weighed(topic: Topic, shares: Sequence[Share]) -> list[Share]:
    """Return the shares with the weights of their rows. Runs in a thread."""
    return [share._replace(weights=[weigh(topic, batch) for batch, _ in share.batches]) for share in shares]


def _taken_before(taken: Mapping[int, SessionBatch], sequence: int) -> Inserted:
    """Return the outcome of rows taken before. Their place is known for a session's last batch alone."""
    same = {index: batch for index, batch in sorted(taken.items()) if batch.sequence == sequence}
    tablets = [
        InsertedRange(index, batch.base_offset, batch.row_count) for index, batch in same.items() if batch.row_count
    ]
    return Inserted(tablets, 0, is_duplicate=True)


async def encode_rows(caller: TablesCaller, topic: Topic, schema: Schema, rows: GivenRows) -> EncodedRows:
    """Rows as record batches. TableError."""
    batch_bytes_max, now_ms = topic.config.max_message_bytes, caller.node.clock()
    if isinstance(rows.items, bytes):
        async with rows.look:
            return await encode_arrow(caller.node, schema, rows.items, batch_bytes_max)
    encode = partial(_encode, schema, rows.place, rows.items, now_ms, batch_bytes_max)
    if len(rows.items) <= MANY_ROWS:
        return await asyncio.to_thread(encode)
    async with rows.look:
        return await asyncio.to_thread(encode)


def _encode(
    schema: Schema, place: str, rows: Sequence[Any], now_ms: int, batch_bytes_max: int
) -> EncodedRows:
    """Runs in a thread, for there may be many. TableError ROWS_TOO_LARGE as soon as a tablet's rows are too many."""
    by_tablet: defaultdict[int | None, list[Record]] = defaultdict(list)
    sizes: defaultdict[int | None, int] = defaultdict(int)
    weight = 0
    for number, given in enumerate(rows):
        row = encode_row(schema, given, f"{place}[{number}]")
        sizes[row.tablet_index] += RECORD_BYTES_MIN + len(row.key or b"") + len(row.value or b"")
        if sizes[row.tablet_index] > batch_bytes_max:
            text = f"the rows are larger as records than max.message.bytes = {batch_bytes_max}"
            cure = "Send fewer rows at once, or raise max.message.bytes of the topic."
            raise TableError("ROWS_TOO_LARGE", text, cure)
        by_tablet[row.tablet_index].append(Record(0, now_ms, row.key, row.value, ()))
        weight += row.weight
    tablets = [TabletRows(index, len(some), memoryview(encode_batch(some))) for index, some in by_tablet.items()]
    return EncodedRows(tablets, weight)


def _placed(topic: Topic, rows: Sequence[TabletRows], last: int | None) -> Mapping[int, Sequence[memoryview]]:
    """Batches by tablet."""
    placed: defaultdict[int, list[memoryview]] = defaultdict(list)
    for index, (_, _, batch) in zip(places(topic, rows, last), rows, strict=True):
        placed[index].append(batch)
    return placed


def places(topic: Topic, rows: Sequence[TabletRows], last: int | None) -> list[int]:
    """The tablet for each of the rows. Those that name none go to the tablet `last`, or to any other that is mounted,
    in a cell of those that are named if there is one."""
    if len(rows) > TABLETS_MAX:
        text = f"the rows are for {len(rows)} tablets; one request has rows for at most {TABLETS_MAX}"
        raise TableError("SEVERAL_TABLETS", text, "Send the rows in several requests.")
    named = {index for index, _, _ in rows if index is not None}
    for index in sorted(named):
        state = state_of(topic, check_tablet(topic, index, TABLET_INDEX))
        if state is not MountState.MOUNTED:
            raise closed(table_path(topic.record.name), index, state)
    cells = {topic.record.cell_of(index) for index in named}
    return [_any_of(topic, cells, last) if index is None else index for index, _, _ in rows]


def _any_of(topic: Topic, cells: AbstractSet[Any], last: int | None) -> int:
    if last is None and not cells:
        tried = random.randrange(len(topic.partitions))  # most often all are mounted
        if state_of(topic, tried) is MountState.MOUNTED:
            return tried
    mounted = [index for index, state in enumerate(states(topic)) if state is MountState.MOUNTED]
    found = [index for index in mounted if topic.record.cell_of(index) in cells] or mounted
    if not found:
        raise none_mounted(f"{table_path(topic.record.name)} has no mounted tablets")
    return last if last in found else random.choice(found)


def none_mounted(text: str) -> TableError:
    return TableError("NO_MOUNTED_TABLETS", text, "Mount or unfreeze it; GET /v1/tables/NAME/tablets shows states.")
