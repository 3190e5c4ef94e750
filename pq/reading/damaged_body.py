"""Reading a body that a checksum found damaged: batch by batch around the damage, or its index rebuilt from its
batches, whose offsets may have gaps before, between and behind them."""

from collections.abc import Awaitable, Callable

from pqbroker.pq.log.batch_run import Batches, GrowingRun
from pqbroker.pq.log.body import BODY_INDEX_GAP_BYTES, BODY_PAGE_BYTES, BodyIndex
from pqbroker.pq.reading.query import ReadQuery
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.records import BATCH_HEADER_BYTES, BATCH_MAGIC, BatchHeader, read_header
from pqbroker.storage.engine import BlobCorrupt, Buffer

ReadBytes = Callable[[int, int], Awaitable[memoryview]]
"""Reads bytes of one body, at a position as many; KeyMissing when it was deleted or replaced."""


async def read_around(read: ReadBytes, index: BodyIndex, query: ReadQuery) -> Batches:
    """The undamaged batches behind the index entry of the query's offset; CORRUPT_MESSAGE when that one is damaged."""
    offset = query.offset
    entry = index.entry_of(offset)
    position, size, end = index.span(entry, entry + 1)
    stop = position + size
    found: list[Buffer] = []
    total, following = 0, offset
    while position < stop and (total < query.bytes_max or not total):
        try:
            header = read_header(await read(position, BATCH_HEADER_BYTES))
            if header.last_offset >= query.end_offset:
                following = query.end_offset
                break
            if header.last_offset >= offset:
                found.append(await read(position, header.size_bytes))
                total += header.size_bytes
                following = header.last_offset + 1
        except BlobCorrupt as damage:
            if not found:
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(damage)) from damage
            break
        position += header.size_bytes
    if position >= stop:
        following = max(following, end)  # behind the gap in which the entry may end
    return Batches(found, total, following)


async def rebuild_index(read: ReadBytes, span: tuple[int, int]) -> BodyIndex:
    """The index of a body, of the offsets `span`, from its batches, as far as they can be read: up to the body's end
    where the next bytes are those of an index, else up to the damage."""
    run = GrowingRun(0)
    following, end_offset = span
    first_offset = None
    is_whole = False
    while following < end_offset and not is_whole:
        try:
            data = await read(run.end, BODY_PAGE_BYTES)
            header = _batch_header(data, 0, (following, end_offset))
            if header is not None and header.size_bytes > len(data):
                data = await read(run.end, header.size_bytes)
        except BlobCorrupt:
            break
        at = 0
        is_whole = header is None
        while header is not None and at + header.size_bytes <= len(data):
            first_offset = header.base_offset if first_offset is None else first_offset
            run.append(data[at : at + header.size_bytes], header.base_offset, header.max_timestamp, not at)
            following = header.last_offset + 1
            at += header.size_bytes
            header = _batch_header(data, at, (following, end_offset))
        if not at:
            break
    if first_offset is None:
        text = f"neither index nor batches of the body at offset {span[0]} can be read"
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, text)
    columns = run.index_between(0, run.end, first_offset, BODY_INDEX_GAP_BYTES)
    return BodyIndex(columns, run.end, end_offset if is_whole else following)


def _batch_header(data: memoryview, at: int, span: tuple[int, int]) -> BatchHeader | None:
    """The header of the batch there, which has offsets of `span` only; None where there is no batch, or the bytes end.

    An index begins with the position 0: as a base offset it is behind no batch.
    """
    if at + BATCH_HEADER_BYTES > len(data):
        return None
    header = read_header(data, at)
    is_batch = (
        header.magic == BATCH_MAGIC
        and header.size_bytes >= BATCH_HEADER_BYTES
        and span[0] <= header.base_offset <= header.last_offset < span[1]
    )
    return header if is_batch else None
