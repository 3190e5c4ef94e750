"""Write cycles that make blobs: of batches behind the head (semantics A.5), of the whole head as a body."""

from collections.abc import Callable, Iterable, Sequence

from pqbroker.pq.log import producers
from pqbroker.pq.log.batch_admission import admit, take_decided, take_marker
from pqbroker.pq.log.keys import aborted_key, meta_key, producer_key, producer_keys
from pqbroker.pq.log.partition import Partition
from pqbroker.pq.log.producer_transactions import TransactionsChange
from pqbroker.pq.log.row_facts import Weighed, row_weights
from pqbroker.pq.log.start_state import Meta
from pqbroker.pq.log.write_cycle import Cycle, PlannedBatch, Written
from pqbroker.protocol.control_records import EndMarker
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.records import BatchHeader, read_header

_Admit = Callable[[Partition, Cycle, memoryview, BatchHeader], Written]


def plan_batches(
    partition: Partition, batches: Sequence[PlannedBatch], now_ms: int, weights: Sequence[Weighed] = ()
) -> Cycle:
    """Plan the storing of produced batches; `weights` of the rows of each. Batches that cannot be stored have a
    KafkaError for an outcome.

    Needs the head's content in memory where `needs_content` says so. An empty plan means that nothing is
    to be done.
    """
    assert not partition.is_writing
    cycle = partition.no_change(now_ms)
    _fill(partition, cycle, batches, weights)
    return cycle


def plan_batch_at(
    partition: Partition, offset: int, batch: PlannedBatch, now_ms: int, weights: Weighed = None
) -> Cycle:
    """Plan the storing of a batch at an offset of the writer's choosing (mirroring, A.5): what lies between it and
    the end becomes a gap. OFFSET_OUT_OF_RANGE for an offset before the end."""
    assert not partition.is_writing
    cycle = partition.no_change(now_ms)
    if offset < partition.end_offset:
        text = f"offset {offset} is taken: the partition ends at {partition.end_offset}"
        cycle.outcomes.append(KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, text))
        return cycle
    cycle.first_offset = cycle.end_offset = offset
    if partition.start_offset == partition.end_offset:
        cycle.start_offset = offset
    _fill(partition, cycle, (batch,), (weights,))
    return cycle


def plan_decided(
    partition: Partition, batches: Sequence[PlannedBatch], now_ms: int, weights: Sequence[Weighed]
) -> Cycle:
    """Plan the storing of batches of a transaction that is committed: nothing refuses them."""
    assert not partition.is_writing
    cycle = partition.no_change(now_ms)
    _fill(partition, cycle, batches, weights, take_decided)
    cycle.outcomes = []
    return cycle


def plan_markers(partition: Partition, markers: Sequence[EndMarker], now_ms: int) -> Cycle:
    """Plan markers, which end transactions of their producers: neither limits nor the mount state refuse them, their
    epochs may. The outcome of each is its place, or a KafkaError."""
    assert not partition.is_writing
    cycle = partition.no_change(now_ms)
    made = [memoryview(marker.batch(now_ms)) for marker in markers]
    weights = [partition.facts.unstamped(len(batch)) for batch in made] if partition.settings.keeps_facts else ()
    following = iter(markers)

    def take(partition: Partition, cycle: Cycle, batch: memoryview, header: BatchHeader) -> Written:
        return take_marker(next(following), partition, cycle, batch, header)

    _fill(partition, cycle, [(batch, read_header(batch)) for batch in made], weights, take)
    return cycle


def plan_close(partition: Partition, now_ms: int) -> Cycle:
    """Plan to make the whole head one body blob; what is not in memory goes by reference."""
    assert not partition.is_writing
    cycle = partition.no_change(now_ms)
    if partition.head.blobs:
        partition.is_writing = True
        partition.layout.close(cycle, [(partition.head.run.end, partition.end_offset)], [1])
        _plan_facts(partition, cycle)
    return cycle


def _fill(
    partition: Partition,
    cycle: Cycle,
    batches: Iterable[PlannedBatch],
    weights: Sequence[Weighed],
    admit_one: _Admit = admit,
) -> None:
    """Put the batches that can be stored into the cycle, and what has to be stored with them."""
    run = partition.head.run
    ends: list[tuple[int, int]] = []
    rows = cycle.rows = partition.facts.begin(partition.size_bytes) if partition.settings.keeps_facts else None
    for batch, header in batches:
        try:
            cycle.outcomes.append(admit_one(partition, cycle, batch, header))
        except KafkaError as refusal:
            cycle.outcomes.append(refusal)
            continue
        if run.end > (ends[-1][0] if ends else cycle.mark):
            ends.append((run.end, cycle.end_offset))
            if rows is not None:
                given = weights[len(cycle.outcomes) - 1] if weights else None
                given = row_weights(given, header.last_offset_delta + 1, len(batch))
                partition.facts.take(rows, cycle.end_offset, given, cycle.now_ms)
    if ends:
        partition.is_writing = True
        topic = partition.settings.topic
        partition.layout.place(cycle, ends, topic.pq_low_watermark_bytes)
        if rows is not None or partition.facts.blobs:
            _plan_facts(partition, cycle)
        for producer_id, state in cycle.producers.items():
            cycle.store(producer_key(partition.index, producer_id), producers.encode(state))
        if len(partition.producers.producers) + len(cycle.producers) > topic.pq_producer_ids_max:
            cycle.forgotten = partition.producers.displaced(cycle.producers, topic.pq_producer_ids_max)
            cycle.gone += producer_keys(partition.index, cycle.forgotten)
        is_first_aborted = cycle.transactions is not None and _store_aborted(partition, cycle, cycle.transactions)
        if not partition.epochs.is_stored or cycle.start_offset != partition.start_offset or is_first_aborted:
            _store_epoch(partition, cycle)
        if cycle.parts or partition.has_leftovers:
            cycle.touches_parts = True
            if partition.has_leftovers:
                partition.layout.wipe_leftovers(cycle)


def _plan_facts(partition: Partition, cycle: Cycle) -> None:
    """After the blobs are planned."""
    blobs = partition.head.blobs
    merged = len(blobs) if cycle.placement is None else cycle.placement.merged
    cycle.facts = change = partition.facts.plan(cycle.rows, blobs[len(blobs) - merged :], cycle.made_blobs)
    if change is not None:
        cycle.puts += change.puts
        cycle.gone += change.gone


def _store_aborted(partition: Partition, cycle: Cycle, change: TransactionsChange) -> bool:
    """Store the spans of transactions that the cycle's markers abort. Return True if they are the log's first."""
    for span in change.aborted:
        cycle.store(aborted_key(partition.index, span.marker_offset), span.encode())
    return bool(change.aborted) and partition.transactions.aborted is None


def _store_epoch(partition: Partition, cycle: Cycle) -> None:
    """The first batch of a generation makes its epoch known; one that moves the start makes that known, as does the
    first marker that aborts a transaction."""
    cycle.stores_epoch = True
    end_offset = max(partition.end_offset, cycle.start_offset)
    has_aborted = partition.transactions.aborted is not None
    if cycle.transactions is not None and cycle.transactions.aborted:
        has_aborted = True
    meta = Meta(cycle.start_offset, end_offset, partition.epochs.entries, has_aborted)
    cycle.store(meta_key(partition.index), meta.encode())
