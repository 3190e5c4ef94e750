"""Metrics of transactional producers, read at scrape time."""

from collections import Counter

from pqbroker.broker.ground.metrics import Sample, Sampling
from pqbroker.broker.services.transactional_producers.producers import TransactionalProducers
from pqbroker.broker.services.transactional_producers.rules import ends_at_ms
from pqbroker.storage.tablets.coordinator_rows import TransactionalIdState

_SEEN = tuple(state for state in TransactionalIdState if state is not TransactionalIdState.DEAD)


def transactional_samples(producers: TransactionalProducers) -> Sampling:
    """Ids by state, ended transactions, and the age of the oldest open one."""
    states: Counter[TransactionalIdState] = Counter()
    now_ms = oldest_ms = producers.clock()
    for image in producers.images():
        states[image.state] += 1
        if ends_at_ms(image) is not None:
            oldest_ms = min(oldest_ms, image.started_ms)
        yield
    return [
        *(Sample("transactional_ids", states[state], (state.value,)) for state in _SEEN),
        Sample("transactional_ids_bytes", producers.taken_bytes),
        Sample("transactional_ends", producers.counters.committed, ("committed",)),
        Sample("transactional_ends", producers.counters.aborted, ("aborted",)),
        Sample("transactional_oldest_seconds", (now_ms - oldest_ms) / 1000),
    ]
