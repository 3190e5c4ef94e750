"""Settings of the job `land`."""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from pqbroker.pipeline.lakes.value_registry import Registry

KEPT = ("partition", "offset", "timestamp", "key", "headers")
"""Columns that every row has of its record, besides the value."""
DATE = "date"
"""The column of rows by date."""
LETTERS = ".dlq"
"""Suffix of the names of topics for dead letters."""


def is_pattern(topic: str) -> bool:
    """Return True if a name stands for several topics."""
    return "*" in topic or "?" in topic


def matching(name: str, topics: Sequence[str]) -> list[str]:
    """Return the topics that a name or pattern stands for; a pattern stands for no dead letters."""
    if not is_pattern(name):
        return [name]
    return [topic for topic in topics if fnmatchcase(topic, name) and not topic.endswith(LETTERS)]


@dataclass(frozen=True, slots=True)
class Landing:
    """The settings of a landing: what to land and how."""

    topic: str
    directory: Path
    broker: str = "127.0.0.1:9092"
    group: str = ""
    """Consumer group that shows the offsets; empty for none."""
    schema: str | None = None
    """The value is JSON of this schema, in SQL: `id BIGINT NOT NULL, name STRING`; None takes it as it is."""
    registry: Registry | None = None
    """The registry whose schemas values have; the latest one has the columns."""
    once: bool = False
    interval_s: float = 10.0
    starting_offsets: str = "earliest"
    batch_rows_max: int = 1_000_000
    fail_on_data_loss: bool = True
    by_date: bool = False
    """Rows of each day in a directory of their own, by the record's timestamp."""
    file_bytes: int | None = None
    """Size that files are aimed at; None leaves Spark one file for each partition of the topic."""
    is_flat: bool = False
    """Each field of the schema is a column of its own, in place of the column `value`."""
    figures: Path | None = None
    """File for figures in Prometheus' text form."""
