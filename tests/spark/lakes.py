"""A landing as the tests run it: in this process, in the suite's Spark, and what is in the lake afterwards."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from pqbroker.pipeline.lakes.land import land
from pqbroker.pipeline.lakes.landing import Landing


class Lander:
    """Lands one topic into one directory."""

    def __init__(self, spark: SparkSession, landing: Landing) -> None:
        self.landing = landing
        self._spark = spark

    def run(self, **changes: Any) -> list[str]:
        """Land what is there now; the job's lines."""
        lines: list[str] = []
        land(self._spark, replace(self.landing, once=True, **changes), lines.append, threading.Event())
        return lines

    def wait_until_over(self) -> None:
        """Wait for what a stopped job left to itself: a query that waits for its broker."""
        for query in self._spark.streams.active:
            query.awaitTermination()

    def run_until(self, condition: Callable[[], object], **changes: Any) -> None:
        """Land on and on in another thread while `condition` waits; what fails there is raised here."""
        stopping = threading.Event()
        failures: list[BaseException] = []
        job = replace(self.landing, interval_s=0.0, **changes)

        def work() -> None:
            try:
                land(self._spark, job, lambda line: None, stopping)
            except BaseException as error:
                failures.append(error)
                raise

        thread = threading.Thread(target=work)
        thread.start()
        try:
            condition()
        finally:
            stopping.set()
            thread.join()
        if failures:
            raise failures[0]

    def rows(self) -> list[tuple[Any, ...]]:
        """(partition, offset, value) of everything in the lake, sorted."""
        table = self._spark.read.parquet(f"file://{self.landing.directory / 'data'}")
        return sorted(tuple(row) for row in table.select("partition", "offset", "value").collect())


def batches(directory: Path) -> list[str]:
    """The names of the batches that are there."""
    return sorted(path.name for path in (directory / "data").iterdir())
