"""Room for the sessions of tablets whose rows become those of one: none inside its time may be displaced (E.13)."""

import asyncio
from collections.abc import Iterable

from pqbroker.pq.serving.topic import Topic
from pqbroker.tables.refusals import TableError

_LOOKS_AT_ONCE = 5_000


async def check_sessions_fit(topic: Topic, indexes: Iterable[int], now_ms: int) -> None:
    """TableError CANNOT_GLUE if the tablets `indexes` together remember more sessions than one tablet may."""
    limit = topic.config.pq_sessions_max
    partitions = [topic.partitions[index] for index in indexes]
    if sum(len(partition.state.sessions) for partition in partitions) <= limit:
        return
    kept_ms = topic.settings().producers_kept_ms
    names: set[str] = set()
    for partition in partitions:
        for number, (name, batch) in enumerate(list(partition.state.sessions)):
            if not batch.is_over(partition.start_offset, now_ms, kept_ms):
                names.add(name)
            if not number % _LOOKS_AT_ONCE:
                await asyncio.sleep(0)
    if len(names) > limit:
        text = f"the tablets remember {len(names)} sessions of inserted rows, and one tablet at most {limit}"
        cure = "Raise pq.sessions.max of the table, or wait until sessions are forgotten (producer.id.expiration.ms)."
        raise TableError("CANNOT_GLUE", text, cure)
