"""The schema of JSON values, as a job is given it."""

from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from pqbroker.pipeline.schema_text import not_a_schema


def parse_schema(text: str) -> StructType:
    """The schema in SQL, such as `id BIGINT NOT NULL, name STRING`. JobError for another text."""
    try:
        schema = StructType.fromDDL(text)
    except PySparkException as error:
        raise not_a_schema(text) from error
    if not isinstance(schema, StructType) or not schema.fields:
        raise not_a_schema(text)
    return schema
