"""Places in a topic as users write them: beginning, end, an offset, a time, an age."""

import re
import time
from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from pqbroker.broker.cli.cluster import EARLIEST, LATEST, Cluster, Topic
from pqbroker.broker.cli.refusals import CommandError, WrongInput

FORMS = (
    "beginning, end, an offset (42), a time (2026-01-31T12:00, local unless it says Z or +02:00) "
    "or an age (90s, 15m, 2h, 7d)"
)

_NAMED = {"beginning": EARLIEST, "earliest": EARLIEST, "end": LATEST, "latest": LATEST}
_AGE = re.compile(r"(\d{1,9})(ms|s|m|h|d)", re.ASCII)
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_OFFSET = re.compile(r"\d{1,18}", re.ASCII)


class Position(NamedTuple):
    """An offset, or else a time in ms, EARLIEST and LATEST among them."""

    text: str
    offset: int | None = None
    timestamp: int = LATEST


def parse_position(option: str, text: str) -> Position:
    """WrongInput, which names the option and the forms there are."""
    if text in _NAMED:
        return Position(text, timestamp=_NAMED[text])
    if _OFFSET.fullmatch(text):
        return Position(text, offset=int(text))
    if age := _AGE.fullmatch(text):
        return Position(text, timestamp=max(0, time.time_ns() // 1_000_000 - int(age[1]) * _UNIT_MS[age[2]]))
    try:
        return Position(text, timestamp=max(0, int(datetime.fromisoformat(text).timestamp() * 1000)))
    except (ValueError, OverflowError):
        raise WrongInput(f"{option} {text!r}: give {FORMS}") from None


def resolve(cluster: Cluster, topic: Topic, partitions: Iterable[int], position: Position) -> dict[int, int]:
    """The offset in each partition, never outside what it holds; a time that no record reaches is the end.

    CommandError for an offset that lies in none of them.
    """
    spans = cluster.spans(topic, partitions)
    if position.offset is None:
        found = cluster.offsets(topic, dict.fromkeys(spans, position.timestamp))
        return {index: span.end if found[index] < 0 else found[index] for index, span in spans.items()}
    offset = position.offset
    if spans and not any(span.start <= offset <= span.end for span in spans.values()):
        held = ", ".join(f"{topic.name}-{index} holds {span.start} to {span.end}" for index, span in spans.items())
        raise CommandError(f"offset {offset} is in no partition asked for: {held}")
    return {index: min(max(offset, span.start), span.end) for index, span in spans.items()}


def choose_partitions(topic: Topic, wanted: Iterable[int]) -> list[int]:
    """The partitions named, or all; CommandError for one that the topic does not have."""
    chosen = sorted(set(wanted)) or list(topic.partitions)
    for index in chosen:
        if index not in topic.partitions:
            count = len(topic.partitions)
            raise CommandError(f"topic {topic.name} has no partition {index}: its {count} are 0 to {count - 1}")
    return chosen
