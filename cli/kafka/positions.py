"""Places in a topic as users write them (`protocol.positions`), found in its partitions."""

import time
from collections.abc import Iterable

from pqbroker.cli.kafka.cluster import Cluster, Topic
from pqbroker.cli.kafka.isolation import ReadIsolation
from pqbroker.cli.refusals import CommandError, WrongInput
from pqbroker.protocol import positions
from pqbroker.protocol.positions import Position as Position
from pqbroker.protocol.positions import PositionError


def parse_position(option: str, text: str) -> Position:
    """WrongInput, which names the option and the forms there are."""
    try:
        return positions.parse_position(text, time.time_ns() // 1_000_000)
    except PositionError as error:
        raise WrongInput(f"{option} {error}") from None


def resolve(
    cluster: Cluster,
    topic: Topic,
    partitions: Iterable[int],
    position: Position,
    isolation: ReadIsolation = ReadIsolation.UNCOMMITTED,
) -> dict[int, int]:
    """The offset in each partition, never outside what a reader of `isolation` sees; a time that no record reaches is
    the end.

    CommandError for an offset that lies in none of them.
    """
    spans = cluster.spans(topic, partitions, isolation)
    if position.offset is None:
        found = cluster.offsets(topic, dict.fromkeys(spans, position.timestamp), isolation)
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
