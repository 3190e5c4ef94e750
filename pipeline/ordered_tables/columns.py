"""Columns of a table as Spark sees them.

Unsigned integers take the next wider type, `any` is JSON text, `string` bytes. `$error` says why a record is no row.
"""

from collections.abc import Mapping, Sequence

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NullType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pqbroker.http_client.facts import Column
from pqbroker.pipeline.errors import JobError
from pqbroker.tables.rows import ERROR, ROW_INDEX, TABLET_INDEX

SPARK_TYPES: Mapping[str, DataType] = {
    "int8": ByteType(), "int16": ShortType(), "int32": IntegerType(), "int64": LongType(),
    "uint8": ShortType(), "uint16": IntegerType(), "uint32": LongType(), "uint64": DecimalType(20, 0),
    "double": DoubleType(), "boolean": BooleanType(), "string": BinaryType(), "utf8": StringType(),
    "any": StringType(), "timestamp": TimestampType(),
}  # fmt: skip
"""Spark's types by the type of a column."""


def is_sorted(columns: Sequence[Column] | None) -> bool:
    """Return True if these are the columns of a sorted table."""
    return any(column.sort_order is not None for column in columns or ())


def spark_schema(columns: Sequence[Column] | None) -> StructType:
    """None: a topic without a schema, whose records are shown as they are."""
    schema = StructType().add(TABLET_INDEX, IntegerType(), False).add(ROW_INDEX, LongType(), False)
    if columns is None:
        headers = ArrayType(StructType().add("key", StringType()).add("value", BinaryType()))
        return (
            schema.add("timestamp_ms", LongType()).add("key", BinaryType()).add("value", BinaryType())
            .add("headers", headers)
        )  # fmt: skip
    for column in columns:
        schema = schema.add(column.name, SPARK_TYPES[column.type])
    return schema.add(ERROR, StringType())


_TAKEN: Mapping[str, tuple[type[DataType], ...]] = {
    "double": (DoubleType, FloatType, ByteType, ShortType, IntegerType, LongType),
    "boolean": (BooleanType,),
    "string": (BinaryType, StringType),
    "utf8": (StringType,),
    "any": (StringType,),
    "timestamp": (TimestampType, TimestampNTZType),
}
_INTEGERS = (ByteType, ShortType, IntegerType, LongType, DecimalType)
_INSERTED_TOO = (TABLET_INDEX,)
"""Columns of rows that are no columns of the schema."""


def check_insertable(table: str, columns: Sequence[Column], given: StructType) -> None:
    """JobError unless rows of Spark's schema can be rows of the table. What is null always is found here, a null among
    other values by the broker."""
    types = {column.name: column.type for column in columns}
    required = [column.name for column in columns if column.is_required]
    for field in given:
        if field.name in _INSERTED_TOO and field.name not in types and not is_sorted(columns):
            continue
        if field.name not in types:
            raise JobError(f"unknown column {field.name!r}: {table} has the columns {', '.join(types)}")
        if field.name in required and isinstance(field.dataType, NullType):
            raise JobError(f"column {field.name!r} of {table} is required, and in all rows it is null: give it a value")
        name = types[field.name]
        if not isinstance(field.dataType, (NullType, *_TAKEN.get(name, _INTEGERS))):
            text = f"column {field.name!r} is {field.dataType.simpleString()}, and that of {table} is {name}"
            raise JobError(f"{text}: cast it to {SPARK_TYPES[name].simpleString()}")
    missing = [name for name in required if name not in given.names]
    if missing:
        raise JobError(f"column {missing[0]!r} of {table} is required, and the rows have none: add it")


def chosen(table: StructType, wanted: StructType) -> StructType:
    """The columns of a table that a user's schema names; JobError where it has others, or other types."""
    for field in wanted:
        if field.name not in table.names:
            raise JobError(f"the table has no column {field.name!r}: give some of {', '.join(table.names)}")
        present = table[field.name].dataType
        if field.dataType != present:
            name = field.dataType.simpleString()
            raise JobError(f"column {field.name!r} is {present.simpleString()} in Spark, not {name}: give its type")
    return wanted
