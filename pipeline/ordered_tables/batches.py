"""Rows that SQL answers as Spark takes them, whose check of Arrow's types is exact; and rows of Spark as tables do."""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

BATCH_ROWS = 16_384


def record_batches(wanted: StructType, rows: Any) -> Iterator[Any]:
    """`rows`: an Arrow table with the wanted columns, of SQL's types."""
    schema = to_arrow_schema(wanted, timezone="UTC")
    columns = [_cast(column.combine_chunks(), field.type) for column, field in zip(rows.columns, schema, strict=True)]
    yield from pyarrow.Table.from_arrays(columns, schema=schema).to_batches(max_chunksize=BATCH_ROWS)


def _cast(column: Any, arrow_type: Any) -> Any:
    """A document is its text; times are in UTC."""
    stored = column.storage if isinstance(column, pyarrow.ExtensionArray) else column
    return stored.cast(arrow_type)


def insertable(batch: Any, types: Mapping[str, str]) -> Any:
    """A batch of Spark's with Arrow types that the table's columns take; names are checked where it is inserted."""
    columns = {
        name: _inserted(column, types.get(name, ""))
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    }
    return pyarrow.RecordBatch.from_pydict(columns)


def slices(batches: Iterator[Any], row_count: int) -> Iterator[Any]:
    """All rows of the batches in record batches of `row_count`, the last one shorter."""
    held: list[Any] = []
    for batch in batches:
        held.append(batch)
        while sum(one.num_rows for one in held) >= row_count:
            table = pyarrow.Table.from_batches(held)
            yield _whole(table.slice(0, row_count))
            held = table.slice(row_count).to_batches()
    if any(one.num_rows for one in held):
        yield _whole(pyarrow.Table.from_batches(held))


def _whole(table: Any) -> Any:
    return table.combine_chunks().to_batches()[0]


def _inserted(column: Any, type_name: str) -> Any:
    if type_name == "any":
        return pyarrow.ExtensionArray.from_storage(pyarrow.json_(pyarrow.string()), column.cast(pyarrow.string()))
    return column.cast(pyarrow.uint64()) if type_name == "uint64" else column
