"""What a job says of a failure of Spark's."""

import pytest
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import SparkSession

from pqbroker.pipeline.causes import failure


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ("java.io.IOException: No space left on device", r"cannot write a batch of orders: .*; make room and start"),
        ("[KAFKA_DATA_LOSS] gone", r"topic orders at here:1: records were gone .*; --allow-loss continues"),
        ("boom", r"topic orders at here:1: boom$"),
    ],
)
def test_a_failure_is_said_with_its_cure(spark: SparkSession, said: str, line: str) -> None:
    with pytest.raises(RuntimeError, match=line):
        raise failure(CapturedException(said, stackTrace=""), "orders", "here:1")
