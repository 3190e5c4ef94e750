"""Partitions of ordered tables that other nodes run, at the first one: what is asked of these nodes when tablets change
their mount state.

    unmount, freeze   LEAVE (no rows are taken, all lie in the body) -> the scheme has the state -> SETTLE
    mount, unfreeze   the scheme has the state -> SETTLE

A node that is not reached keeps tablets from an unmount or a freeze that writes rows out; what the scheme has, a node
follows by itself as soon as it can.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from enum import StrEnum

from pqbroker.broker.services.tables.callers import TablesCaller
from pqbroker.broker.services.tables.work_away import ask_for_work, at_other_nodes
from pqbroker.pq.serving.topic import Topic
from pqbroker.storage.engine import CommitRefused
from pqbroker.storage.ids import TabletId
from pqbroker.tables.mount import FLUSHING, MountState
from pqbroker.tables.refusals import TableError

_log = logging.getLogger(__name__)


class PartitionWork(StrEnum):
    """Work on partitions of an ordered table that the node does which runs them."""

    LEAVE = "leave"
    """Take no rows any more, and write out those that are in memory."""
    SETTLE = "settle"
    """Be in the state that the scheme has."""


AwayTablets = Mapping[int, Mapping[int, TabletId]]
"""Tablets of a table by their indexes, by the numbers of the nodes that run them."""


def tablets_away(caller: TablesCaller, topic: Topic, indexes: Iterable[int]) -> AwayTablets:
    """Return those of a table's tablets that other nodes run; none at a node that is not the first one."""
    found: dict[int, dict[int, TabletId]] = {}
    for node, index in at_other_nodes(caller, topic.record, indexes):
        found.setdefault(node, {})[index] = topic.record.tablets[index]
    return found


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
