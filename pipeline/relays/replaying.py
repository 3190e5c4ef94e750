"""Settings of the job `replay`."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Replaying:
    """The settings of a replay: which files to write into which topic, and how."""

    source: Path
    """A file of Parquet or JSON lines, or a directory of such files."""
    target: str
    state: Path
    """The job's directory."""
    broker: str = "127.0.0.1:9092"
    since_ms: int | None = None
    until_ms: int | None = None
    """Records from the first time on and before the second, by their timestamps."""
    records_per_s: float | None = None
