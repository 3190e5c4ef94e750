"""Sessions of a partition that are changed without writing rows: see pq/log/sessions.py."""

from collections.abc import Callable

from pqbroker.pq.log.session_cycles import plan_forgotten_session, plan_session
from pqbroker.pq.log.sessions import SessionBatch
from pqbroker.pq.log.write_cycle import Cycle
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.protocol.errors import KafkaError


async def write_session(partition: PartitionServer, session: str, batch: SessionBatch) -> None:
    """Have a session known by a batch; durable when this returns. KafkaError as a write's."""
    await _planned(partition, lambda: plan_session(partition.state, session, batch, batch.written_ms))


async def forget_session(partition: PartitionServer, session: str, now_ms: int) -> None:
    """Forget a session; durable when this returns. KafkaError as a write's."""
    await _planned(partition, lambda: plan_forgotten_session(partition.state, session, now_ms))


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
