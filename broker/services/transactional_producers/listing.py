"""Transactional ids as they are listed and described."""

import re
from collections.abc import Generator
from typing import Final, NamedTuple

from pqbroker.broker.services.transactional_producers.producers import TransactionalProducers
from pqbroker.pq.serving.topics import Topics
from pqbroker.storage.tablets.coordinator_rows import TransactionalImage

REPETITIONS_MAX: Final = 2
_REPETITION: Final = re.compile(r"[*+?{]")


class Wanted(NamedTuple):
    """A choice of transactional ids; what is empty chooses all."""

    states: frozenset[str] = frozenset()
    producer_ids: frozenset[int] = frozenset()
    longer_than_ms: int = -1
    """Transactions that began longer ago; -1: all. As in Kafka it chooses an id without a transaction too."""
    pattern: re.Pattern[str] | None = None


def read_pattern(text: str) -> re.Pattern[str]:
    """Read a pattern that whole ids match. ValueError for one that is invalid, or could take long: one with groups, or
    with more than two repetitions."""
    if "(" in text or len(_REPETITION.findall(text)) > REPETITIONS_MAX:
        raise ValueError(f"the pattern {text!r} could take long: use no group and at most two of * + ? {{")
    try:
        return re.compile(text)
    except re.error as wrong:
        raise ValueError(f"the pattern {text!r} is invalid: {wrong}") from None


def list_ids(producers: TransactionalProducers, wanted: Wanted) -> Generator[None, None, list[TransactionalImage]]:
    """Find the ids that are wanted, in the order of their names; others may have their turns between its steps.
    KafkaError 15, 16 while some are not known."""
    producers.check_every()
    found: list[TransactionalImage] = []
    now_ms = producers.clock()
    for image in producers.images():
        if _is_wanted(image, wanted, now_ms):
            found.append(image)
        yield
    return sorted(found, key=lambda image: image.transactional_id)


def partitions_by_topic(topics: Topics, image: TransactionalImage) -> dict[str, list[int]]:
    """Return the partitions of an id's transaction by topic, in order; those of deleted topics are left out."""
    found: dict[str, list[int]] = {}
    for topic_id, index in sorted(image.partitions):
        topic = topics.by_id(topic_id)
        if topic is not None:
            found.setdefault(topic.record.name, []).append(index)
    return dict(sorted(found.items()))


def _is_wanted(image: TransactionalImage, wanted: Wanted, now_ms: int) -> bool:
    if wanted.states and image.state.value not in wanted.states:
        return False
    if wanted.producer_ids and image.producer_id not in wanted.producer_ids:
        return False
    if wanted.longer_than_ms >= 0 and now_ms - image.started_ms <= wanted.longer_than_ms:
        return False
    return wanted.pattern is None or wanted.pattern.fullmatch(image.transactional_id) is not None
