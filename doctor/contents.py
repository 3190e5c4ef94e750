"""The values of data keys: record batches end to end, each under its own checksum; a body's index. A head has every
offset, a body may lack those that a cleaner took out."""

from crc32c import crc32c

from pqbroker.pq.log.body import decode_index, index_bytes
from pqbroker.protocol.errors import KafkaError
from pqbroker.protocol.records import BATCH_MAGIC, CRC_END, batches


class Damaged(ValueError):
    """Stored bytes are not those that were written; the text says how."""


def require(holds: bool, told: str) -> None:
    """Raise Damaged unless it holds."""
    if not holds:
        raise Damaged(told)


def check_head(value: memoryview, offset: int, end: int, generation: int) -> None:
    """Check that a head's value has the records [offset, end). Raises Damaged."""
    _check_batches(value, (offset, end), generation, with_gaps=False)


def check_body(value: memoryview, offset: int, end: int, generation: int) -> None:
    """Check that a body's value has records of [offset, end) in their order, and an index that leads to them. Raises as
    `check_head`."""
    index = decode_index(value)
    size = index_bytes(value)
    if index is None or size is None:
        raise Damaged("the index behind the batches does not match its checksum")
    require(index.data_bytes + size == len(value), f"an index over {index.data_bytes} of {len(value) - size} bytes")
    require(index.end_offset == end, f"the index ends at offset {index.end_offset}")
    begins = _check_batches(value[: index.data_bytes], (offset, end), generation, with_gaps=True)
    require(bool(begins), "it holds no batch")
    for position, first in zip(index.positions, index.offsets, strict=True):
        require(begins.get(position) == first, f"no batch begins with offset {first} at byte {position}, as indexed")


def _check_batches(data: memoryview, span: tuple[int, int], generation: int, *, with_gaps: bool) -> dict[int, int]:
    """Return where each batch begins, and its base offset; `span`: the first offset and the end, `with_gaps`: offsets
    may be missing before, between and behind batches."""
    begins: dict[int, int] = {}
    following, end = span
    try:
        for position, header in batches(data):
            where = f"the batch of offset {following} at byte {position}"
            require(header.magic == BATCH_MAGIC, f"{where} is of magic {header.magic}")
            is_next = header.base_offset >= following if with_gaps else header.base_offset == following
            require(is_next, f"{where} says it begins at {header.base_offset}")
            require(header.last_offset_delta >= 0, f"{where} ends before it begins")
            checked = data[position + CRC_END : position + header.size_bytes]
            require(crc32c(checked) == header.crc, f"{where} does not match its checksum")
            require(header.partition_leader_epoch <= generation, f"{where} is of epoch {header.partition_leader_epoch}")
            begins[position] = header.base_offset
            following = header.last_offset + 1
    except KafkaError as short:
        raise Damaged(f"from offset {following} on: {short.message}") from short
    is_end = following <= end if with_gaps else following == end
    require(is_end, f"the batches end at offset {following}, not {end}")
    return begins
