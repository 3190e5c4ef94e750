"""Record batches where the broker says that they lie: regions of segment files, which this process reads, and bytes.

Nobody keeps a file that was named: where it is gone, or holds something else by now, the broker is asked again.
"""

import os
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from pqbroker.pq.log.producer_transactions import AbortedBatches
from pqbroker.protocol.records import BatchHeader, batches


class BatchDamaged(Exception):
    """The bytes are no record batches, or not those that were asked for."""


class Order(NamedTuple):
    """The known facts of the batches of a run: the first one's offset, and where they end at most; None: nothing.
    `aborted`: batches of Kafka transactions that were aborted, which are left out; None: there are none."""

    first_offset: int | None = None
    end_offset: int | None = None
    aborted: AbortedBatches | None = None


NO_ORDER: Final = Order()


def in_order(data: memoryview, order: Order) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of each batch that was not aborted, once it is known to stand where it says: checksums
    do not cover offsets. BatchDamaged; KafkaError CORRUPT_MESSAGE."""
    first, end, aborted = order
    expected = first
    for position, header in batches(data):
        is_moved = first is not None and position == 0 and header.base_offset != first
        if is_moved or (expected is not None and header.base_offset < expected):
            raise BatchDamaged(f"a batch at offset {header.base_offset} stands where {expected} is the next one")
        expected = header.last_offset + 1
        if aborted is None or not aborted.has(header):
            yield position, header
    if expected is not None and end is not None and expected > end:
        raise BatchDamaged(f"batches up to offset {expected} stand where {end} is the next one")


def order_of(bounds: Sequence[int | None] | None, spans: Sequence[Sequence[int]] | None) -> Order:
    """Return what the broker said of a run of batches: their bounds, and the spans of aborted transactions in them."""
    first, end = bounds or (None, None)
    return Order(first, end, AbortedBatches(spans) if spans else None)


def read_pieces(pieces: Sequence[Any], payload: memoryview) -> tuple[bytes, memoryview]:
    """Return the pieces end to end, each a path, a position and a size, or the size of what the payload has; and what
    follows them in the payload. OSError for a file that is gone or ends early."""
    parts: list[bytes | memoryview] = []
    taken = 0
    for piece in pieces:
        if isinstance(piece, int):
            parts.append(payload[taken : taken + piece])
            taken += piece
        else:
            parts.append(_read(*piece))
    return b"".join(parts), payload[taken:]


def _read(path: str, position: int, size: int) -> bytes:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.pread(file, size, position)
    finally:
        os.close(file)
    if len(data) < size:
        raise OSError(f"{path} ends early")
    return data
