"""The partitions of a Produce request of one topic, cut out of its frame without decoding it."""

import struct
from collections.abc import Callable
from typing import Final

from pqbroker.protocol.layout import codes
from pqbroker.protocol.messages.produce import PartitionProduceData, ProduceRequest
from pqbroker.protocol.schema import message

LANE_PARTITIONS_MAX: Final = 100
"""Partitions of a request in a lane at most. A request with more is dispatched, since it may be a long one."""

ProducedPartition = tuple[int, memoryview]
"""Index and records of a partition; the records are a slice of the frame."""
Cut = Callable[[memoryview, int], list[ProducedPartition] | None]

_COUNT = struct.Struct(">i").unpack_from
_NUMBERS = codes(PartitionProduceData, message(ProduceRequest).versions.high)
"""The index of a partition, in every version."""
_INDEX = struct.Struct(f">{_NUMBERS}").unpack_from
_INDEX_BYTES = struct.calcsize(f">{_NUMBERS}")
_ENTRY = struct.Struct(f">{_NUMBERS}i").unpack_from
_ENTRY_BYTES = _INDEX_BYTES + 4
"""Bytes of that and of the size of the records behind it, up to version 8."""
_SHIFT_MAX = 28
"""Shift of the fifth and last byte of a varint."""


def cut_fixed(frame: memoryview, position: int) -> list[ProducedPartition] | None:
    """Return the partitions of versions up to 8, from their count on; None if the frame has anything else."""
    found: list[ProducedPartition] = []
    try:
        (count,) = _COUNT(frame, position)
        if not 0 < count <= LANE_PARTITIONS_MAX:
            return None
        position += 4
        for _ in range(count):
            index, size = _ENTRY(frame, position)
            start = position + _ENTRY_BYTES
            position = start + size
            if size <= 0 or position > len(frame):
                return None
            found.append((index, frame[start:position]))
    except struct.error:
        return None
    return found if position == len(frame) else None


def cut_flexible(frame: memoryview, position: int) -> list[ProducedPartition] | None:
    """Return the partitions from version 9 on; None also if the frame has tagged fields."""
    found: list[ProducedPartition] = []
    try:
        count = frame[position] - 1
        if not 0 < count <= LANE_PARTITIONS_MAX:
            return None
        position += 1
        for _ in range(count):
            (index,) = _INDEX(frame, position)
            position += _INDEX_BYTES
            size, shift = frame[position], 7
            position += 1
            while size >> shift and shift <= _SHIFT_MAX:  # a varint: bytes over 127 have one behind them
                size += (frame[position] - 1) << shift
                position += 1
                shift += 7
            start, position = position, position + size - 1
            if size <= 1 or size >> shift or frame[position]:
                return None
            found.append((index, frame[start:position]))
            position += 1
        if frame[position] or frame[position + 1]:  # tagged fields of the topic, of the request
            return None
    except (IndexError, struct.error):
        return None
    return found if position + 2 == len(frame) else None
