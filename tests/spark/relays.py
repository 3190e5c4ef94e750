"""A copy as the tests run it, in the suite's Spark, and what is in its target afterwards."""

import threading
from dataclasses import replace
from typing import Any

from pyspark.sql import Row, SparkSession

from pqbroker.pipeline.relays.copy import copy
from pqbroker.pipeline.relays.copying import Copying


class Copier:
    """Copies one topic."""

    def __init__(self, spark: SparkSession, copying: Copying) -> None:
        self.copying = copying
        self._spark = spark

    def run(self, **changes: Any) -> list[str]:
        """Copy what is there now; the job's lines."""
        lines: list[str] = []
        copy(self._spark, replace(self.copying, once=True, **changes), lines.append, threading.Event())
        return lines

    def rows(self) -> list[Row]:
        """The records of the target, by partition and offset, with `ms`, their timestamp."""
        source = {"kafka.bootstrap.servers": self.copying.target_broker, "subscribe": self.copying.target}
        read = self._spark.read.format("kafka").options(**source, includeHeaders="true").load()
        return read.selectExpr("*", "unix_millis(timestamp) AS ms").orderBy("partition", "offset").collect()


def copies(rows: list[Row]) -> list[tuple[int, int]]:
    """Where those records came from that are copies, in the order of the target."""
    found = []
    for row in rows:
        headers = {header["key"]: header["value"] for header in row["headers"] or ()}
        if "source.job" in headers:
            found.append((int(headers["source.partition"]), int(headers["source.offset"])))
    return found
