"""Logs that Kafka's cleaner left, as data: `test_cleaned_logs.py` compares ours with them without Kafka."""

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.kafka_comparison.cleaned_logs.playing import LeftBatch, Stage

FILE: Final = Path(__file__).with_name("kafkas_logs.json.gz")


def write(played: Mapping[str, Sequence[Stage]]) -> None:
    """Write the stages of each script."""
    FILE.write_bytes(gzip.compress(json.dumps(played, separators=(",", ":")).encode(), mtime=0))


def read() -> dict[str, list[Stage]]:
    """Return what was written."""
    played = json.loads(gzip.decompress(FILE.read_bytes()))
    return {
        name: [Stage(answers, [LeftBatch(*batch) for batch in left], found) for answers, left, found in stages]
        for name, stages in played.items()
    }
