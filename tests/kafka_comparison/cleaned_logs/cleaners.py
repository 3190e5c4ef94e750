"""The two brokers with their cleaners."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pqbroker.fixture.http_calls import HttpCalls
from pqbroker.testing import broker
from tests.kafka_comparison.cleaned_logs.playing import Clean
from tests.kafka_comparison.run import OURS, THEIRS, made_side
from tests.kafka_comparison.side import Side
from tests.support.cleaning import clean_topic
from tests.support.kafka.broker import ApacheKafka
from tests.support.waiting import wait_until

_BACKOFF_MS: Final = 20
_PATIENCE_S: Final = 60.0
_ROUND_S: Final = 0.01


@contextmanager
def our_cleaner() -> Iterator[tuple[Side, Clean]]:
    """Our broker, whose topics are cleaned on command."""
    with broker(settings={**OURS, "log.cleaner.backoff.ms": "3600000"}) as running:
        calls = HttpCalls(lambda: running.http)

        def clean(topic: str, end: int, write_behind: Callable[[], object]) -> None:
            cleaning = clean_topic(calls, topic)
            assert cleaning["cleaned_to"] == end, cleaning
            write_behind()

        yield made_side(running.kafka), clean


@contextmanager
def kafkas_cleaner() -> Iterator[tuple[Side, Clean]]:
    """Apache Kafka, which cleans what lies behind its active segment."""
    settings = {**THEIRS, "log.cleaner.backoff.ms": str(_BACKOFF_MS)}
    with ApacheKafka(properties=settings, heap="512m") as running:
        checkpoint = Path(running.properties["log.dirs"]) / "cleaner-offset-checkpoint"

        def clean(topic: str, end: int, write_behind: Callable[[], object]) -> None:
            write_behind()
            wait_until(lambda: _cleaned_to(checkpoint, topic) == end, f"{topic} is cleaned to {end}", _PATIENCE_S)

        yield made_side(running.kafka), clean


def _cleaned_to(checkpoint: Path, topic: str) -> int:
    """Return how far Kafka has cleaned partition 0 of a topic; each cleaning replaces the file."""
    time.sleep(_ROUND_S)
    lines = checkpoint.read_text().splitlines() if checkpoint.exists() else []
    found = [line.split() for line in lines if line.startswith(f"{topic} 0 ")]
    return int(found[0][2]) if found else -1
