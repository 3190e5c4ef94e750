"""CSV and Parquet as columns of Arrow. What a file claims of itself is checked before memory is taken for it; what it
takes then is the worker's limit of memory to end."""

import csv
import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, Final, NamedTuple

import pyarrow
import pyarrow.csv
import pyarrow.parquet

from pqbroker.tables.columns import folded

FOOTER_BYTES_MAX: Final = 16 << 20
"""Bytes of a Parquet file's footer at most."""
HEAD_BYTES_MAX: Final = 1 << 20
"""Bytes of a CSV file in which its line of names is looked for."""
LINE_BYTES_MAX: Final = 8 << 20
"""Bytes of a CSV file's row at most, about."""
ROWS_AT_ONCE: Final = 4096
_MAGIC: Final = b"PAR1"
_TAIL_BYTES: Final = 8
_DELIMITERS: Final = ",;\t|"
Read = Callable[[Sequence[str]], Iterator[Any]]


class FileDamaged(Exception):
    """The file is not what its name says."""


class FileColumns(NamedTuple):
    """Columns of an open file. `read` yields batches of rows with some of them, once."""

    types: Mapping[str, Any]
    read: Read


def columns_of(file: BinaryIO, name: str, columns_max: int) -> FileColumns:
    """Return the columns of a file whose ending says its format. FileDamaged, pyarrow.ArrowException, OSError."""
    found = _parquet(file, columns_max) if name.lower().endswith(".parquet") else _csv(file, columns_max)
    _check_names(list(found.types))
    return found


def _check_names(names: Sequence[str]) -> None:
    seen: dict[str, str] = {}
    for name in names:
        if (other := seen.get(folded(name))) is not None:
            shown = f"{other[:100]!r} and {name[:100]!r}"
            raise FileDamaged(f"its columns {shown} have one name; upper and lower case make no difference in SQL")
        seen[folded(name)] = name


def _check_count(count: int, columns_max: int) -> None:
    if count > columns_max:
        raise FileDamaged(f"it has {count} columns, more than pqbroker.table.columns.max = {columns_max}")
    if not count:
        raise FileDamaged("it has no column")


def _parquet(file: BinaryIO, columns_max: int) -> FileColumns:
    _check_footer(file)
    opened = pyarrow.parquet.ParquetFile(file, memory_map=False, pre_buffer=False)
    _check_count(opened.metadata.num_columns, columns_max)
    schema = opened.schema_arrow
    types = dict(zip(schema.names, schema.types, strict=True))
    if len(types) < len(schema.names):
        _check_names(schema.names)

    def read(columns: Sequence[str]) -> Iterator[Any]:
        # a name with a dot would mean a part of another column too
        wanted = None if any("." in column for column in columns) else list(columns)
        for batch in opened.iter_batches(ROWS_AT_ONCE, columns=wanted, use_threads=False):
            yield batch.select(columns)

    return FileColumns(types, read)


def _check_footer(file: BinaryIO) -> None:
    size = file.seek(0, os.SEEK_END)
    if size < len(_MAGIC) + _TAIL_BYTES:
        raise FileDamaged("it is too short for a Parquet file")
    file.seek(size - _TAIL_BYTES)
    tail = file.read(_TAIL_BYTES)
    if tail[4:] != _MAGIC:
        raise FileDamaged("it is no Parquet file, or is encrypted, or ends early")
    footer_bytes = int.from_bytes(tail[:4], "little")
    if footer_bytes > min(size - _TAIL_BYTES - len(_MAGIC), FOOTER_BYTES_MAX):
        raise FileDamaged(f"its footer claims {footer_bytes} bytes of {size}; at most {FOOTER_BYTES_MAX} are read")
    file.seek(0)


def _csv(file: BinaryIO, columns_max: int) -> FileColumns:
    names, delimiter = _head(file)
    _check_count(len(names), columns_max)
    _check_names(_shown(names))
    reading = pyarrow.csv.ReadOptions(use_threads=False, block_size=LINE_BYTES_MAX)
    parsing = pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    converting = pyarrow.csv.ConvertOptions(
        null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
    )
    try:
        table = pyarrow.csv.read_csv(file, reading, parsing, converting)
    except pyarrow.ArrowInvalid as error:
        if "straddl" not in str(error):
            raise
        raise FileDamaged(f"a row has more than {LINE_BYTES_MAX} bytes, or a quote has no end") from None
    if table.schema.names != names:
        raise FileDamaged(f"its line of names is longer than {HEAD_BYTES_MAX} bytes, or quoted in two ways")
    table = table.rename_columns(_shown(names))
    types = dict(zip(table.schema.names, table.schema.types, strict=True))
    return FileColumns(types, lambda columns: iter(table.select(list(columns)).to_batches(ROWS_AT_ONCE)))


def _shown(names: Sequence[str]) -> list[str]:
    """Return names in which a column without one, an index most often, has its place."""
    return [name or f"column{number}" for number, name in enumerate(names)]


def _head(file: BinaryIO) -> tuple[list[str], str]:
    """Return the names in the first line, and the character between them."""
    data = file.read(HEAD_BYTES_MAX + 1)
    file.seek(0)
    text = data.decode("utf-8-sig", errors="replace")
    if not text.strip():
        raise FileDamaged("it is empty")
    delimiter = max(_DELIMITERS, key=text.lstrip("\r\n").partition("\n")[0].count)
    try:
        lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        return next((line for line in lines if line), []), delimiter
    except csv.Error as error:
        raise FileDamaged(f"its line of names is none: {error}") from None
