"""Rows that a worker has made of a topic's records, as they pass to the broker.

    of each row: uint32 bytes of the version but for its timestamp, uint16 bytes of the key; the key; the version
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final

from pqbroker.tables.sorted.log_entries import NewRow

FED_LENGTHS: Final = Struct("<IH")


def encode_fed_rows(rows: Sequence[NewRow]) -> bytes:
    """Encode rows end to end."""
    return b"".join([part for key, body in rows for part in (FED_LENGTHS.pack(len(body), len(key)), key, body)])


def read_fed_rows(
    payload: memoryview, tablets: Sequence[Sequence[int]], batches: Sequence[int]
) -> tuple[dict[int, list[NewRow]], list[memoryview]]:
    """Return rows by tablet, and the batches behind them. `tablets`: each with its count of rows; `batches`: sizes."""
    data = bytes(payload)
    position = 0
    by_tablet: dict[int, list[NewRow]] = {}
    for tablet, count in tablets:
        rows = by_tablet[tablet] = []
        for _ in range(count):
            body_bytes, key_bytes = FED_LENGTHS.unpack_from(data, position)
            begin = position + FED_LENGTHS.size
            middle = begin + key_bytes
            position = middle + body_bytes
            rows.append(NewRow(data[begin:middle], data[middle:position]))
    found: list[memoryview] = []
    for size in batches:
        found.append(memoryview(bytearray(data[position : position + size])))  # offsets are stamped into batches
        position += size
    return by_tablet, found
