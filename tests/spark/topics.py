"""Topics of one broker as the tests use them: written and checked by a plain client, read and written by Spark."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.support.drivers.driver import Driver

# Small waits at the log's end; what Spark does by default is the subject of one test only.
QUICK = {
    "kafka.fetch.max.wait.ms": "20",
    "fetchOffset.retryIntervalMs": "50",
    "kafkaConsumer.pollTimeoutMs": "10000",
}
QUERY_TIMEOUT_S = 300
SLOW_START = "Python worker failed to connect back"
"""Spark's own limit of ten seconds for the start of a process, which a busy machine exceeds; no setting gives more."""
STARTS = 8


class Topics:
    """One broker, seen by Spark and by another client."""

    def __init__(self, spark: SparkSession, address: str, client: Driver) -> None:
        self.spark = spark
        self.address = address
        self.client = client

    def read(self, topic: str, **options: str) -> DataFrame:
        """The topic as a table; dots in option names are written as two underscores."""
        return self.spark.read.format("kafka").options(**self._source(topic, options)).load()

    def stream(self, topic: str, **options: str) -> DataFrame:
        """The topic as a stream from its start."""
        source = {"startingOffsets": "earliest"} | self._source(topic, options)
        return self.spark.readStream.format("kafka").options(**source).load()

    def write_available(self, rows: DataFrame, checkpoint: Path, **options: str) -> None:
        """Run a stream into Kafka until what is there now is written."""
        sink = {"kafka.bootstrap.servers": self.address, "checkpointLocation": str(checkpoint)} | _named(options)
        finish(rows.writeStream.format("kafka").options(**sink).trigger(availableNow=True).start())

    def write(self, rows: DataFrame, **options: str) -> None:
        """Write a table into Kafka."""
        sink = {"kafka.bootstrap.servers": self.address} | _named(options)
        rows.write.format("kafka").options(**sink).save()

    def _source(self, topic: str, options: dict[str, str]) -> dict[str, Any]:
        return {"kafka.bootstrap.servers": self.address, "subscribe": topic} | QUICK | _named(options)


def complete(start: Callable[[], StreamingQuery]) -> None:
    """Start a query that ends by itself, and wait for it, as `finish` does; again where a Python process of it started
    too slowly."""
    for tries in range(STARTS):
        try:
            finish(start())
        except Exception as failure:
            if SLOW_START not in str(failure) or tries == STARTS - 1:
                raise
        else:
            return


def finish(query: StreamingQuery) -> None:
    """Wait for a query that ends by itself; AssertionError when it does not, and its own error when it fails."""
    try:
        assert query.awaitTermination(QUERY_TIMEOUT_S), f"the query still runs after {QUERY_TIMEOUT_S} s"
    finally:
        query.stop()


def by_place(rows: list[Row]) -> dict[tuple[int, int], Row]:
    """Rows of the Kafka source by (partition, offset)."""
    return {(row["partition"], row["offset"]): row for row in rows}


def _named(options: dict[str, str]) -> dict[str, str]:
    return {name.replace("__", "."): value for name, value in options.items()}
