"""Sessions of a partition that are changed without writing rows: see pq/log/sessions.py."""

from collections.abc import Callable

from pqbroker.pq.log.session_cycles import plan_forgotten_session, plan_session
from pqbroker.pq.log.sessions import SessionBatch
from pqbroker.pq.log.write_cycle import Cycle
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.protocol.errors import KafkaError


async def write_session(
    partition: PartitionServer, session: str, batch: SessionBatch, seen: SessionBatch | None
) -> None:
    """Have a session known by a batch where it was known as `seen`; durable when this returns. KafkaError as a
    write's, NOT_LEADER_OR_FOLLOWER where it is known otherwise."""
    await _planned(partition, lambda: plan_session(partition.state, session, batch, seen, batch.written_ms))


async def forget_session(partition: PartitionServer, session: str, seen: SessionBatch, now_ms: int) -> None:
    """Forget a session that was known as `seen`; durable when this returns. KafkaError as `write_session`."""
    await _planned(partition, lambda: plan_forgotten_session(partition.state, session, seen, now_ms))


async def _planned(partition: PartitionServer, plan: Callable[[], Cycle | KafkaError]) -> None:
    refusals: list[KafkaError] = []

    def planned() -> Cycle:
        made = plan()
        if isinstance(made, KafkaError):
            refusals.append(made)
            return partition.state.no_change(0)
        return made

    await partition.writer.perform(planned)
    if refusals:
        raise refusals[0]
