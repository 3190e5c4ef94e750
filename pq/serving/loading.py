"""State that a partition finds of itself in its KV tablet at a start (semantics A.16); leftovers of a crash are
deleted.

Everything is read and checked before anything is deleted: StoredUnreadable names the first row that no tablet of this
version writes, and leaves all rows as they are.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import TypeVar

from pqbroker.pq.log import consumers, producers
from pqbroker.pq.log.cleaned_log import NEVER_CLEANED, CleanedLog
from pqbroker.pq.log.consumers import ConsumerOffset
from pqbroker.pq.log.keys import (
    TRANSACTIONS,
    TRANSACTIONS_END,
    aborted_range,
    cleaned_key,
    consumer_range,
    data_range,
    facts_range,
    foreign_ranges,
    is_producer_key,
    meta_key,
    outcome_range,
    parse_aborted_key,
    parse_consumer_key,
    parse_facts_key,
    parse_producer_key,
    parse_session_key,
    parse_transaction_key,
    part_range,
    prepared_range,
    producer_range,
    renumbered,
    session_range,
)
from pqbroker.pq.log.leader_epochs import check_epochs
from pqbroker.pq.log.prepared_batches import PreparedBatches
from pqbroker.pq.log.producer_transactions import AbortedSpan, check_span
from pqbroker.pq.log.producers import Producer
from pqbroker.pq.log.row_facts import BlobFacts, RowFacts
from pqbroker.pq.log.sessions import SessionBatch
from pqbroker.pq.log.start_state import (
    NO_META,
    Meta,
    StartState,
    StoredBlob,
    StoredPartition,
    StoredTransactions,
    build_start_state,
)
from pqbroker.pq.transactions.stored_forms import CommitDecision, PreparedHead, PreparedRows, TransactionId
from pqbroker.storage.engine import BlobCorrupt, BlobMissing, Buffer
from pqbroker.storage.kv.commands import Command, DeleteRange, KeyRange, Rename
from pqbroker.storage.kv.reads import read_pairs
from pqbroker.storage.kv.rows import Entry
from pqbroker.storage.kv.tablet import KeyValueTablet
from pqbroker.storage.unreadable import StoredUnreadable

_RENAMES_AT_ONCE = 500
T = TypeVar("T")
K = TypeVar("K")
S = TypeVar("S")
P = TypeVar("P", PreparedHead, CommitDecision)


async def load(kv: KeyValueTablet, index: int, generation: int, first_offset: int = 0) -> StoredPartition:
    """Read a partition's rows, then delete keys that others contain and parts of unfinished batches. One of which
    nothing was ever written begins at `first_offset`.

    StoredUnreadable, before anything is deleted.
    """
    start_state, meta = await _load_blobs(kv, index, generation, Meta(first_offset, first_offset, []))
    producers = await _load_producers(kv, index)
    lo, hi = consumer_range(index)
    offsets = [_pair(key, parse_consumer_key, _decode_consumer, entry) for key, entry in kv.keys(lo, hi)]
    lo, hi = session_range(index)
    sessions = [_pair(key, parse_session_key, _decode_session, entry) for key, entry in kv.keys(lo, hi)]
    facts = await _load_facts(kv, index, start_state)
    transactions = await _load_transactions(kv, index)
    cleaned = await _load_cleaned(kv, index)
    aborted = _load_aborted(kv, index, start_state.end_offset)
    leftovers = [*start_state.orphans, *(key for key, _ in kv.keys(*part_range(index)))]
    if leftovers:
        await kv.execute([DeleteRange(key, True, key, True) for key in leftovers])
    return StoredPartition(start_state, meta, producers, offsets, sessions, facts, transactions, cleaned, aborted)


async def renumber(kv: KeyValueTablet, index: int) -> None:
    """Give the keys of a tablet's one partition its number: a reshard may have changed it. Kafka's idempotent
    producers are forgotten then. No value is copied; what a crash interrupts, the next start continues."""
    for lo, hi in foreign_ranges(index):
        while foreign := [key for key, _ in islice(kv.keys(lo, hi), _RENAMES_AT_ONCE)]:
            await kv.execute([_in_its_place(key, index) for key in foreign])


def _in_its_place(key: bytes, index: int) -> Command:
    """Producers count their batches by a partition's number: those of another number make new ones seem duplicates."""
    return DeleteRange(key, True, key, True) if is_producer_key(key) else Rename(key, renumbered(key, index))


def nothing_stored() -> StoredPartition:
    """Return what stands in for a partition that cannot be read."""
    return StoredPartition(build_start_state([], NO_META), NO_META)


async def _load_blobs(
    kv: KeyValueTablet, index: int, generation: int, unwritten: Meta
) -> tuple[StartState, Meta]:
    meta = unwritten if unwritten.start_offset else None
    key = meta_key(index)
    if kv.entry(key) is not None:
        meta = _read(_place(key), Meta.decode, await _value(kv, key))
    stored = [
        StoredBlob(key, entry.size, entry.created_ms, entry.piece_count) for key, entry in kv.keys(*data_range(index))
    ]
    keys = f"keys of partition {index}"
    start_state = _read(keys, lambda blobs: build_start_state(blobs, meta), stored)
    if meta is not None:
        epochs = meta.epochs
        _read(_place(key), lambda end_offset: check_epochs(epochs, generation, end_offset), start_state.end_offset)
    return start_state, meta or NO_META


async def _load_producers(kv: KeyValueTablet, index: int) -> list[tuple[int, Producer]]:
    """Return the remembered states of producers, by id."""
    lo, hi = producer_range(index)
    return [
        _pair(pair.key, parse_producer_key, producers.decode, _joined(pair.buffers))
        async for pair in read_pairs(kv, KeyRange(lo, True, hi, False))
    ]


async def _load_facts(
    kv: KeyValueTablet, index: int, start_state: StartState
) -> list[tuple[BlobFacts, RowFacts | None]]:
    """Return what the keys of all blobs say; for those of the head, and for the last, the facts themselves too."""
    keys = [key for key, _ in kv.keys(*facts_range(index))]
    if not keys:
        return []
    blobs = [BlobFacts(*_read(_place(key), parse_facts_key, key)) for key in keys]
    head = {blob.offset for blob in start_state.head.blobs}
    wanted = [number for number, blob in enumerate(blobs) if blob.offset in head or number == len(blobs) - 1]
    found: dict[int, RowFacts] = {}
    for number in wanted:
        decode = partial(RowFacts.decode, blobs[number].weight_before)
        found[number] = _read(_place(keys[number]), decode, await _value(kv, keys[number]))
    return [(blob, found.get(number)) for number, blob in enumerate(blobs)]


async def _load_transactions(kv: KeyValueTablet, index: int) -> StoredTransactions | None:
    """Return what transactions have left in a partition; None: nothing, the usual case."""
    if next(kv.keys(TRANSACTIONS, TRANSACTIONS_END), None) is None:
        return None
    lo, hi = outcome_range(index)
    stored = [_pair(key, parse_transaction_key, _decode_decision, entry) for key, entry in kv.keys(lo, hi)]
    decisions = [_read(f"decision {each.hex()}", partial(_check_key, each), decided) for each, decided in stored]
    keys = [key for key, _ in kv.keys(*prepared_range(index))]
    if len(keys) > 1:
        raise StoredUnreadable(_place(keys[1]), f"{len(keys)} transactions have prepared rows, and one at most may")
    prepared: PreparedHead | None = None
    for key in keys:
        transaction, head = _pair(key, parse_transaction_key, _decode_prepared, await _value(kv, key))
        prepared = _read(_place(key), partial(_check_key, transaction), head)
    return StoredTransactions(prepared, decisions) if keys or decisions else None


async def _load_cleaned(kv: KeyValueTablet, index: int) -> CleanedLog:
    """Return what is known of the cleanings of a partition; most were never cleaned."""
    key = cleaned_key(index)
    return NEVER_CLEANED if kv.entry(key) is None else _read(_place(key), CleanedLog.decode, await _value(kv, key))


def _load_aborted(kv: KeyValueTablet, index: int, end_offset: int) -> list[AbortedSpan]:
    """Return the aborted Kafka transactions of a partition; most have none."""
    found: list[AbortedSpan] = []
    for key, entry in kv.keys(*aborted_range(index)):
        marker_offset, row = _pair(key, parse_aborted_key, _inline, entry)
        span = _read(_place(key), partial(AbortedSpan.decode, marker_offset), row)
        found.append(_read(_place(key), partial(check_span, end_offset), span))
    return found


async def _value(kv: KeyValueTablet, key: bytes) -> bytes:
    """Return a value. StoredUnreadable where its blob is damaged or gone: that refuses the partition alone."""
    try:
        (buffers,) = await kv.read([(key, 0, 0)])
    except (BlobCorrupt, BlobMissing) as damage:
        raise StoredUnreadable(_place(key), str(damage)) from damage
    return _joined(buffers)


def _decode_prepared(stored: bytes) -> PreparedHead:
    """ValueError for rows that could not be written."""
    rows = PreparedRows.decode(stored)
    PreparedBatches.decode(rows.rows)
    return rows.head


def _inline(entry: Entry) -> bytes:
    if not entry.is_inline:
        raise ValueError("its value is a blob")
    return bytes(entry.value)


def _decode_decision(entry: Entry) -> CommitDecision:
    return CommitDecision.decode(_inline(entry))


def _check_key(transaction: TransactionId, stored: P) -> P:
    """Return a value that is of the transaction in its key. ValueError."""
    if stored.transaction != transaction:
        raise ValueError(f"it is of transaction {stored.transaction.hex()}")
    return stored


def _decode_consumer(entry: Entry) -> ConsumerOffset:
    return consumers.decode(_inline(entry))


def _decode_session(entry: Entry) -> SessionBatch:
    return SessionBatch.decode(_inline(entry))


def _pair(key: bytes, parse: Callable[[bytes], K], decode: Callable[[S], T], row: S) -> tuple[K, T]:
    return _read(_place(key), parse, key), _read(_place(key), decode, row)


def _read(place: str, decode: Callable[[S], T], stored: S) -> T:
    """Return what `decode` makes of the stored bytes; where it refuses them, StoredUnreadable names their place."""
    try:
        return decode(stored)
    except ValueError as cause:
        raise StoredUnreadable(place, str(cause)) from cause


def _place(key: bytes) -> str:
    return f"the row of key {key.decode('utf-8', 'backslashreplace')!r}"


def _joined(buffers: Sequence[Buffer]) -> bytes:
    return b"".join(buffers)
