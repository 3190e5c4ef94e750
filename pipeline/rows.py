"""From records of the Kafka source to rows of a lake: the value as it is, or parsed; and what did not parse, with why.

A record is bad when its value is absent, is not JSON, does not fit the schema, or lacks a field that is NOT NULL.
"""

from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import array, coalesce, col, concat, concat_ws, expr, from_json, lit, struct, when
from pyspark.sql.types import DataType, StringType, StructField, StructType

KEPT = ("partition", "offset", "timestamp", "key", "headers")
"""What every row has of its record, beside the value."""

_UNPARSED = "_pqbroker_unparsed"
_HEADERS = "array<struct<key:string,value:binary>>"


class Sorted(NamedTuple):
    """Records told apart: rows for the lake, and bad records in the form of the Kafka sink."""

    good: DataFrame
    bad: DataFrame


def raw(records: DataFrame) -> DataFrame:
    """Rows whose value is the record's bytes."""
    return records.select(*KEPT, "value")


def parsed(records: DataFrame, schema: StructType) -> Sorted:
    """Rows whose value is a struct of the schema, and the records that are none."""
    text = col("value").cast("string")
    with_unparsed = StructType([*schema.fields, StructField(_UNPARSED, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _UNPARSED}
    tried = records.select("*", from_json(text, _nullable(with_unparsed), options).alias("tried"))
    judged = tried.select("*", _reason(schema).alias("reason"))
    fields = struct(*(col(f"tried.`{field.name}`").alias(field.name) for field in schema.fields))
    good = judged.where("reason IS NULL").select(*KEPT, fields.alias("value"))
    return Sorted(good, judged.where("reason IS NOT NULL").select("key", "value", _headers_with_reason()))


def _reason(schema: StructType) -> Column:
    """Why a record is bad; null for a good one, for which nothing else is worked out."""
    is_json = expr("is_valid_utf8(CAST(value AS STRING)) AND try_parse_json(CAST(value AS STRING)) IS NOT NULL")
    given = expr("try_variant_get(try_parse_json(CAST(value AS STRING)), '$', 'map<string,variant>')")
    wrong = concat_ws("; ", *(_wrong(field.name, field.dataType, given) for field in schema.fields))
    required = [field.name for field in schema.fields if not field.nullable]
    absent = concat_ws("; ", *(_absent(name) for name in required))
    unfit = concat(lit("the value does not fit the schema"), when(wrong != "", concat(lit(": "), wrong)).otherwise(""))
    fits = col("tried").isNotNull() & col(f"tried.{_UNPARSED}").isNull() & expr("is_valid_utf8(CAST(value AS STRING))")
    for name in required:
        fits = fits & col(f"tried.`{name}`").isNotNull()
    return (
        when(fits, lit(None))
        .when(col("value").isNull(), lit("there is no value"))
        .when(~is_json, lit("the value is not JSON"))
        .when(col("tried").isNull() | col(f"tried.{_UNPARSED}").isNotNull(), unfit)
        .when(absent != "", absent)
    )


def _wrong(name: str, kind: DataType, given: Column) -> Column:
    is_wrong = col(f"tried.`{name}`").isNull() & given[name].isNotNull()
    return when(is_wrong, lit(f"{name} is not {kind.simpleString().upper()}"))


def _absent(name: str) -> Column:
    return when(col(f"tried.`{name}`").isNull(), lit(f"{name} is missing"))


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
    """JSON may leave out what the schema says is there; that is found later, by name."""
    return StructType([StructField(field.name, field.dataType) for field in schema.fields])
