"""Partitions of ordered tables that other nodes run, when their tablets change their mount state.

    unmount, freeze   LEAVE (no rows are taken, all lie in the body) -> the scheme has the state -> SETTLE
    mount, unfreeze   the scheme has the state -> SETTLE

The first node asks. A node that is not reached keeps tablets from an unmount or a freeze that writes rows out; what the
scheme has, a node follows by itself as soon as it can.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from pqbroker.broker.ground.refusals import translate
from pqbroker.broker.services.leaders import cells_of
from pqbroker.broker.services.tables.callers import TablesCaller
from pqbroker.broker.services.tables.work_away import ask_for_work
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.topic import Moving, Topic
from pqbroker.pq.serving.topics import Topics
from pqbroker.protocol.errors import KafkaError
from pqbroker.storage.engine import CommitRefused
from pqbroker.storage.ids import TabletId
from pqbroker.tables.mount import FLUSHING, MountState
from pqbroker.tables.paths import table_path
from pqbroker.tables.refusals import TableError

_log = logging.getLogger(__name__)
FLUSHED_AT_ONCE: Final = 200
"""Tablets of one command: of thousands each turn of the loop has some."""


class PartitionWork(StrEnum):
    """Work on partitions of an ordered table that the node does which runs them."""

    LEAVE = "leave"
    """Take no rows any more, and write out those that are in memory."""
    SETTLE = "settle"
    """Be in the state that the scheme has."""


AwayTablets = Mapping[int, Mapping[int, TabletId]]
"""Tablets of a table by their indexes, by the numbers of the nodes that run them."""


async def flush(partitions: Sequence[PartitionServer]) -> None:
    """Have all rows of partitions of this node lie in the body. CommitRefused, ShardLost, KafkaError."""
    for start in range(0, len(partitions), FLUSHED_AT_ONCE):
        await asyncio.gather(*(partition.flush() for partition in partitions[start : start + FLUSHED_AT_ONCE]))


def tablets_away(caller: TablesCaller, topic: Topic, indexes: Iterable[int]) -> AwayTablets:
    """Return those of a table's tablets that other nodes run; none at a node that is not the first one."""
    if caller.node.others() is None:
        return {}
    found: dict[int, dict[int, TabletId]] = {}
    for index in indexes:
        node = caller.node.leaders.other_node(topic.record.cell_of(index))
        if node is not None:
            found.setdefault(node, {})[index] = topic.record.tablets[index]
    return found


def check_all_here(caller: TablesCaller, topic: Topic) -> None:
    """TableError TABLETS_OF_OTHER_NODES where other nodes run tablets of a topic: their rows are not known here."""
    if caller.node.others() is None:
        return
    found = ((cell, caller.node.leaders.other_node(cell)) for cell in sorted(cells_of(topic)))
    away = {cell: node for cell, node in found if node is not None}
    if away:
        nodes = " and ".join(f"node {node}" for node in sorted({*away.values()}))
        text = f"tablets of {table_path(topic.record.name)} are at {nodes}, and this needs all at the first node"
        moves = ", ".join(f"`pqbroker cell move {cell} --node 1`" for cell in away)
        raise TableError("TABLETS_OF_OTHER_NODES", text, f"Move their cells there: {moves}.")


async def leave_away(
    caller: TablesCaller, topic: Topic, away: AwayTablets, states: Mapping[int, MountState]
) -> None:
    """Have other nodes write out the rows of tablets whose states on the way say so. TableError, CommitRefused: some
    may take no rows, until they are settled."""
    for node, tablets in sorted(away.items()):
        leaving = {index: tablet for index, tablet in tablets.items() if states[index] in FLUSHING}
        if leaving:
            given = {str(tablet): states[index].value for index, tablet in leaving.items()}
            await _ask(caller, node, topic, PartitionWork.LEAVE, given)


async def settle_away(caller: TablesCaller, topic: Topic, away: AwayTablets) -> None:
    """Have other nodes see tablets in the states that the scheme has now; one that does not answer does so when it
    can."""

    async def settle(node: int, tablets: Iterable[TabletId]) -> None:
        try:
            await _ask(caller, node, topic, PartitionWork.SETTLE, {str(tablet): "" for tablet in tablets})
        except (TableError, CommitRefused) as refusal:
            _log.warning("tablets of %s follow later at node %d: %s", topic.record.name, node, refusal)

    await asyncio.gather(*(settle(node, tablets.values()) for node, tablets in away.items()))


async def _ask(
    caller: TablesCaller, node: int, topic: Topic, work: PartitionWork, tablets: Mapping[str, str]
) -> None:
    asked = {"work": work.value, "topic": topic.record.topic_id.hex(), "tablets": tablets}
    await ask_for_work(caller, node, asked)


async def work_on_partitions(topics: Topics, asked: Mapping[str, Any]) -> None:
    """Do at this node what the first one asks for. TableError, CommitRefused, ShardLost; LookupError, TypeError,
    ValueError for what is no work of this version."""
    work, topic = PartitionWork(asked["work"]), topics.by_id(bytes.fromhex(asked["topic"]))
    if topic is None or topic.record.table is None:
        raise TableError("NO_TABLE", "the table was deleted meanwhile", "GET /v1/tables lists the tables.")
    given = {_index_of(topic, int(tablet)): state for tablet, state in asked["tablets"].items()}
    if work is PartitionWork.SETTLE:
        _settle(topic, given)
        return
    end = asyncio.get_running_loop().create_future()
    topic.moving.update({index: Moving(MountState(state).value, end) for index, state in given.items()})
    topic.renew()
    try:
        await flush([topic.partitions[index] for index in given])
    except KafkaError as error:
        _, text = translate(error)
        raise CommitRefused(text) from None


def follow_scheme(topics: Topics) -> None:
    """Have partitions on their way to a state be in the one that the scheme has: the first node is gone."""
    for name in [*topics.names()]:
        topic = topics.get(name)
        if topic is not None and topic.moving:
            _settle(topic, [*topic.moving])


def _settle(topic: Topic, indexes: Iterable[int]) -> None:
    for index in indexes:
        topic.moving.pop(index, None)
    topic.renew()


def _index_of(topic: Topic, tablet: int) -> int:
    """TableError WRONG_STATE: the table was resharded."""
    try:
        return topic.record.tablets.index(TabletId(tablet))
    except ValueError:
        text = f"{topic.record.name} was resharded meanwhile: it has no tablet {tablet}"
        raise TableError("WRONG_STATE", text, "List its tablets, and give the command again.") from None
