"""A merge in this process: its messages, and the chunks of which they are the pieces."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pqbroker.tables.sorted.chunks import FOOTER_BYTES, ChunkIndex, read_index_bytes
from pqbroker.tables.sorted.keys import key_encoder
from pqbroker.tables.sorted.log_entries import NewRow, encode_entry
from pqbroker.tables.sorted.packed_rows import DELETED, RowForm
from pqbroker.tables.sorted.versions import Version
from pqbroker.tables.work.messages import Line, Message
from pqbroker.tables.work.sorted.merging import CHUNK_PIECE_BYTES, merge

MEMORY_BYTES = 256 << 20
Table = tuple[list[list[str]], list[list[str]]]
"""Names and types of key columns and of value columns."""


class Pieces(Line):
    """Keeps what the worker sends; `stop` says whether the broker wants to stop."""

    def __init__(self, stop: Callable[[int], bool] = lambda sent: False) -> None:
        self.chunks: list[bytearray] = []
        self._sent = 0
        self._stop = stop

    def send(self, kind: str, document: Any, payload: Any = b"") -> None:
        assert kind == "piece"
        assert 0 < len(payload) <= CHUNK_PIECE_BYTES
        self._sent += 1
        if document["chunk"] == len(self.chunks):
            self.chunks.append(bytearray())
        assert document["chunk"] == len(self.chunks) - 1
        self.chunks[-1] += payload

    def has_unasked(self) -> bool:
        return self._stop(self._sent)


def question(table: Table, inputs: Sequence[dict[str, Any]], **others: Any) -> dict[str, Any]:
    """The message that has inputs merged."""
    return {
        "schema": {"key": table[0], "value": table[1]}, "inputs": inputs, "clean_up": None, "merge_deletions": False,
        "pivots": [], "chunk_bytes_max": 256 << 20, "samples_max": 100, "versions_max": 30_000,
        "memory_bytes_max": MEMORY_BYTES, **others,
    }  # fmt: skip


def merged(
    table: Table, logs: Sequence[bytes] = (), chunks: Sequence[bytes] = (), **others: Any
) -> tuple[list[bytes], dict[str, Any]]:
    """Merge log values and chunks that the payload has: the new chunks, and what is said of them."""
    inputs = [
        {"kind": kind, "pieces": [len(value) // 2, len(value) - len(value) // 2]}
        for kind, values in (("log", logs), ("chunk", chunks))
        for value in values
    ]
    line = Pieces()
    found = merge(line, Message("merge", question(table, inputs, **others), b"".join([*logs, *chunks])))
    assert [facts["size"] for facts in found["chunks"]] == [len(chunk) for chunk in line.chunks]
    return [bytes(chunk) for chunk in line.chunks], found


def in_file(path: Path, value: bytes, kind: str = "chunk") -> dict[str, Any]:
    """An input whose pieces lie apart in a file."""
    half = len(value) // 2
    path.write_bytes(b"~" * 7 + value[half:] + b"~" + value[:half])
    pieces = [[str(path), 8 + len(value) - half, half], [str(path), 7, len(value) - half]]
    return {"kind": kind, "pieces": pieces}


def log_of(table: Table, rows: Sequence[tuple[Sequence[Any], int, Sequence[Any] | None, bool]]) -> bytes:
    """A log value of rows in order of arrival: key values, timestamp, values (None: a delete), and if it updates."""
    encode = key_encoder([kind for _, kind in table[0]])
    form = RowForm([kind for _, kind in table[1]])
    writes = [
        (timestamp, [NewRow(encode(key), DELETED if values is None else form.pack(values, is_update=is_update))])
        for key, timestamp, values, is_update in rows
    ]
    middle = len(writes) // 3
    parts = (writes[:middle], writes[middle:])
    return b"".join(encode_entry(len(table[1]), part) for part in parts if part)


def index_of(chunk: bytes) -> ChunkIndex:
    return ChunkIndex.decode(chunk[-read_index_bytes(chunk[-FOOTER_BYTES:]) :])


def versions_of(chunk: bytes, first: int) -> Iterator[tuple[bytes, Version]]:
    """Read each version of a chunk in plain Python, behind its key; columns from `first` on."""
    index = index_of(chunk)
    for number, place in enumerate(index.places):
        block = index.block(number, chunk[place.position : place.position + place.stored_bytes])
        for row in range(block.rows):
            yield block.key(row), block.version(row, first)
