"""SourceIds of a partition: Kafka's idempotent producers and the duplicates they are protected from (semantics A.7,
clients 4.18, 4.19).

    stored state        batch                                   verdict
    none                any sequence                            append
                        one behind a batch that was refused     OUT_OF_ORDER_SEQUENCE_NUMBER
                        for now (A.5.10)
    any                 older epoch                             INVALID_PRODUCER_EPOCH
    any                 newer epoch, sequence 0                 append, the earlier epoch is forgotten
    any                 newer epoch, other sequence             OUT_OF_ORDER_SEQUENCE_NUMBER
    last sequence s     s + 1 (0 after 2^31 - 1)                append
                        exactly one of the last five batches    duplicate, with its offset
                        anything else                           OUT_OF_ORDER_SEQUENCE_NUMBER
    no sequence: a      0                                       append
    marker alone        anything else                           OUT_OF_ORDER_SEQUENCE_NUMBER

What a marker of a transaction does to a state is in `marked`; its transactions: producer_transactions.py.

Sequences are kept unwrapped in 64 bits (H36). States are immutable: a write cycle keeps its changes apart until it is
durable.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from struct import Struct
from typing import NamedTuple

from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.unreadable import check_version

BATCHES_KEPT = 5
DELETIONS_MAX = 1000
"""Producers that one commit forgets."""
REFUSED_MAX = 1000
"""Producers that a partition remembers to have refused before it knew them."""
_SEQUENCES = 1 << 31
_STATE = Struct(">Bhqqqq")
_STATE_1 = Struct(">Bhqqq")
_BATCH = Struct(">qqqq")
_VERSION = 2
"""Version 1 has no timestamp of the last batch; it is read."""
_STATE_3 = Struct(">Bhqqqqiqqq")
_TRANSACTIONAL_VERSION = 3
"""Has the transactions of the producer too: earlier releases, which would show what is not committed, refuse it."""
_NOTHING = -1


class StoredBatch(NamedTuple):
    """One batch of a producer: unwrapped first and last sequence, its base offset, its answer's log append time."""

    first: int
    last: int
    base_offset: int
    log_append_time_ms: int


class TransactionalState(NamedTuple):
    """The Kafka transactions of a producer in one partition; -1 stands for nothing."""

    coordinator_epoch: int = _NOTHING
    """Epoch of the coordinator that sent the last marker."""
    marker_offset: int = _NOTHING
    """Offset of that marker."""
    open_offset: int = _NOTHING
    """Offset of the first record of the open transaction."""
    open_ms: int = _NOTHING
    """Time when that record was written."""


class Producer(NamedTuple):
    """The remembered state of a producer: its epoch, the first sequence taken in it, when it last wrote, its last
    batches: none where a marker began the epoch."""

    epoch: int
    first: int
    written_ms: int
    batches: tuple[StoredBatch, ...]
    timestamp_ms: int = -1
    """Largest timestamp of the last batch's records."""
    transactional: TransactionalState | None = None
    """None: it has never written in a transaction."""

    @property
    def last(self) -> int:
        """The last sequence taken, unwrapped; one before the first where none was taken."""
        return self.batches[-1].last if self.batches else self.first - 1

    @property
    def last_offset(self) -> int:
        """Offset of the last record taken, or of the marker behind it."""
        marker_offset = _NOTHING if self.transactional is None else self.transactional.marker_offset
        if not self.batches:
            return marker_offset
        batch = self.batches[-1]
        return max(batch.base_offset + batch.last - batch.first, marker_offset)

    @property
    def is_open(self) -> bool:
        """Return True if the producer has an open transaction here: it is not forgotten then."""
        return self.transactional is not None and self.transactional.open_offset >= 0


class Duplicate(NamedTuple):
    """A batch that is stored already; its acknowledgement gives the offset and the time of the original."""

    base_offset: int
    log_append_time_ms: int


def check(state: Producer | None, epoch: int, sequence: int, count: int) -> Duplicate | int:
    """Decide what happens with a batch: return a Duplicate, or the unwrapped first sequence to append it with;
    KafkaError (45, 47)."""
    if state is None:
        return sequence
    if epoch != state.epoch:
        if epoch < state.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH, f"epoch {epoch} is older than the producer's epoch {state.epoch}"
            )
        if sequence != 0:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, f"the first sequence of epoch {epoch} is {sequence}, not 0"
            )
        return 0
    expected = state.batches[-1].last + 1 if state.batches else state.first
    ahead = (sequence - expected) % _SEQUENCES
    if ahead == 0:
        return expected
    if ahead >= _SEQUENCES // 2:
        first = expected + ahead - _SEQUENCES
        found = _find(state, first, first + count - 1)
        if found is not None:
            return found
    raise KafkaError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, f"sequence {sequence} came where {expected % _SEQUENCES} was expected"
    )


def _find(state: Producer, first: int, last: int) -> Duplicate | None:
    for batch in reversed(state.batches):
        if batch.first == first and batch.last == last:
            return Duplicate(batch.base_offset, batch.log_append_time_ms)
    return None


def taken(state: Producer | None, epoch: int, batch: StoredBatch, timestamp_ms: int, now_ms: int) -> Producer:
    """The state after a batch was appended; its first sequence is what `check` returned."""
    if state is None:
        return Producer(epoch, batch.first, now_ms, (batch,), timestamp_ms)
    if state.epoch != epoch:
        return Producer(epoch, batch.first, now_ms, (batch,), timestamp_ms, state.transactional)
    batches = state.batches
    if len(batches) == BATCHES_KEPT:
        batches = batches[1:]
    return Producer(epoch, state.first, now_ms, (*batches, batch), timestamp_ms, state.transactional)


def check_marker(state: Producer | None, epoch: int, coordinator_epoch: int) -> None:
    """Check the epochs of a marker as Kafka does: TRANSACTION_COORDINATOR_FENCED, INVALID_PRODUCER_EPOCH."""
    if state is None:
        return
    if epoch < state.epoch:
        text = f"the marker's epoch {epoch} is older than the producer's epoch {state.epoch}"
        raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, text)
    seen = _NOTHING if state.transactional is None else state.transactional.coordinator_epoch
    if coordinator_epoch < seen:
        text = f"the marker is of coordinator epoch {coordinator_epoch}, and one of epoch {seen} was written before"
        raise KafkaError(ErrorCode.TRANSACTION_COORDINATOR_FENCED, text)


def marked(state: Producer | None, epoch: int, coordinator_epoch: int, offset: int, now_ms: int) -> Producer:
    """The state after a marker was written at an offset: no transaction is open, and older epochs are fenced. A marker
    of a newer epoch begins that one, without a batch."""
    transactional = TransactionalState(coordinator_epoch, offset)
    if state is None or state.epoch != epoch:
        return Producer(epoch, 0, now_ms, (), now_ms, transactional)
    return state._replace(written_ms=now_ms, timestamp_ms=now_ms, transactional=transactional)


def encode(state: Producer) -> bytes:
    """The stored form of a producer: version, epoch, first sequence, write time, last timestamp, its transactions if
    it has had any, its batches."""
    facts = (state.epoch, state.first, state.written_ms, state.timestamp_ms, len(state.batches))
    if state.transactional is None:
        head = _STATE.pack(_VERSION, *facts)
    else:
        head = _STATE_3.pack(_TRANSACTIONAL_VERSION, *facts, *state.transactional)
    return b"".join((head, *(_BATCH.pack(*batch) for batch in state.batches)))


def decode(stored: bytes) -> Producer:
    """Return the producer that `encode` stored; ValueError for bytes that it cannot have made."""
    if stored[:1] == b"\3":
        return _decode_transactional(stored)
    form = _STATE_1 if stored[:1] == b"\1" else _STATE
    if form is _STATE:
        check_version(stored, _VERSION)
    if len(stored) < form.size:
        raise ValueError(f"it has {len(stored)} bytes")
    _, epoch, first, written_ms, *timestamps, count = form.unpack_from(stored)
    if not 1 <= count <= BATCHES_KEPT or len(stored) != form.size + count * _BATCH.size:
        raise ValueError(f"it has {len(stored)} bytes and counts {count} batches")
    batches = tuple(map(StoredBatch._make, _BATCH.iter_unpack(stored[form.size :])))
    return Producer(epoch, first, written_ms, batches, *timestamps)


def _decode_transactional(stored: bytes) -> Producer:
    if len(stored) < _STATE_3.size:
        raise ValueError(f"it has {len(stored)} bytes")
    _, epoch, first, written_ms, timestamp_ms, count, *transactional = _STATE_3.unpack_from(stored)
    if not 0 <= count <= BATCHES_KEPT or len(stored) != _STATE_3.size + count * _BATCH.size:
        raise ValueError(f"it has {len(stored)} bytes and counts {count} batches")
    state = TransactionalState(*transactional)
    is_half_open = (state.open_offset < 0) != (state.open_ms < 0)
    if min(state) < _NOTHING or is_half_open or (not count and state.marker_offset < 0):
        raise ValueError(f"it counts {count} batches and says of its transactions {state}")
    batches = tuple(map(StoredBatch._make, _BATCH.iter_unpack(stored[_STATE_3.size :])))
    return Producer(epoch, first, written_ms, batches, timestamp_ms, state)


class Producers:
    """The producers of one partition, in the order of their last writes: those to forget stand first."""

    __slots__ = ("_found", "_refused", "evicted", "forgotten", "producers")

    def __init__(self, producers: Iterable[tuple[int, Producer]] = ()) -> None:
        self.producers: dict[int, Producer] = dict(sorted(producers, key=lambda item: item[1].last_offset))
        self._refused: dict[int, tuple[int, int]] = {}
        """Epoch and sequence of the first batch of an unknown producer that was refused for now, by producer id."""
        self._found = len(self.producers)
        self.forgotten = 0
        """Producers forgotten since the start."""
        self.evicted = 0
        """Producers forgotten over pq.producer.ids.max although the log still had data of theirs."""

    @property
    def created(self) -> int:
        """Producers that came since the start; one that was forgotten and comes again counts again."""
        return len(self.producers) + self.forgotten - self._found

    def take(self, states: Mapping[int, Producer]) -> None:
        """Take the states of producers that have written."""
        producers = self.producers
        for producer_id, state in states.items():
            producers.pop(producer_id, None)
            producers[producer_id] = state
            if self._refused:
                self._refused.pop(producer_id, None)

    def expired(
        self, start_offset: int, now_ms: int, kept_ms: int, count_max: int, deletions_max: int = DELETIONS_MAX
    ) -> list[int]:
        """Producers to forget (H4): no data of theirs remains and they were idle for `kept_ms`; over `count_max` the
        oldest too. One with an open transaction stays."""
        found: list[int] = []
        over = len(self.producers) - count_max
        for producer_id, state in self.producers.items():
            if state.is_open:
                continue
            is_over = state.last_offset < start_offset and state.written_ms + kept_ms <= now_ms
            if not is_over and len(found) >= over:
                break
            found.append(producer_id)
            if len(found) == deletions_max:
                break
        return found

    def displaced(self, states: Mapping[int, Producer], count_max: int) -> list[int]:
        """The oldest producers to forget, at most `DELETIONS_MAX`, so that those of `states` keep to the limit. One
        with an open transaction stays."""
        producers = self.producers
        over = len(producers) + sum(producer_id not in producers for producer_id in states) - count_max
        others = (each for each, state in producers.items() if each not in states and not state.is_open)
        return list(islice(others, min(max(over, 0), DELETIONS_MAX)))

    def refuse(self, producer_id: int, epoch: int, sequence: int) -> None:
        """Note a batch that was refused and that its producer will send again.

        Nothing of a producer that is not known says which sequence comes next: were one behind the refused batch
        stored first, the refused one could never be (A.5.10).
        """
        if producer_id < 0 or producer_id in self.producers or producer_id in self._refused:
            return
        if len(self._refused) == REFUSED_MAX:
            del self._refused[next(iter(self._refused))]
        self._refused[producer_id] = epoch, sequence

    def check_first(self, producer_id: int, epoch: int, sequence: int) -> None:
        """Check that the first batch of a producer may be stored; OUT_OF_ORDER_SEQUENCE_NUMBER."""
        refused = self._refused.get(producer_id)
        if refused is None or refused[0] != epoch:
            return
        if 0 < (sequence - refused[1]) % _SEQUENCES < _SEQUENCES // 2:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, f"sequence {sequence} came before {refused[1]}, refused before"
            )

    def forget(self, producer_ids: Iterable[int], start_offset: int) -> None:
        """Forget producers; those that have data at or behind `start_offset` are counted as evicted."""
        for producer_id in producer_ids:
            self.forgotten += 1
            self.evicted += self.producers.pop(producer_id).last_offset >= start_offset

    def __iter__(self) -> Iterator[tuple[int, Producer]]:
        return iter(self.producers.items())
