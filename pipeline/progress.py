"""The progress of a job, batch by batch: from Spark's listener to a line for people and figures for Prometheus."""

import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)


@dataclass(frozen=True, slots=True)
class Counts:
    """The counts of a job in a batch, beside those of Spark."""

    letters: int = 0
    """Dead letters."""
    keyless: int = 0
    """Records that were left out because they have no key."""
    keys: int | None = None
    """Rows of the table as the batch left it; None for a job without one."""

    def line(self) -> str:
        """Return a line for people; empty without anything to say."""
        keys = "" if self.keys is None else f"  {self.keys:,} keys"
        letters = f"  {self.letters:,} dead letters" if self.letters else ""
        keyless = f"  {self.keyless:,} without a key" if self.keyless else ""
        return keys + letters + keyless


@dataclass(frozen=True, slots=True)
class Progress:
    """A batch that is done: its rows, its end in each partition, and the records behind it."""

    batch: int
    rows: int
    rows_per_s: float
    offsets: Mapping[int, int]
    lag: Mapping[int, int]
    counts: Counts = Counts()

    def line(self) -> str:
        """Return a line for people."""
        rate = f"{self.rows_per_s:,.0f} rows/s"
        return f"batch {self.batch}  {self.rows:,} rows  {rate}  lag {sum(self.lag.values()):,}{self.counts.line()}"


class Watch(StreamingQueryListener):
    """Calls `report` after each batch of the query of this name, in a thread of Spark's."""

    def __init__(self, query: str, topic: str, report: Callable[[Progress], None]) -> None:
        self.over = threading.Event()
        """Set when the query has ended and its last batch was reported."""
        self.query = query
        """Name of the query."""
        self._topic = topic
        self._report = report
        self._run: Any = None

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        if event.name == self.query:
            self._run = event.runId

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        progress = event.progress
        if progress.name == self.query and progress.sources and progress.numInputRows > 0:
            source = progress.sources[0]
            ends = _offsets(source.endOffset, self._topic)
            latest = _offsets(source.latestOffset, self._topic)
            lag = {number: max(0, latest.get(number, end) - end) for number, end in ends.items()}
            rate = progress.processedRowsPerSecond
            self._report(Progress(progress.batchId, progress.numInputRows, rate, ends, lag))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        if event.runId == self._run:
            self.over.set()


class Figures:
    """A file with the figures of a job in Prometheus' text form, replaced whole after each batch."""

    def __init__(self, job: str, file: Path, topic: str) -> None:
        self._job = job
        self.file = file
        self._topic = topic
        self._rows = self._letters = self._keyless = 0

    def write(self, progress: Progress) -> None:
        """Count the batch and replace the file."""
        self._rows += progress.rows
        self._letters += progress.counts.letters
        self._keyless += progress.counts.keyless
        fresh = self.file.with_name(f".{self.file.name}.new")
        fresh.write_text("\n".join(self._lines(progress)) + "\n", encoding="utf-8")
        os.replace(fresh, self.file)

    def _lines(self, progress: Progress) -> Iterator[str]:
        rows = {self._labels(): self._rows}
        yield from self._metric("rows_total", "counter", "Rows read since the job's start.", rows)
        letters = {self._labels(): self._letters}
        yield from self._metric("dead_letters_total", "counter", "Dead letters written since the job's start.", letters)
        if progress.counts.keys is not None:
            keyless = {self._labels(): self._keyless}
            yield from self._metric("keyless_total", "counter", "Records without a key since the job's start.", keyless)
            keys = {self._labels(): progress.counts.keys}
            yield from self._metric("keys", "gauge", "Rows of the table.", keys)
        yield from self._metric("batch", "gauge", "The last batch that is done.", {self._labels(): progress.batch})
        offsets = {self._labels(number): offset for number, offset in progress.offsets.items()}
        yield from self._metric("offset", "gauge", "Where the last batch ended.", offsets)
        lag = {self._labels(number): count for number, count in progress.lag.items()}
        yield from self._metric("lag", "gauge", "Offsets there beyond the last batch.", lag)

    def _labels(self, partition: int | None = None) -> str:
        place = "" if partition is None else f',partition="{partition}"'
        return f'{{topic="{self._topic}"{place}}}'

    def _metric(self, name: str, kind: str, meaning: str, values: Mapping[str, int]) -> Iterator[str]:
        full = f"pqbroker_{self._job}_{name}"
        yield f"# HELP {full} {meaning}"
        yield f"# TYPE {full} {kind}"
        for labels, value in values.items():
            yield f"{full}{labels} {value}"


def _offsets(text: str | None, topic: str) -> dict[int, int]:
    """A topic's offsets in Spark's JSON; empty when Spark has not told.

    A batch that a killed job had begun is run again without asking where the topic ends; PySpark says "None" then.
    """
    told = json.loads(text) if text and text != "None" else None
    return {int(number): offset for number, offset in (told or {}).get(topic, {}).items()}
