"""Settings of the jobs `copy` and `redrive`."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Copying:
    """The settings of a copy: what to copy, where to, and how."""

    topic: str
    target: str
    state: Path
    """The job's directory."""
    broker: str = "127.0.0.1:9092"
    target_broker: str = "127.0.0.1:9092"
    are_letters: bool = False
    """The records are dead letters, and become what they were."""
    group: str = ""
    """Consumer group that shows the offsets; empty for none."""
    once: bool = False
    interval_s: float = 10.0
    starting_offsets: str = "earliest"
    batch_rows_max: int = 1_000_000
    fail_on_data_loss: bool = True
    records_per_s: float | None = None
    figures: Path | None = None
    """File for figures in Prometheus' text form."""

    @property
    def job(self) -> str:
        """Return the job's name in lines and metrics."""
        return "redrive" if self.are_letters else "copy"
