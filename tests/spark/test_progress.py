"""What the watch over a job makes of Spark's reports."""

from types import SimpleNamespace
from typing import cast

import pytest
from pyspark.sql.streaming.listener import QueryProgressEvent

from pqbroker.pipeline.progress import Progress, Watch


@pytest.mark.parametrize(
    ("latest", "lag"),
    [
        ('{"orders": {"0": 25, "1": 7}}', {0: 15, 1: 0}),
        ("None", {0: 0, 1: 0}),  # what PySpark says of a batch that a killed job had begun
        ("", {0: 0, 1: 0}),
    ],
)
def test_a_batch_is_reported_whatever_spark_knows_of_the_end(latest: str, lag: dict[int, int]) -> None:
    told: list[Progress] = []
    source = SimpleNamespace(endOffset='{"orders": {"0": 10, "1": 7}}', latestOffset=latest)
    progress = SimpleNamespace(
        name="land", sources=[source], numInputRows=17, processedRowsPerSecond=8.5, batchId=3
    )
    Watch("land", "orders", told.append).onQueryProgress(
        cast(QueryProgressEvent, SimpleNamespace(progress=progress))
    )
    assert told == [Progress(3, 17, 8.5, {0: 10, 1: 7}, lag)]
