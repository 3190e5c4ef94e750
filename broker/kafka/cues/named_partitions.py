"""Partitions that a request names, and the request cut in two at them: for faults of one topic or partition.

Of the APIs only those that answer for each partition are known here; `SHAPES` says where their lists stand.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pqbroker.broker.kafka.apis.context import Context

FETCH: Final = 1

Matches = Callable[[str, bytes, int], bool]
"""Returns True if a cue means the partition; given are name and id of its topic, one of them empty, and its number."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Names of the fields of an API: topics, their name, their partitions, the number of each; and of its answer."""

    topics: str = "topics"
    name: str = "name"
    partitions: str = "partitions"
    index: str = "partition_index"
    answered_topics: str = "topics"
    answered_partitions: str = "partitions"


SHAPES: Final[Mapping[int, Shape]] = {
    0: Shape("topic_data", "name", "partition_data", "index", "responses", "partition_responses"),
    FETCH: Shape(name="topic", index="partition", answered_topics="responses"),
    2: Shape(),
    8: Shape(),
    21: Shape(),
    23: Shape(name="topic", index="partition"),
}
"""Shapes by API key: Produce, Fetch, ListOffsets, OffsetCommit, DeleteRecords, OffsetForLeaderEpoch."""


def named(key: int, context: Context, request: Any) -> Iterator[tuple[str, bytes, int]]:
    """Partitions that a request is about: name and id of the topic, as it was named, and number."""
    shape = SHAPES[key]
    for topic in getattr(request, shape.topics):
        name, topic_id = getattr(topic, shape.name), getattr(topic, "topic_id", b"")
        for partition in getattr(topic, shape.partitions):
            yield name, topic_id, getattr(partition, shape.index)
    if key == FETCH and request.session_id:
        session = context.node.sessions.session_of(request)
        for wanted in () if session is None else session.wanted.values():
            yield wanted.topic, wanted.topic_id, wanted.index


def cut(key: int, request: Any, matches: Matches) -> tuple[Any, Any | None]:
    """The request for the partitions that match, and the request for the others; None: there are no others."""
    shape = SHAPES[key]
    matching, others = [], []
    for topic in getattr(request, shape.topics):
        name, topic_id = getattr(topic, shape.name), getattr(topic, "topic_id", b"")
        partitions = getattr(topic, shape.partitions)
        inside = [one for one in partitions if matches(name, topic_id, getattr(one, shape.index))]
        outside = [one for one in partitions if not matches(name, topic_id, getattr(one, shape.index))]
        matching += [replace(topic, **{shape.partitions: inside})] if inside else []
        others += [replace(topic, **{shape.partitions: outside})] if outside else []
    rest = replace(request, **{shape.topics: others}) if others else None
    return replace(request, **{shape.topics: matching}), rest


def join(key: int, answer: Any, refused: Any) -> Any:
    """One answer of that to the rest of a request and the refusal of what was cut out of it."""
    shape = SHAPES[key]
    topics = {_identity(topic, shape): topic for topic in getattr(answer, shape.answered_topics)}
    for topic in getattr(refused, shape.answered_topics):
        known = topics.get(_identity(topic, shape))
        partitions = list(getattr(topic, shape.answered_partitions))
        before = [] if known is None else list(getattr(known, shape.answered_partitions))
        topics[_identity(topic, shape)] = replace(topic, **{shape.answered_partitions: before + partitions})
    return replace(answer, **{shape.answered_topics: list(topics.values())})


def _identity(topic: Any, shape: Shape) -> tuple[str, bytes]:
    return getattr(topic, shape.name), getattr(topic, "topic_id", b"")
