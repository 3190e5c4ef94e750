"""Stored forms of a sorted tablet, read at its start: facts, partitions, records of chunks, and the log."""

import asyncio
from itertools import islice
from typing import Final, NamedTuple

from pqbroker.pq.transactions.stored_forms import CommitDecision, PreparedRows, TransactionId
from pqbroker.storage.kv.commands import DeleteRange
from pqbroker.storage.kv.tablet import KeyValueTablet
from pqbroker.tables.serving.chunk_records import ChunkRecord, decode_pivots
from pqbroker.tables.serving.feed_progress import FeedProgress
from pqbroker.tables.serving.open_chunk import OpenChunk
from pqbroker.tables.serving.row_locks import LockedRows
from pqbroker.tables.serving.store_log import StoreLog
from pqbroker.tables.serving.stored_keys import (
    CHUNK_KEYS,
    DECISION_KEYS,
    FACTS_KEY,
    FEED_KEYS,
    LETTERS_KEY,
    LOG_KEYS,
    PIECE_KEYS,
    PIVOTS_KEY,
    PREPARED_KEYS,
    chunk_data_key,
    read_chunk_key,
    read_log_key,
    read_piece_key,
    read_transaction_key,
)
from pqbroker.tables.serving.structure import Structure
from pqbroker.tables.serving.tablet_facts import TabletFacts
from pqbroker.tables.sorted.log_entries import NewRow, decode_entries
from pqbroker.tables.sorted.packed_rows import KIND_AT, RowForm, timestamp_of
from pqbroker.tables.sorted.store import RowStore

REPLAYED_ROWS: Final = 2_000
"""Rows that a start applies before the loop's other work has its turn: 2 to 4 ms."""


class LoadedTablet(NamedTuple):
    """All that is stored of a tablet, but for its log."""

    facts: TabletFacts
    progress: FeedProgress
    structure: Structure
    next_number: int
    """Number above those of all stores, chunks and tasks."""


class LoadedStore(NamedTuple):
    """One store as its log has it, and the log."""

    store: RowStore
    log: StoreLog


async def load(kv: KeyValueTablet, name: str, pivot: bytes, end: bytes | None) -> LoadedTablet:
    """Read facts, partitions and records of chunks of a tablet with this range of keys. BlobCorrupt, BlobMissing,
    ValueError; ShardLost."""
    stored = await read_value(kv, FACTS_KEY)
    facts = TabletFacts() if stored is None else TabletFacts.decode(stored)
    pivots = await read_value(kv, PIVOTS_KEY)
    structure = Structure([pivot] if pivots is None else decode_pivots(pivots), end)
    chunks = []
    for key in _keys(kv, CHUNK_KEYS):
        number = read_chunk_key(key)
        value = await read_value(kv, key)
        if value is None or kv.entry(chunk_data_key(number)) is None:
            raise ValueError(f"chunk {number} of {name} has a record, and is not there")
        chunks.append(OpenChunk(number, ChunkRecord.decode(value)))
    structure.change(chunks, ())
    numbers = [chunk.number for chunk in chunks]
    numbers += [read_log_key(key)[0] for key in _keys(kv, LOG_KEYS)]
    numbers += [read_piece_key(key)[0] for key in _keys(kv, PIECE_KEYS)]
    return LoadedTablet(facts, await _read_progress(kv), structure, max(numbers, default=0) + 1)


async def load_transactions(kv: KeyValueTablet) -> tuple[list[LockedRows], list[CommitDecision]]:
    """Return the rows that are prepared in a tablet, in doubt, and the decisions of which it is the home. EntryDamaged,
    BlobCorrupt, BlobMissing, ValueError; ShardLost."""
    prepared = [await _prepared(kv, key) for key in _keys(kv, PREPARED_KEYS)]
    decisions = []
    for key in _keys(kv, DECISION_KEYS):
        decision = CommitDecision.decode(await read_value(kv, key) or b"")
        _check_transaction(key, decision.transaction)
        decisions.append(decision)
    return prepared, decisions


async def _prepared(kv: KeyValueTablet, key: bytes) -> LockedRows:
    head, value = PreparedRows.decode(await read_value(kv, key) or b"")
    _check_transaction(key, head.transaction)
    rows: list[NewRow] = []
    columns = 0
    logged = decode_entries(value)
    while some := list(islice(logged, REPLAYED_ROWS)):
        columns = some[0].columns
        rows += [NewRow(row.key, row.version[KIND_AT:]) for row in some]
        await asyncio.sleep(0)
    if not rows:
        raise ValueError(f"transaction {head.transaction.hex()} has prepared no row")
    return LockedRows(head, columns, rows, len(value), is_in_doubt=True)


def _check_transaction(key: bytes, transaction: TransactionId) -> None:
    """ValueError."""
    if read_transaction_key(key) != transaction:
        raise ValueError(f"the value of key {key.hex()} is of transaction {transaction.hex()}")


async def remove_staged(kv: KeyValueTablet) -> None:
    """Remove pieces of tasks of earlier generations: none of those can name them. CommitRefused, ShardLost."""
    if _keys(kv, PIECE_KEYS):
        await kv.execute([DeleteRange(PIECE_KEYS, True, PIECE_KEYS + b"\xff", False)])


async def read_log(kv: KeyValueTablet, form: RowForm, inline_bytes_max: int) -> list[LoadedStore]:
    """Return the stores that the log has, the oldest first; none: it has no entry. EntryDamaged, BlobCorrupt,
    BlobMissing, ValueError; ShardLost."""
    found: dict[int, LoadedStore] = {}
    for key, entry in list(kv.keys(LOG_KEYS, LOG_KEYS + b"\xff")):
        number, entry_number = read_log_key(key)
        if number not in found:
            found[number] = LoadedStore(RowStore(number, entry.created_ms), StoreLog(number, inline_bytes_max))
        store, log = found[number]
        log.found(entry_number, key, entry.size, entry.piece_count)
        value = await read_value(kv, key)
        assert value is not None
        await _apply_entries(store, form, value)
    return [found[number] for number in sorted(found)]


async def read_value(kv: KeyValueTablet, key: bytes) -> bytes | None:
    """Return a value; None: there is no such key. BlobCorrupt, BlobMissing, ShardLost."""
    entry = kv.entry(key)
    if entry is None:
        return None
    (buffers,) = await kv.read([(key, 0, entry.size)])
    return b"".join(buffers)


async def _read_progress(kv: KeyValueTablet) -> FeedProgress:
    rows = [(key, await read_value(kv, key) or b"") for key in _keys(kv, FEED_KEYS)]
    return FeedProgress.read(rows, await read_value(kv, LETTERS_KEY))


async def _apply_entries(store: RowStore, form: RowForm, value: bytes) -> None:
    rows = decode_entries(value)
    while some := list(islice(rows, REPLAYED_ROWS)):
        timestamps = [timestamp_of(row.version) for row in some]
        widened = ((row.key, form.widened(row.version, row.columns)) for row in some)
        store.apply(widened, min(timestamps), max(timestamps))
        if len(some) == REPLAYED_ROWS:
            await asyncio.sleep(0)


def _keys(kv: KeyValueTablet, kind: bytes) -> list[bytes]:
    """Return the keys that begin with a byte, in order."""
    return [key for key, _ in kv.keys(kind, bytes((kind[0] + 1,)))]  # a transaction's number may begin with 0xff
