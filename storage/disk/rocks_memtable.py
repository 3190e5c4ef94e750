"""RocksDB's memtable: rows that it was given and has not begun to write to a file."""

from rocksdict import Rdict, WriteBatch, WriteOptions

from pqbroker.storage.disk.commits.unwritten_rows import CountedBatch, UnwrittenRows

_ENTRY_BYTES = 64
"""Bytes that a row takes in memory besides key and value."""

Batch = WriteBatch | CountedBatch[WriteBatch]


class Memtable:
    """RocksDB's newest memtable. Rows are written through it, so that it knows how many bytes they take."""

    __slots__ = ("_options", "_rows", "bytes", "rows_bytes", "unwritten")

    def __init__(self, rows: Rdict, *, is_counted: bool = False) -> None:
        """`is_counted`: count row by row."""
        self._rows = rows
        self._options = WriteOptions()
        # The commit log is ours. A property, whatever the stubs of rocksdict 0.3.29 say.
        self._options.disable_wal = True  # type: ignore[method-assign, assignment]
        self.bytes = rows.property_int_value("rocksdb.cur-size-all-mem-tables") or 0
        """Bytes that the memtable takes, about."""
        self.rows_bytes = self.bytes
        """Bytes of keys and values in it; its file takes no more."""
        self.unwritten = UnwrittenRows() if is_counted else None
        """Count of the rows one by one, on a full disk: a row that is deleted again takes no room in the file."""

    def batch(self) -> Batch:
        """Begin a batch for `write`."""
        batch = WriteBatch(raw_mode=True)
        return batch if self.unwritten is None else CountedBatch(batch, self.unwritten)

    def write(self, written: Batch) -> None:
        batch = written.batch if isinstance(written, CountedBatch) else written
        size = batch.size_in_bytes()
        self.rows_bytes += size
        self.bytes += size + _ENTRY_BYTES * batch.len()
        self._rows.write(batch, self._options)

    def exchange(self, *, wait: bool) -> None:
        """Begin to write all rows to a file; later ones go into a new memtable. `wait` until the file is whole."""
        self._rows.flush(wait)
        self.bytes = self.rows_bytes = 0
        if self.unwritten is not None:
            self.unwritten = UnwrittenRows()
