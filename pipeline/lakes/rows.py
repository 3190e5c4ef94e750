"""Conversion of records of the Kafka source to rows of a lake: the value as it is, or parsed; and what did not parse,
with why.

A record is bad when its value is absent, is not one JSON document, does not fit the schema, or lacks a field that is
NOT NULL, at any depth.
"""

from collections.abc import Iterator
from functools import partial

from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import (
    array,
    coalesce,
    col,
    concat,
    concat_ws,
    date_format,
    exists,
    expr,
    from_json,
    lit,
    map_values,
    struct,
    when,
)
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType

from pqbroker.pipeline.lakes.landing import DATE, KEPT

_UNPARSED = "_pqbroker_unparsed"
_HEADERS = "array<struct<key:string,value:binary>>"
_TEXT = "CAST(value AS STRING)"
_IS_WHOLE = f"is_valid_utf8({_TEXT}) AND get_json_object(concat('[', {_TEXT}, ',\"end\"]'), '$[1]') <=> 'end'"
"""Nothing follows the document: Spark's own parsers leave unread what does, a second document for one."""


def raw(records: DataFrame) -> DataFrame:
    """Rows whose value is the record's bytes."""
    return records.select(*KEPT, "value")


def with_date(rows: DataFrame) -> DataFrame:
    """Rows with the day of their timestamp, in the session's time zone."""
    return rows.withColumn(DATE, date_format("timestamp", "yyyy-MM-dd"))


def judged(records: DataFrame, schema: StructType) -> DataFrame:
    """Records with their value as a struct of the schema, and why it is none."""
    text = col("value").cast("string")
    with_unparsed = StructType([*schema.fields, StructField(_UNPARSED, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _UNPARSED}
    tried = records.select("*", from_json(text, _nullable(with_unparsed), options).alias("tried"))
    return tried.select("*", _reason(schema).alias("reason"))


def good(judged: DataFrame, schema: StructType) -> DataFrame:
    """Rows for the lake."""
    fields = struct(*(col("tried").getField(field.name).alias(field.name) for field in schema.fields))
    return judged.where("reason IS NULL").select(*KEPT, fields.alias("value"))


def flattened(rows: DataFrame) -> DataFrame:
    """Rows whose value's fields are columns."""
    return rows.select(*KEPT, "value.*")


def good_or_deleted(judged: DataFrame, schema: StructType) -> DataFrame:
    """Rows for a table, in which a null value deletes its key."""
    rows = good(judged, schema)
    deletions = judged.where("value IS NULL")
    return rows.unionByName(deletions.select(*KEPT, lit(None).cast(rows.schema["value"].dataType).alias("value")))


def bad(judged: DataFrame) -> DataFrame:
    """Records that do not fit the schema, in the form of the Kafka sink."""
    return judged.where("reason IS NOT NULL").select("key", "value", _headers_with_reason())


def _reason(schema: StructType) -> Column:
    """Return why a record is bad; null for a good one, for which nothing else is worked out."""
    is_json = expr(f"{_IS_WHOLE} AND try_parse_json({_TEXT}) IS NOT NULL")
    given = expr(f"try_variant_get(try_parse_json({_TEXT}), '$', 'map<string,variant>')")
    wrong = concat_ws("; ", *(_wrong(field.name, field.dataType, given) for field in schema.fields))
    lacking = dict(_lacking(col("tried"), "", schema))
    absent = concat_ws("; ", *(when(is_absent, lit(f"{name} is missing")) for name, is_absent in lacking.items()))
    unfit = concat(lit("the value does not fit the schema"), when(wrong != "", concat(lit(": "), wrong)).otherwise(""))
    fits = col("tried").isNotNull() & col(f"tried.{_UNPARSED}").isNull() & expr(_IS_WHOLE)
    for is_absent in lacking.values():
        fits = fits & ~is_absent
    return (
        when(fits, lit(None))
        .when(col("value").isNull(), lit("there is no value"))
        .when(~is_json, lit("the value is not JSON"))
        .when(col("tried").isNull() | col(f"tried.{_UNPARSED}").isNotNull(), unfit)
        .when(absent != "", absent)
    )


def _wrong(name: str, kind: DataType, given: Column) -> Column:
    is_wrong = col("tried").getField(name).isNull() & given[name].isNotNull()
    return when(is_wrong, lit(f"{name} is not {kind.simpleString().upper()}"))


def _lacking(place: Column, name: str, kind: DataType) -> Iterator[tuple[str, Column]]:
    """The names of what is NOT NULL within a value, each with whether it is absent; of elements `name[].field`."""
    if isinstance(kind, StructType):
        for field in kind.fields:
            inner, full = place.getField(field.name), f"{name}.{field.name}".removeprefix(".")
            if not field.nullable:
                yield full, place.isNotNull() & inner.isNull()
            yield from _lacking(inner, full, field.dataType)
    elif isinstance(kind, MapType):
        yield from _lacking(map_values(place), name, ArrayType(kind.valueType))
    elif isinstance(kind, ArrayType):
        names = [found for found, _ in _lacking(place, f"{name}[]", kind.elementType)]
        for number, found in enumerate(names):
            each = partial(_lacks, number, kind.elementType)
            yield found, coalesce(exists(place, each), lit(False))


def _lacks(number: int, kind: DataType, element: Column) -> Column:
    """Return the test that an element of this type lacks the one of this number of what is NOT NULL in it."""
    return list(_lacking(element, "", kind))[number][1]


def _headers_with_reason() -> Column:
    """The record's own headers, then the reason and where the record lies."""
    own = coalesce(col("headers"), array().cast(_HEADERS))
    added = {"error.reason": "reason", "error.topic": "topic", "error.partition": "partition", "error.offset": "offset"}
    entries = [
        struct(lit(key).alias("key"), col(name).cast("string").cast("binary").alias("value"))
        for key, name in added.items()
    ]
    return concat(own, array(*entries).cast(_HEADERS)).alias("headers")


def _nullable(schema: StructType) -> StructType:
    """Return the schema with every field nullable: JSON may lack a required field, which is found later, by name."""
    return StructType([StructField(field.name, field.dataType) for field in schema.fields])
