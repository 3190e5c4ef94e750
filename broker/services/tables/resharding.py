"""Resharding tables: one commit of the scheme gives a table other tablets. Rows stay where they are, but for those of
tablets that are glued, which are copied before."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.services.cells.tablet_gluing import Glue
from pqbroker.broker.services.leaders import cells_of
from pqbroker.broker.services.tables.callers import TablesCaller
from pqbroker.broker.services.tables.cells_here import with_cells_here
from pqbroker.broker.services.tables.finding import ALL_TABLETS, TabletRange, find_table, states
from pqbroker.broker.services.tables.readiness import (
    check_loaded,
    check_no_transaction,
    check_nothing_decided,
    check_sessions_fit,
    wait_for_transactions,
)
from pqbroker.pq.log.head import first_kept
from pqbroker.pq.serving.topic import Topic
from pqbroker.storage.bundles.bundle import BundleRefused
from pqbroker.storage.ids import TabletId
from pqbroker.storage.tablets.scheme_state import Resharded, TableRecord, TopicRecord
from pqbroker.storage.uninterrupted import uninterrupted
from pqbroker.tables.mount import MountState
from pqbroker.tables.refusals import TableError
from pqbroker.tables.resharding import Reshard, affected, plan_reshard


@dataclass(frozen=True, slots=True)
class ReshardChange:
    """`tablets` become `tablet_count`; `trimmed_row_counts`: where each new tablet's rows begin, 0 without them."""

    tablet_count: int
    tablets: TabletRange = ALL_TABLETS
    trimmed_row_counts: Sequence[int] | None = None


async def reshard(caller: TablesCaller, name: str, change: ReshardChange) -> Topic:
    """Replace tablets, all of them or none: the change is durable with the scheme's commit.

    KafkaError as `find_topic`; TableError NO_TABLE, NO_TABLET, WRONG_STATE, TABLET_NOT_OPEN, CANNOT_GLUE;
    TooManyPartitions.
    """
    topic, _ = find_table(caller, AclOperation.ALTER, name)
    if not _unmounted_plan(change, topic).is_change:
        return topic
    async with with_cells_here(caller, cells_of(topic)):
        topic, _ = find_table(caller, AclOperation.ALTER, name)  # it may have become another one
        return await _reshard_here(caller, topic, change)


async def _reshard_here(caller: TablesCaller, topic: Topic, change: ReshardChange) -> Topic:
    await wait_for_transactions(topic)
    topics, plan = caller.node.cell.current.topics, _plan(change, topic)
    if not plan.is_change:
        return topic

    def resharded(record: TopicRecord) -> Resharded:
        plan = _plan(change, topic)
        if _ends(topic, plan) != ends:
            text = f"rows of {topic.record.name} were written or trimmed meanwhile"
            raise TableError("WRONG_STATE", text, "Leave its tablets unmounted, and give the command again.")
        topics.check_room(len(plan.origins) - record.partitions)
        epoch = max(record.epoch_base, *(partition.leader_epoch for partition in topic.partitions))
        assert record.table is not None
        return Resharded(record.with_table(_table(record.table, plan, epoch)), plan.origins)

    await check_sessions_fit(topic, (plan.survivor, *plan.removed) if plan.removed else (), caller.node.clock())
    ends = _ends(topic, plan)
    if all(_has_nothing(topic, index) for index in plan.removed):
        return await uninterrupted(topics.reshard(topic.record.name, resharded))

    def glued(record: TopicRecord, tablet_id: TabletId) -> Resharded:
        return resharded(record)._replace(replaced={plan.survivor: tablet_id})

    try:
        return await caller.node.cell.current.others.glue(topic, Glue(plan.survivor, plan.removed), glued)
    except BundleRefused as refusal:
        raise TableError("CANNOT_GLUE", str(refusal), "GET /v1/cells shows which cells are open.") from None


def _unmounted_plan(change: ReshardChange, topic: Topic) -> Reshard:
    """Return what the table becomes. TableError for an impossible change, or one of tablets that are mounted."""
    indexes, present = change.tablets.of(topic), len(topic.partitions)
    first, last = indexes[0], indexes[-1]
    plan = plan_reshard(present, first, last, change.tablet_count, change.trimmed_row_counts)
    _check_unmounted(topic, affected(plan, present, first, last))
    return plan


def _plan(change: ReshardChange, topic: Topic) -> Reshard:
    """Return what the table becomes, of tablets at rest whose rows are all known. TableError."""
    plan = _unmounted_plan(change, topic)
    check_loaded(topic)
    check_nothing_decided(topic)
    check_no_transaction(topic)
    _check_whole_chunks(topic, plan.removed)
    return plan


def _table(table: TableRecord, plan: Reshard, epoch: int) -> TableRecord:
    """The new tablets are unmounted; until they are mounted, what is set stands for what acts. `epoch`: the greatest
    leader epoch before; every generation is above 0."""
    new = iter(plan.first_rows)
    first_rows = tuple(next(new) if origin is None else table.first_rows[origin] for origin in plan.origins)
    unmounted = MountState.UNMOUNTED.value
    present = tuple(unmounted if origin is None else table.states[origin] for origin in plan.origins)
    mounted = table.mounted.rearranged(plan.origins, table.attributes)
    return replace(table, mounted=mounted, states=present, first_rows=first_rows, epoch_base=epoch)


def _check_unmounted(topic: Topic, indexes: Sequence[int]) -> None:
    present = states(topic)
    for index in indexes:
        if present[index] is not MountState.UNMOUNTED:
            text = f"tablet {index} is {present[index].value}, and reshard changes it or its number"
            raise TableError("WRONG_STATE", text, f"Unmount the tablets {indexes[0]} to {indexes[-1]} first.")


def _check_whole_chunks(topic: Topic, removed: Sequence[int]) -> None:
    """Check that trimmed rows of a tablet that is glued are gone: its rows are glued by whole chunks (E.9)."""
    for index in removed:
        log = topic.partitions[index].state
        if first_kept(log.bodies, log.head, 0) < log.start_offset < log.end_offset:
            text = f"some chunks of tablet {index} are not fully trimmed: row {log.start_offset} stands inside one"
            raise TableError("CANNOT_GLUE", text, "Mount it and trim it to the end of a chunk, or not at all.")


def _has_nothing(topic: Topic, index: int) -> bool:
    """Return True if a tablet has neither rows, nor sessions, nor outcomes of transactions: batches and commits of
    these may be sent again after their rows are trimmed."""
    partition = topic.partitions[index]
    known = partition.known_transactions
    has_rows = partition.start_offset != partition.end_offset
    return not (has_rows or len(partition.state.sessions) or (known is not None and known.decisions))


def _ends(topic: Topic, plan: Reshard) -> Sequence[tuple[int, int, int]]:
    """Return the tablets to be glued, and their first and last rows: equal while the tablets are as they were."""
    return [
        (topic.record.tablets[index], topic.partitions[index].start_offset, topic.partitions[index].end_offset)
        for index in (plan.survivor, *plan.removed)
    ]
