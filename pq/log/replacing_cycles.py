"""Write cycles in which bodies take the place of others: of adjacent ones, with all their offsets (semantics G.3).

One request deletes the old keys and writes the new one, which may be the key of an old body: a start sees the old
bodies or the new one. Facts of rows stay where they are, since a body begins where one of the old ones did. A body that
is larger than a blob may be is stored in parts, as a large batch is (`blob_layout.py`).
"""

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from pqbroker.pq.log.body import BODY_INDEX_GAP_BYTES, Bodies, BodyName, Columns, encode_index
from pqbroker.pq.log.cleaned_log import CleanedLog
from pqbroker.pq.log.keys import COUNT_MAX, aborted_key, body_key, cleaned_key, meta_key, part_key
from pqbroker.pq.log.partition import Partition
from pqbroker.pq.log.producer_transactions import TransactionsChange
from pqbroker.pq.log.start_state import Meta
from pqbroker.pq.log.write_cycle import Cycle, ReplacedBodies
from pqbroker.protocol.records import read_header
from pqbroker.storage.engine import Buffer
from pqbroker.storage.kv.commands import Concat, DeleteRange, Piece, Write
from pqbroker.storage.kv.value_parts import cut


class NewBody(NamedTuple):
    """Batches in the place of adjacent bodies, oldest first, end to end in buffers that may cut them anywhere.
    `columns`: their index, as `index_of` makes it."""

    replaced: Sequence[BodyName]
    batches: Sequence[Buffer]
    columns: Columns


def index_of(batches: Sequence[Buffer]) -> Columns:
    """The sparse index of batches end to end. It walks all headers: not on the loop."""
    columns = positions, offsets, stamps = array("q"), array("q"), array("q")
    position = 0
    for batch in batches:
        header = read_header(batch)
        if not positions or position - positions[-1] >= BODY_INDEX_GAP_BYTES:
            positions.append(position)
            offsets.append(header.base_offset)
            stamps.append(header.max_timestamp)
        elif header.max_timestamp > stamps[-1]:
            stamps[-1] = header.max_timestamp
        position += header.size_bytes
    return columns


def plan_replacing(
    partition: Partition,
    made: Sequence[NewBody],
    now_ms: int,
    cleaned: CleanedLog | None = None,
    emptied: Sequence[int] = (),
) -> Cycle:
    """Plan the replacing of bodies, all at once; an empty plan when one of them is not as it was named any more.
    `cleaned`: what is known of the log's cleanings then, perhaps nothing but that. `emptied`: markers of transactions
    without a batch, which need not be known as aborted."""
    assert not partition.is_writing
    cycle = partition.no_change(now_ms)
    spans = [_span(partition.bodies, body.replaced) for body in made]
    if None in spans or not (made or cleaned):
        return cycle
    partition.is_writing = True
    if cleaned is not None:
        cycle.cleaned = cleaned
        cycle.store(cleaned_key(partition.index), cleaned.encode())
    if emptied and partition.transactions.aborted is not None:
        cycle.transactions = change = TransactionsChange()
        change.dropped = partition.transactions.aborted.among(emptied)
        cycle.gone += [aborted_key(partition.index, offset) for offset in change.dropped]
    if not made:
        return cycle
    cycle.replaced = [
        _place(partition, cycle, body, span) for body, span in zip(made, spans, strict=True) if span is not None
    ]
    if cycle.parts:
        cycle.touches_parts = True
        if partition.has_leftovers:
            partition.layout.wipe_leftovers(cycle)
    # A later body is no sign that nothing was lost behind the end which it had: salvage asks the meta row.
    epochs = list(partition.epochs.to_store())
    has_aborted = partition.transactions.aborted is not None
    meta = Meta(partition.start_offset, partition.end_offset, epochs, has_aborted)
    cycle.store(meta_key(partition.index), meta.encode())
    return cycle


def _span(bodies: Bodies, names: Sequence[BodyName]) -> tuple[int, int] | None:
    """The numbers [first, last) of bodies; None when they are not there any more."""
    first = bodies.number_of(names[0])
    if first is None or first + len(names) > len(bodies):
        return None
    last = first + len(names)
    return (first, last) if [bodies.name(number) for number in range(first, last)] == list(names) else None


def _place(partition: Partition, cycle: Cycle, body: NewBody, span: tuple[int, int]) -> ReplacedBodies:
    """Put the commands of one body into the cycle."""
    bodies, (first, last) = partition.bodies, span
    offset, end = bodies.offsets[first], bodies.ends[last - 1]
    assert body.batches, "a body holds one batch at least"
    assert end - offset <= COUNT_MAX, (offset, end)
    size = sum(map(len, body.batches))
    index = encode_index(body.columns, size, end)
    size += len(index)
    old = bodies.key(partition.index, first), bodies.key(partition.index, last - 1)
    cycle.commands.append(DeleteRange(old[0], True, old[1], True))
    key = body_key(partition.index, offset, end - offset)
    *before, (rest, rest_bytes) = cut([*body.batches, index])
    created_ms = max(bodies.created[first:last])
    if before:
        parts = [
            Write(part_key(partition.index, offset, number), piece, part_bytes)
            for number, (piece, part_bytes) in enumerate(before)
        ]
        cycle.parts += parts
        chain: list[bytes | Piece] = [*(part.key for part in parts), Piece(rest, rest_bytes)]
        cycle.commands.append(Concat(tuple(chain), key, created_ms=created_ms))
    else:
        cycle.commands.append(Write(key, rest, size, created_ms=created_ms))
    return ReplacedBodies(body.replaced, size, max(body.columns[2]))

