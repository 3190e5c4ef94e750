"""Write cycles about staged rows of one partition: see staged_rows.py. A plan that is refused is a KafkaError."""

from pqbroker.pq.log.batch_admission import why_closed
from pqbroker.pq.log.blob_cycles import plan_batches
from pqbroker.pq.log.partition import Partition
from pqbroker.pq.log.row_facts import Weighed
from pqbroker.pq.log.session_cycles import remember_batch
from pqbroker.pq.log.sessions import SessionBatch
from pqbroker.pq.log.staged_rows import Decision
from pqbroker.pq.log.write_cycle import Cycle, PlannedBatch
from pqbroker.protocol.errors import KafkaError


def plan_value(partition: Partition, key: bytes, value: bytes | memoryview, now_ms: int) -> Cycle | KafkaError:
    """Store a piece or a decision."""
    refusal = why_closed(partition)
    if refusal is not None:
        return refusal
    cycle = partition.no_change(now_ms)
    cycle.puts.append((key, (value,), len(value), False))
    partition.is_writing = True
    return cycle


def plan_piece(
    partition: Partition, key: bytes, batch: PlannedBatch, now_ms: int, weights: Weighed
) -> Cycle | KafkaError:
    """Put the rows of a piece into the log; the piece goes."""
    cycle = plan_batches(partition, [batch], now_ms, [weights])
    outcome = cycle.outcomes.pop()
    if isinstance(outcome, KafkaError):
        return outcome
    cycle.gone.append(key)
    return cycle


def plan_end(partition: Partition, decision: Decision, now_ms: int) -> Cycle:
    """Enter the batch, whose rows are all in the log, into its session, and delete the decision.

    Rows of others may lie among those of the batch: its place reaches up to the end, so that it is remembered while one
    of them exists.
    """
    cycle = partition.no_change(now_ms)
    count = sum(piece.total.row_count for piece in decision.pieces if piece.partition == partition.index)
    base = max(partition.end_offset - count, 0)
    batch = SessionBatch(decision.sequence, now_ms, base, partition.end_offset - base, decision.total)
    remember_batch(partition, cycle, decision.session, batch)
    cycle.gone.append(decision.key)
    partition.is_writing = True
    return cycle


def plan_drop(partition: Partition, keys: list[bytes], now_ms: int) -> Cycle:
    """Delete pieces that no decision will name, or a decision that is not carried out."""
    cycle = partition.no_change(now_ms)
    cycle.gone += keys
    partition.is_writing = True
    return cycle
