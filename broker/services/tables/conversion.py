"""Tables become static and dynamic again (E.10).

    dynamic, unmounted -> static: all rows of all tablets, by whole chunks, in one new tablet; another topic id
    static             -> dynamic, unmounted, with this one tablet

Rows that were trimmed inside a chunk reappear. One commit of the scheme decides each change.
"""

from collections.abc import Sequence
from dataclasses import replace

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.services.cells.tablet_gluing import Glue
from pqbroker.broker.services.leaders import cells_of
from pqbroker.broker.services.tables.callers import TablesCaller
from pqbroker.broker.services.tables.cells_here import with_cells_here
from pqbroker.broker.services.tables.finding import find_table
from pqbroker.broker.services.tables.readiness import (
    check_loaded,
    check_no_transaction,
    check_nothing_decided,
    check_sessions_fit,
    check_unmounted,
    wait_for_transactions,
)
from pqbroker.pq.serving.topic import Topic
from pqbroker.storage.bundles.bundle import BundleRefused
from pqbroker.storage.ids import TabletId, new_uuid
from pqbroker.storage.tablets.mounted_attributes import MountedAttributes
from pqbroker.storage.tablets.scheme_state import Resharded, TableRecord, TopicRecord
from pqbroker.tables.mount import MountState
from pqbroker.tables.refusals import TableError

_WEAK = {"commit_ordering": "weak"}
"""Attribute of every static table."""


async def convert(caller: TablesCaller, name: str, *, is_static: bool) -> Topic:
    """Make a table static or dynamic, all of it or nothing; there is nothing to do where it is so already.

    TableError NO_TABLE, WRONG_STATE, TABLET_NOT_OPEN, CANNOT_GLUE.
    """
    topic, _ = find_table(caller, AclOperation.ALTER, name, or_static=True)
    if topic.record.is_static == is_static:
        return topic
    if is_static:
        check_unmounted(topic)
    async with with_cells_here(caller, cells_of(topic)):
        topic, _ = find_table(caller, AclOperation.ALTER, name, or_static=True)  # it may have become another one
        if topic.record.is_static == is_static:
            return topic
        await wait_for_transactions(topic)
        if is_static:
            return await _to_static(caller, topic)
        return await caller.node.cell.current.topics.change(topic.record.name, _to_dynamic)


async def _to_static(caller: TablesCaller, topic: Topic) -> Topic:
    _check_at_rest(topic)
    await check_sessions_fit(topic, range(len(topic.partitions)), caller.node.clock())
    stood, topic_id = _stand(topic), new_uuid()

    def converted(record: TopicRecord, tablet_id: TabletId) -> Resharded:
        _check_at_rest(topic)
        assert record.table is not None
        if _stand(topic) != stood:
            text = f"rows of {record.name} were written or trimmed meanwhile"
            raise TableError("WRONG_STATE", text, "Leave its tablets unmounted, and give the command again.")
        epoch = max(record.epoch_base, *(partition.leader_epoch for partition in topic.partitions))
        after = replace(record.with_table(_static(record.table, epoch)), topic_id=topic_id)
        return Resharded(after, [0], {0: tablet_id})

    glue = Glue(0, range(1, len(topic.partitions)), topic_id)
    try:
        return await caller.node.cell.current.others.glue(topic, glue, converted)
    except BundleRefused as refusal:
        raise TableError("CANNOT_GLUE", str(refusal), "GET /v1/cells shows which cells are open.") from None


def _check_at_rest(topic: Topic) -> None:
    """Raise TableError WRONG_STATE, TABLET_NOT_OPEN unless all rows are known, and none is on its way."""
    check_unmounted(topic)
    check_loaded(topic)
    check_nothing_decided(topic)
    check_no_transaction(topic)


def _static(table: TableRecord, epoch: int) -> TableRecord:
    """Return the table as a static one. Its tablet is frozen: rows are read, and none is written or deleted. It has the
    first one's attributes."""
    mounted = MountedAttributes.collect([{**table.mounted.of_tablet(0), **_WEAK}])
    return replace(
        table, is_static=True, states=(MountState.FROZEN.value,), first_rows=(0,), epoch_base=epoch,
        attributes={**table.attributes, **_WEAK}, mounted=mounted,
    )  # fmt: skip


def _to_dynamic(record: TopicRecord) -> TopicRecord:
    assert record.table is not None
    return replace(record, table=replace(record.table, is_static=False, states=(MountState.UNMOUNTED.value,)))


def _stand(topic: Topic) -> Sequence[tuple[int, int]]:
    """Return the starts and ends of the partitions, which are unchanged while no row comes or goes."""
    return [(partition.start_offset, partition.end_offset) for partition in topic.partitions]
