"""Values by the schemas of a registry: the columns of the latest schema, and values as JSON, which Spark's workers
decode."""

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.functions import coalesce, col, udf
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pqbroker.pipeline.errors import JobError
from pqbroker.pipeline.lakes.rows import judged
from pqbroker.pipeline.lakes.value_registry import Registry
from pqbroker.registry.decoding import TopicDecoders, topic_document
from pqbroker.registry.limits import DecodingLimits
from pqbroker.registry.named import NamedRegistry
from pqbroker.registry.shapes import ShapeKind as Kind
from pqbroker.registry.shapes import ValueShape
from pqbroker.registry.undecodable import Undecodable

FIELDS_MAX = 10_000
"""Fields of the rows, those within others included."""
_DIGITS_MAX = 38
_TYPES: dict[Kind, DataType] = {
    Kind.BOOLEAN: BooleanType(), Kind.INT: IntegerType(), Kind.LONG: LongType(), Kind.FLOAT: FloatType(),
    Kind.UNSIGNED_LONG: DecimalType(20, 0), Kind.DOUBLE: DoubleType(), Kind.STRING: StringType(),
    Kind.BINARY: BinaryType(), Kind.TIMESTAMP: TimestampType(), Kind.LOCAL_TIMESTAMP: TimestampNTZType(),
    Kind.DATE: DateType(),
}  # fmt: skip
_STORED, _DECODED = "_pqbroker_stored", "_pqbroker_decoded"
_RESULT = StructType([StructField("text", StringType()), StructField("reason", StringType())])


def latest_schema(registry: Registry, topic: str) -> StructType:
    """Return the columns of the latest schema of the subject. JobError."""
    subject = registry.subject_of(topic)
    decoder = TopicDecoders(_document(registry)).find("value")
    assert decoder is not None, "the document names a registry of values"
    try:
        shape = decoder.latest(subject).reader.shape
    except Undecodable as refusal:
        raise JobError(f"topic {topic} has no schema: {refusal.reason}") from None
    schema = _Typing().type_of(shape)
    if not isinstance(schema, StructType) or not schema.fields:
        raise JobError(f"the schema of {subject} is no record with fields; land the topic raw")
    return schema


def judged_by_registry(records: DataFrame, registry: Registry, schema: StructType) -> DataFrame:
    """Records as `rows.judged` makes them, whose values a registry's schemas decode first. A value that fails keeps its
    bytes."""
    document = _document(registry)
    decoded = udf(lambda content: _decode(document, content), _RESULT)(col("value"))
    told = records.withColumn(_STORED, col("value")).withColumn(_DECODED, decoded)
    as_json = told.withColumn("value", coalesce(col(_DECODED).getField("text").cast("binary"), col("value")))
    found = judged(as_json, schema).withColumn("reason", coalesce(col(_DECODED).getField("reason"), col("reason")))
    return found.withColumn("value", col(_STORED))


def _decode(document: dict[str, Any], content: bytearray | None) -> tuple[str | None, str | None]:
    """Return the JSON of a value, or why it is none. The decoder is the one of the process."""
    decoder = TopicDecoders(document).find("value")
    if content is None or decoder is None:
        return None, None
    try:
        return decoder.decode(bytes(content)).text().encode(errors="backslashreplace").decode(), None
    except Undecodable as refusal:
        return None, refusal.reason


class _Typing:
    """Finds Spark's types of shapes, of which one that is named often stands there often."""

    def __init__(self) -> None:
        self._left = FIELDS_MAX

    def type_of(self, shape: ValueShape) -> DataType:
        """Return a type. JobError for more than FIELDS_MAX fields."""
        self._left -= 1
        if self._left < 0:
            raise JobError(f"the schema has more than {FIELDS_MAX} fields, those within others included")
        if shape.kind is Kind.RECORD and shape.fields:
            return StructType([StructField(name, self.type_of(each)) for name, each in shape.fields])
        if shape.kind is Kind.ARRAY and shape.items is not None:
            return ArrayType(self.type_of(shape.items))
        if shape.kind is Kind.MAP and shape.items is not None:
            return MapType(StringType(), self.type_of(shape.items))
        if shape.kind is Kind.DECIMAL and 0 < shape.precision <= _DIGITS_MAX and shape.scale <= shape.precision:
            return DecimalType(shape.precision, shape.scale)
        return _TYPES.get(shape.kind, StringType())


def _document(registry: Registry) -> dict[str, Any]:
    named = NamedRegistry(registry.address, registry.address, registry.config_file)
    return topic_document({"value": named}, DecodingLimits())
