"""What the job `land` is told, and how it says that it cannot."""

from dataclasses import dataclass
from pathlib import Path


class LandError(RuntimeError):
    """The topic cannot be landed; the text names the cause and the way out."""


@dataclass(frozen=True, slots=True)
class Landing:
    """What to land and how."""

    topic: str
    directory: Path
    broker: str = "127.0.0.1:9092"
    group: str = ""
    """Consumer group that shows the offsets; empty for none."""
    schema: str | None = None
    """The value is JSON of this schema, in SQL: `id BIGINT NOT NULL, name STRING`; None takes it as it is."""
    once: bool = False
    interval_s: float = 10.0
    starting_offsets: str = "earliest"
    batch_rows_max: int = 1_000_000
    fail_on_data_loss: bool = True
    figures: Path | None = None
    """File for figures in Prometheus' text form."""

    @property
    def dead_letters(self) -> str:
        """The topic for what does not parse."""
        return f"{self.topic}.dlq"
