"""What must hold of a table before its tablets are put in the place of others."""

import asyncio
from collections.abc import Iterable

from pqbroker.broker.services.tables.finding import states
from pqbroker.broker.services.topics import staged_rows
from pqbroker.pq.serving.topic import Topic
from pqbroker.tables.mount import MountState
from pqbroker.tables.refusals import TableError

_LOOKS_AT_ONCE = 5_000


def check_unmounted(topic: Topic) -> None:
    """TableError WRONG_STATE unless all tablets are unmounted."""
    mounted = [index for index, state in enumerate(states(topic)) if state is not MountState.UNMOUNTED]
    if mounted and not topic.record.is_static:
        text = f"tablet {mounted[0]} is {topic.states[mounted[0]]}"
        raise TableError("WRONG_STATE", text, "Unmount the whole table first.")


def check_nothing_decided(topic: Topic) -> None:
    """TableError WRONG_STATE while a batch of staged rows is being written: tablets cannot be put in others' place."""
    if staged_rows.is_being_written(topic):
        text = f"a batch of staged rows of {topic.record.name} was decided, and some of its rows are not written"
        raise TableError("WRONG_STATE", text, "Mount the table; the broker ends the batch within seconds.")


async def check_sessions_fit(topic: Topic, indexes: Iterable[int], now_ms: int) -> None:
    """TableError CANNOT_GLUE if the tablets `indexes` together remember more sessions than one tablet may: none inside
    its time may be displaced (E.13)."""
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
