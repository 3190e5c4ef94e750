"""Reading a body that a checksum found damaged: batch by batch around the damage, or its index rebuilt from its
batches."""

from pqbroker.pq.log.batch_run import Batches, GrowingRun
from pqbroker.pq.log.body import BODY_INDEX_GAP_BYTES, BODY_PAGE_BYTES, BodyIndex
from pqbroker.pq.reading.query import ReadQuery
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.records import BATCH_HEADER_BYTES, read_header
from pqbroker.storage.engine import BlobCorrupt, Buffer
from pqbroker.storage.kv.tablet import KeyValueTablet


async def read_around(kv: KeyValueTablet, name: bytes, index: BodyIndex, query: ReadQuery) -> Batches:
    """The undamaged batches behind the index entry of the query's offset; CORRUPT_MESSAGE when that one is damaged."""
    offset = query.offset
    entry = index.entry_of(offset)
    position, size, _ = index.span(entry, entry + 1)
    stop = position + size
    found: list[Buffer] = []
    total, following = 0, offset
    while position < stop and (total < query.bytes_max or not total):
        try:
            header = read_header(await _bytes(kv, name, position, BATCH_HEADER_BYTES))
            if header.last_offset >= query.end_offset:
                break
            if header.last_offset >= offset:
                found.append(await _bytes(kv, name, position, header.size_bytes))
                total += header.size_bytes
                following = header.last_offset + 1
        except BlobCorrupt as damage:
            if not found:
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(damage)) from damage
            break
        position += header.size_bytes
    return Batches(found, total, following)


async def rebuild_index(kv: KeyValueTablet, name: bytes, end_offset: int) -> BodyIndex:
    """The index of a body from its batches, as far as they can be read."""
    run = GrowingRun(0)
    following = first_offset = None
    while following != end_offset:
        try:
            data = await _bytes(kv, name, run.end, BODY_PAGE_BYTES)
            header = read_header(data)
            if header.size_bytes > len(data):
                data = await _bytes(kv, name, run.end, header.size_bytes)
        except BlobCorrupt:
            break
        at = 0
        while at + BATCH_HEADER_BYTES <= len(data) and following != end_offset:
            header = read_header(data, at)
            if at + header.size_bytes > len(data):
                break
            first_offset = header.base_offset if first_offset is None else first_offset
            run.append(data[at : at + header.size_bytes], header.base_offset, header.max_timestamp, not at)
            following = header.last_offset + 1
            at += header.size_bytes
    if following is None or first_offset is None:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"neither index nor batches of {name.decode()} can be read")
    return BodyIndex(run.index_between(0, run.end, first_offset, BODY_INDEX_GAP_BYTES), run.end, following)


async def _bytes(kv: KeyValueTablet, name: bytes, position: int, size: int) -> memoryview:
    buffers = (await kv.read([(name, position, size)]))[0]
    return memoryview(buffers[0] if len(buffers) == 1 else b"".join(buffers))
