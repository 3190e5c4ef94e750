"""Use of quotas by a client's requests: bytes, processor time, partitions made and deleted; and the pauses above them.

Pauses are Kafka's (KIP-219): the answer says how long, and the connection is not read meanwhile.
"""

from time import perf_counter
from typing import Protocol

from pqbroker.broker.kafka.apis.context import Context, Peer
from pqbroker.broker.kafka.apis.exchange import Exchange
from pqbroker.broker.services.quotas.client_quotas import REQUEST_PAUSE_MS_MAX
from pqbroker.broker.services.quotas.quota_rules import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from pqbroker.protocol.errors import ErrorCode, KafkaError


class Beginner(Protocol):
    """Begins requests (`Dispatcher`)."""

    def begin(self, peer: Peer, frame: memoryview) -> Exchange: ...


def begin_metered(dispatcher: Beginner, peer: Peer, frame: memoryview) -> Exchange:
    """Begin a request of a client whose processor time has a quota. What is done in this call counts, in lanes too.
    The client pauses for `peer.owed_ms` at least."""
    use, quotas = peer.use, peer.node.quotas
    assert use is not None
    assert use.busy is not None
    peer.owed_ms = min(use.busy.owed_ms(quotas.now_ms()), REQUEST_PAUSE_MS_MAX)
    if peer.owed_ms:
        peer.lanes.clear()  # an answer in a lane has no room for a pause that is not of its partitions
    began = perf_counter()
    exchange = dispatcher.begin(peer, frame)
    use.busy.count((perf_counter() - began) * 100, quotas.now_ms())
    quotas.throttled(REQUEST_PERCENTAGE, peer.owed_ms)
    return exchange


def produce_pause_ms(peer: Peer, size: int) -> int:
    """Count the bytes of a Produce request of a client that is under a quota; return for how long it pauses."""
    use, quotas = peer.use, peer.node.quotas
    if use is None or use.produced is None:
        return 0
    return quotas.throttled(PRODUCER_BYTE_RATE, use.produced.take(size, quotas.now_ms()))


def fetch_pause_ms(peer: Peer) -> int:
    """Return for how long a client has to wait before it may read again."""
    use, quotas = peer.use, peer.node.quotas
    if use is None or use.fetched is None:
        return 0
    return quotas.throttled(CONSUMER_BYTE_RATE, use.fetched.owed_ms(quotas.now_ms()))


def count_fetched(peer: Peer, size: int) -> None:
    """Count the bytes of records in an answer."""
    use = peer.use
    if use is not None and use.fetched is not None:
        use.fetched.count(size, peer.node.quotas.now_ms())


def count_mutations(context: Context, count: int, *, is_strict: bool) -> None:
    """Count partitions that a request makes or deletes. `is_strict`: of a version that can be refused for it (KIP-599);
    KafkaError THROTTLING_QUOTA_EXCEEDED then, and nothing is counted."""
    use, quotas = context.peer.use, context.node.quotas
    if use is None or use.mutations is None:
        return
    if is_strict and use.mutations.owed_ms(quotas.now_ms()):
        raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")
    use.mutations.count(count, quotas.now_ms())


def mutation_pause_ms(context: Context) -> int:
    """Return for how long the client should not ask for further changes of partitions."""
    use, quotas = context.peer.use, context.node.quotas
    if use is None or use.mutations is None:
        return 0
    return quotas.throttled(CONTROLLER_MUTATION_RATE, use.mutations.owed_ms(quotas.now_ms()))
