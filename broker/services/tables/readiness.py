"""Checks of a table before its tablets are put in the place of others."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from pqbroker.broker.services.tables.finding import states
from pqbroker.broker.services.topics import staged_rows
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.topic import Topic
from pqbroker.pq.serving.transacted_batches import WAIT_S, await_transactions, under_way, why_under_way
from pqbroker.tables.mount import MountState
from pqbroker.tables.paths import table_path
from pqbroker.tables.refusals import TableError

_LOOKS_AT_ONCE = 5_000


def check_unmounted(topic: Topic) -> None:
    """TableError WRONG_STATE unless all tablets are unmounted."""
    mounted = [index for index, state in enumerate(states(topic)) if state is not MountState.UNMOUNTED]
    if mounted and not topic.record.is_static:
        text = f"tablet {mounted[0]} is {topic.states[mounted[0]]}"
        raise TableError("WRONG_STATE", text, "Unmount the whole table first.")


def check_loaded(topic: Topic) -> None:
    """Raise TableError TABLET_NOT_OPEN while rows of a tablet are unknown: it would be taken for one without rows,
    sessions and epochs. WRONG_STATE while rows are written that a forced unmount left on their way."""
    partition = next((one for one in topic.partitions if not one.is_loaded or one.state.is_writing), None)
    if partition is None:
        return
    check_open_tablet(topic, partition)
    name = f"tablet {partition.index} of {table_path(topic.record.name)}"
    raise TableError("WRONG_STATE", f"a write to {name} is under way", "Give the command again.")


def check_open_tablet(topic: Topic, partition: PartitionServer) -> None:
    """TableError TABLET_NOT_OPEN while nothing is known of a tablet: its cell is not open, or it is unreadable."""
    name, unreadable = f"tablet {partition.index} of {table_path(topic.record.name)}", partition.state.unreadable
    if unreadable is not None:
        cure = "Stop the broker, see what `pqbroker doctor` says, and restore the directory from a copy."
        raise TableError("TABLET_NOT_OPEN", f"{name} is unreadable: {unreadable}", cure)
    if not partition.is_loaded:
        text = f"{name} is in cell {topic.record.cell_of(partition.index)}, which is not open"
        raise TableError("TABLET_NOT_OPEN", text, "GET /v1/cells, or `pqbroker cell list`, shows the cause.")


def check_nothing_decided(topic: Topic) -> None:
    """Raise TableError WRONG_STATE while a batch of staged rows is being written: it names tablets by their numbers."""
    if staged_rows.is_being_written(topic):
        text = f"a batch of staged rows of {topic.record.name} was decided, and some of its rows are not written"
        raise TableError("WRONG_STATE", text, "Mount the table; the broker ends the batch within seconds.")


async def wait_for_transactions(topic: Topic) -> None:
    """Wait for the end of transactions in the table, for seconds. TableError WRONG_STATE."""
    told = await await_transactions(topic.partitions)
    if told is not None:
        raise _transaction_under_way(topic, told)
    with suppress(TimeoutError):
        async with asyncio.timeout(WAIT_S):
            for partition in topic.partitions:
                await _await_stable(partition)


async def _await_stable(partition: PartitionServer) -> None:
    """Wait until no Kafka transaction is open in a partition."""
    moved = asyncio.Event()
    forget = partition.watchers.add(moved.set)
    try:
        while partition.state.why_unstable is not None:
            await moved.wait()
            moved.clear()
    finally:
        forget()


def check_no_transaction(topic: Topic) -> None:
    """Raise TableError WRONG_STATE while a transaction is under way: it knows tablets by their ids and numbers."""
    for partition in topic.partitions:
        if under_way(partition) is not None:
            raise _transaction_under_way(topic, why_under_way(partition))
        if (told := partition.state.why_unstable) is not None:
            raise _transaction_under_way(topic, f"partition {partition.index}: {told}")


def _transaction_under_way(topic: Topic, told: str) -> TableError:
    text = f"a transaction needs the tablets of {table_path(topic.record.name)} as they are; {told}"
    return TableError("WRONG_STATE", text, "Give the command again when that is over.")


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
