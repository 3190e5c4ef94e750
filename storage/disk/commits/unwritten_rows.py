"""Size of the index's next file, by what the index has in memory: on a full disk, where that is asked to the byte.

A row that is changed again is in the file once, one that is deleted as its key. So deletes make room for the very file
that has to be written before a segment can go.
"""

from typing import Generic, TypeVar

from pqbroker.storage.disk.commits.index_changes import IndexBatch

_ROW_BYTES = 24
"""Bytes that a row takes in a file besides key and value, at most."""
_FILE_BYTES = 16 << 10
"""Bytes that a file takes besides its rows."""
B = TypeVar("B", bound=IndexBatch)


class UnwrittenRows:
    """Sizes of the rows that no file has yet."""

    __slots__ = ("_rows_bytes", "_sizes")

    def __init__(self) -> None:
        self._sizes: dict[bytes, int] = {}
        self._rows_bytes = 0

    @property
    def file_bytes(self) -> int:
        """Return how many bytes the rows' file would take, at most."""
        return self._rows_bytes + _ROW_BYTES * len(self._sizes) + _FILE_BYTES

    def put(self, key: bytes, size: int) -> None:
        """The row takes `size` bytes now, its key among them."""
        self._rows_bytes += size - self._sizes.get(key, 0)
        self._sizes[key] = size

    def delete_range(self, begin: bytes, end: bytes) -> None:
        """Rows within go; what marks the range takes both keys."""
        for key in [key for key in self._sizes if begin <= key < end]:
            self._rows_bytes -= self._sizes.pop(key)
        self.put(begin + end, len(begin) + len(end))


class CountedBatch(Generic[B]):
    """An `IndexBatch` that counts what is added to another one."""

    __slots__ = ("_rows", "batch")

    def __init__(self, batch: B, rows: UnwrittenRows) -> None:
        self.batch = batch
        self._rows = rows

    def put(self, key: bytes, value: bytes) -> None:
        self._rows.put(key, len(key) + len(value))
        self.batch.put(key, value)

    def delete(self, key: bytes) -> None:
        self._rows.put(key, len(key))
        self.batch.delete(key)

    def delete_range(self, begin: bytes, end: bytes) -> None:
        self._rows.delete_range(begin, end)
        self.batch.delete_range(begin, end)
