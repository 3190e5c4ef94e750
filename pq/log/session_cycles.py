"""Write cycles about the sessions of one partition: see sessions.py. A plan that is refused is a KafkaError."""

from pqbroker.pq.log.batch_admission import why_closed
from pqbroker.pq.log.keys import session_key, session_keys
from pqbroker.pq.log.partition import Partition
from pqbroker.pq.log.sessions import Fence, SessionBatch, comes_late
from pqbroker.pq.log.write_cycle import Cycle
from pqbroker.protocol.errors import ErrorCode, KafkaError

_CHANGED = "the session has changed since it was looked up: retry"


def remember_batch(partition: Partition, cycle: Cycle, session: str, batch: SessionBatch) -> None:
    """Have a session known by this batch from now on; over the limit the oldest ones are forgotten."""
    cycle.sessions[session] = batch
    cycle.store(session_key(partition.index, session), batch.encode())
    cycle.forgotten_sessions = partition.sessions.displaced(session, partition.settings.topic.pq_sessions_max)
    cycle.gone += session_keys(partition.index, cycle.forgotten_sessions)


def why_late(partition: Partition, fence: Fence) -> KafkaError | None:
    """Return why a batch is refused whose place in its session is another's by now: the sender looks it up again."""
    is_late = comes_late(fence.sequence, fence.producer, partition.sessions.get(fence.session))
    return _changed() if is_late else None


def plan_session(
    partition: Partition, session: str, batch: SessionBatch, seen: SessionBatch | None, now_ms: int
) -> Cycle | KafkaError:
    """Have a session known by a batch without writing rows, where it is known as it was `seen`."""
    refusal = why_closed(partition) if partition.sessions.get(session) == seen else _changed()
    if refusal is not None:
        return refusal
    cycle = partition.no_change(now_ms)
    remember_batch(partition, cycle, session, batch)
    partition.is_writing = True
    return cycle


def plan_forgotten_session(
    partition: Partition, session: str, seen: SessionBatch, now_ms: int
) -> Cycle | KafkaError:
    """Forget a session, if the partition knows it, as it was `seen`."""
    cycle = partition.no_change(now_ms)
    known = partition.sessions.get(session)
    if known is None:
        return cycle
    refusal = why_closed(partition) if known == seen else _changed()
    if refusal is not None:
        return refusal
    cycle.forgotten_sessions = [session]
    cycle.gone += session_keys(partition.index, [session])
    partition.is_writing = True
    return cycle


def _changed() -> KafkaError:
    return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, _CHANGED)
