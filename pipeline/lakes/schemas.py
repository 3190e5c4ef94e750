"""The schema of JSON values, as a job is given it."""

from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from pqbroker.pipeline.errors import JobError


def parse_schema(text: str) -> StructType:
    """The schema in SQL, such as `id BIGINT NOT NULL, name STRING`. JobError for another text."""
    wrong = JobError(
        f"--schema {text!r} is not a schema; it is written NAME TYPE, …, such as: "
        "id BIGINT NOT NULL, name STRING, prices ARRAY<DOUBLE>"
    )
    try:
        schema = StructType.fromDDL(text)
    except PySparkException as error:
        raise wrong from error
    if not isinstance(schema, StructType) or not schema.fields:
        raise wrong
    return schema
