"""A local file that a query names: its columns, and its rows while DuckDB takes them."""

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow

from pqbroker.tables.columns import folded
from pqbroker.tables.work.files.formats import FileColumns, FileDamaged, columns_of
from pqbroker.tables.work.files.opening import damaged, open_file
from pqbroker.tables.work.scanning import Tally


class FileScan:
    """A file, opened; only columns that the query uses are made. QueryRefused."""

    def __init__(self, relation: str, place: Mapping[str, Any], used: Collection[str], *, has_star: bool) -> None:
        self.relation = relation
        self._name: str = place["name"]
        self._file = open_file(place)
        self._size = self._file.seek(0, os.SEEK_END)
        self._file.seek(0)
        self._columns = self._opened(place["columns_max"])
        named = [name for name in self.types if has_star or folded(name) in used]
        self.columns = named or [next(iter(self.types))]

    @property
    def types(self) -> Mapping[str, Any]:
        """Return the Arrow types of all columns by name."""
        return self._columns.types

    def schema(self) -> Any:
        """Return the Arrow schema of the rows."""
        return pyarrow.schema([(name, self.types[name]) for name in self.columns])

    def rows(self, tally: Tally) -> Iterator[Any]:
        """Yield the rows, once. QueryRefused, which the tally keeps too: DuckDB does not pass it on."""
        tally.stored_bytes += self._size
        with self._refusing(tally):
            for batch in self._columns.read(self.columns):
                tally.rows += batch.num_rows
                yield batch

    def close(self) -> None:
        """Close the file: the query is over."""
        self._file.close()

    def explained(self) -> dict[str, Any]:
        """Return what a scan reads."""
        return {"topic": self.relation, "tablets": [], "columns": self.columns, "file": self._name}

    def _opened(self, columns_max: int) -> FileColumns:
        try:
            with self._refusing(None):
                return columns_of(self._file, self._name, columns_max)
        except BaseException:
            self.close()
            raise

    @contextmanager
    def _refusing(self, tally: Tally | None) -> Iterator[None]:
        try:
            yield
        except (FileDamaged, pyarrow.ArrowException, OSError, ValueError, OverflowError, MemoryError) as error:
            refusal = damaged(self._name, str(error))
            if tally is not None:
                tally.refusal = refusal
            raise refusal from None
