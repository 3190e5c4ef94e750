"""Tables become static and dynamic again (E.10).

    dynamic, unmounted -> static: all rows of all tablets, by whole chunks, in one new tablet; another topic id
    static             -> dynamic, unmounted, with this one tablet

Rows that were trimmed inside a chunk are there again. One commit of the scheme decides each change.
"""

from collections.abc import Sequence
from dataclasses import replace

from pqbroker.broker.cells.tablet_gluing import Glue
from pqbroker.broker.http.routes import Call
from pqbroker.broker.http.tables.finding import states
from pqbroker.broker.http.tables.session_room import check_sessions_fit
from pqbroker.broker.http.tables.staging import check_nothing_decided
from pqbroker.pq.serving.topic import Topic
from pqbroker.storage.bundles.bundle import BundleRefused
from pqbroker.storage.ids import TabletId, new_uuid
from pqbroker.storage.tablets.mounted_attributes import MountedAttributes
from pqbroker.storage.tablets.scheme_state import Resharded, TableRecord, TopicRecord
from pqbroker.tables.mount import MountState
from pqbroker.tables.refusals import TableError

_WEAK = {"commit_ordering": "weak"}
"""What every static table has."""


async def convert(call: Call, topic: Topic, *, is_static: bool) -> Topic:
    """The state before, or the state after; nothing to do where it is so already. TableError."""
    if topic.record.is_static == is_static:
        return topic
    if is_static:
        return await _to_static(call, topic)
    return await call.owner.current.topics.change(topic.record.name, _to_dynamic)


def check_unmounted(topic: Topic) -> None:
    """Whether all tablets are; TableError WRONG_STATE."""
    mounted = [index for index, state in enumerate(states(topic)) if state is not MountState.UNMOUNTED]
    if mounted and not topic.record.is_static:
        text = f"tablet {mounted[0]} is {topic.states[mounted[0]]}"
        raise TableError("WRONG_STATE", text, "Unmount the whole table first.")


async def _to_static(call: Call, topic: Topic) -> Topic:
    check_unmounted(topic)
    check_nothing_decided(topic)
    await check_sessions_fit(topic, range(len(topic.partitions)), call.node.clock())
    stood, topic_id = _stand(topic), new_uuid()

    def converted(record: TopicRecord, tablet_id: TabletId) -> Resharded:
        check_unmounted(topic)
        assert record.table is not None
        if _stand(topic) != stood:
            text = f"rows of {record.name} were written or trimmed meanwhile"
            raise TableError("WRONG_STATE", text, "Leave its tablets unmounted, and give the command again.")
        epoch = max(partition.leader_epoch for partition in topic.partitions)
        after = replace(record.with_table(_static(record.table, epoch)), topic_id=topic_id)
        return Resharded(after, [0], {0: tablet_id})

    glue = Glue(0, range(1, len(topic.partitions)), topic_id)
    try:
        return await call.owner.current.others.glue(topic, glue, converted)
    except BundleRefused as refusal:
        raise TableError("CANNOT_GLUE", str(refusal), "GET /v1/cells shows which cells are open.") from None


def _static(table: TableRecord, epoch: int) -> TableRecord:
    """Its tablet is frozen: rows are read, and none is written or deleted. It has the first one's attributes."""
    mounted = MountedAttributes.collect([{**table.mounted.of_tablet(0), **_WEAK}])
    return replace(
        table, is_static=True, states=(MountState.FROZEN.value,), first_rows=(0,), epoch_base=epoch,
        attributes={**table.attributes, **_WEAK}, mounted=mounted,
    )  # fmt: skip


def _to_dynamic(record: TopicRecord) -> TopicRecord:
    assert record.table is not None
    return replace(record, table=replace(record.table, is_static=False, states=(MountState.UNMOUNTED.value,)))


def _stand(topic: Topic) -> Sequence[tuple[int, int]]:
    """What says that no row came or went."""
    return [(partition.start_offset, partition.end_offset) for partition in topic.partitions]
