"""Metrics of transactional producers, read at scrape time."""

from collections import Counter
from collections.abc import Iterable

from pqbroker.broker.ground.metrics import Sample, Sampling
from pqbroker.broker.services.transactional_producers.producers import TransactionalProducers
from pqbroker.broker.services.transactional_producers.rules import ends_at_ms
from pqbroker.pq.log.partition import Partition
from pqbroker.pq.serving.topic import Topic
from pqbroker.storage.tablets.coordinator_rows import TransactionalIdState

_SEEN = tuple(state for state in TransactionalIdState if state is not TransactionalIdState.DEAD)


def transactional_samples(producers: TransactionalProducers, topics: Iterable[Topic]) -> Sampling:
    """Ids by state, ended transactions, the age of the oldest open one, and of what holds a last stable offset."""
    states: Counter[TransactionalIdState] = Counter()
    now_ms = oldest_ms = producers.clock()
    for image in producers.images():
        states[image.state] += 1
        if ends_at_ms(image) is not None:
            oldest_ms = min(oldest_ms, image.started_ms)
        yield
    held_ms = now_ms
    for topic in topics:
        held_ms = min([held_ms, *(_held_since_ms(each.state, now_ms) for each in topic.partitions)])
        yield
    return [
        *(Sample("transactional_ids", states[state], (state.value,)) for state in _SEEN),
        Sample("transactional_ids_bytes", producers.taken_bytes),
        Sample("transactional_ends", producers.counters.committed, ("committed",)),
        Sample("transactional_ends", producers.counters.aborted, ("aborted",)),
        Sample("transactional_oldest_seconds", (now_ms - oldest_ms) / 1000),
        Sample("stable_offset_oldest_seconds", (now_ms - held_ms) / 1000),
    ]


def _held_since_ms(partition: Partition, now_ms: int) -> int:
    """Return since when a partition's last stable offset stays at the transaction that was open first; now: at none."""
    if not partition.transactions.open:
        return now_ms
    state = partition.producers.producers.get(next(iter(partition.transactions.open)))
    return now_ms if state is None or state.transactional is None else state.transactional.open_ms
