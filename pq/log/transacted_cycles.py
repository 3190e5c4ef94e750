"""Write cycles of transactions over several tablets in one partition: see pq/transactions/participants.py.

    batches --in the decision's own request---------------> in the log
    batches --plan_prepared--> a key of their own --plan_finish--> in the log, the key is gone
                                                  --dropped------> gone
"""

from collections.abc import Sequence

from pqbroker.pq.log.blob_cycles import plan_batches, plan_decided
from pqbroker.pq.log.keys import prepared_key
from pqbroker.pq.log.partition import Partition
from pqbroker.pq.log.prepared_batches import PreparedBatches
from pqbroker.pq.log.row_facts import RowFacts, Weighed, row_weights
from pqbroker.pq.log.session_cycles import remember_batch, why_late
from pqbroker.pq.log.sessions import Fence, SessionBatch
from pqbroker.pq.log.write_cycle import Cycle, PlannedBatch
from pqbroker.pq.transactions.stored_forms import PreparedHead, TransactionId
from pqbroker.protocol.errors import KafkaError
from pqbroker.storage.engine import Buffer


def remember(partition: Partition, cycle: Cycle, fence: Fence) -> None:
    """Have the cycle's rows known by their session's name and sequence, in the same request."""
    count = cycle.end_offset - cycle.first_offset
    remember_batch(
        partition, cycle, fence.session,
        SessionBatch(fence.sequence, cycle.now_ms, cycle.first_offset, count, producer=fence.producer),
    )  # fmt: skip


def plan_beside(partition: Partition, planned: PreparedBatches, now_ms: int) -> Cycle | KafkaError:
    """Plan batches that the decision's own request writes; the error of the first that is refused."""
    late = None if planned.fence is None else why_late(partition, planned.fence)
    if late is not None:
        return late
    cycle = plan_batches(partition, planned.batches, now_ms, planned.weights)
    refusals = [outcome for outcome in cycle.outcomes if isinstance(outcome, KafkaError)]
    cycle.outcomes = []
    if refusals:
        if not cycle.is_empty:
            partition.rollback(cycle)
        return refusals[0]
    if planned.fence is not None:
        remember(partition, cycle, planned.fence)
    return cycle


def plan_prepared(
    partition: Partition, planned: PreparedBatches, transaction: TransactionId, now_ms: int
) -> Cycle | KafkaError:
    """Plan a key with batches that are checked as if they were written now; `fill_prepared` says what is in it."""
    tried = plan_beside(partition, planned, now_ms)
    if isinstance(tried, KafkaError):
        return tried
    tried.touches_parts = False  # none of its parts is stored
    partition.rollback(tried)
    cycle = partition.no_change(now_ms)
    cycle.puts.append((prepared_key(partition.index, transaction), (), 0, False))
    partition.is_writing = True
    return cycle


def fill_prepared(cycle: Cycle, head: PreparedHead, rows: Sequence[Buffer]) -> None:
    """Put the value of the key into a cycle of `plan_prepared`."""
    ((key, _, _, is_row),) = cycle.puts
    buffers = [head.encode(), *rows]
    cycle.puts = [(key, buffers, sum(map(len, buffers)), is_row)]


def plan_finish(
    partition: Partition, prepared: PreparedBatches, transaction: TransactionId, timestamp: int, now_ms: int
) -> Cycle:
    """Put prepared batches into the log at the commit's timestamp, whatever limits say; their key goes."""
    weights = [
        _at(timestamp, batch, weighed) for batch, weighed in zip(prepared.batches, prepared.weights, strict=True)
    ]
    cycle = plan_decided(partition, prepared.batches, now_ms, weights)
    if prepared.fence is not None:
        remember(partition, cycle, prepared.fence)
    cycle.gone.append(prepared_key(partition.index, transaction))
    return cycle


def _at(timestamp: int, batch: PlannedBatch, weights: Weighed) -> RowFacts:
    """Return the facts of a batch's rows with the commit's timestamp: no other one is given for them."""
    data, header = batch
    facts = RowFacts(0)
    weighed = row_weights(weights, header.last_offset_delta + 1, len(data))
    assert not isinstance(weighed, RowFacts)
    facts.append(0, timestamp, weighed)
    return facts
