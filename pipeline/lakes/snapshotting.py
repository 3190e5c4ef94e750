"""Settings of the job `snapshot`."""

from dataclasses import dataclass
from pathlib import Path

from pqbroker.pipeline.lakes.value_registry import Registry


@dataclass(frozen=True, slots=True)
class Snapshotting:
    """The settings of a snapshot: which topic to make a table of, and how."""

    topic: str
    directory: Path
    broker: str = "127.0.0.1:9092"
    group: str = ""
    """Consumer group that shows the offsets; empty for none."""
    schema: str | None = None
    """The value is JSON of this schema, in SQL; None takes it as it is."""
    registry: Registry | None = None
    """The registry whose schemas values have; the latest one has the columns."""
    once: bool = False
    interval_s: float = 10.0
    starting_offsets: str = "earliest"
    batch_rows_max: int = 1_000_000
    fail_on_data_loss: bool = True
    keep: int = 3
    """Versions that stay, the newest among them."""
    figures: Path | None = None
    """File for figures in Prometheus' text form."""
