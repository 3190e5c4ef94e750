"""Mounting, unmounting, freezing and unfreezing tablets.

    the matrix of D.2 allows it -> on the way: what the state will refuse is refused -> in the cell that was asked for
        -> rows flushed -> stored -> there

A state on its way is in memory alone: after a crash the tablet is in the state before. A flush that is refused leaves
it there too.
"""

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.ground.refusals import REFUSED
from pqbroker.broker.services.tables.attributes import remounted
from pqbroker.broker.services.tables.callers import TablesCaller
from pqbroker.broker.services.tables.finding import ALL_TABLETS, TabletRange, find_table, states
from pqbroker.broker.services.tables.partitions_away import AwayTablets, leave_away, settle_away, tablets_away
from pqbroker.broker.services.tables.partitions_here import flush
from pqbroker.pq.serving.topic import Moving, Topic
from pqbroker.storage.bundles.bundle import DEFAULT_BUNDLE, BundleRefused
from pqbroker.storage.bundles.hive import Hive
from pqbroker.storage.ids import SYSTEM_CELL, CellId, TabletId
from pqbroker.storage.tablets.scheme_state import TopicRecord
from pqbroker.storage.uninterrupted import uninterrupted
from pqbroker.tables.mount import ENDS, FLUSHING, MountCommand, MountState, next_state
from pqbroker.tables.refusals import TableError

_log = logging.getLogger(__name__)
_REFUSED: tuple[type[Exception], ...] = (*REFUSED, TableError)
_MOUNTS = frozenset({MountState.MOUNTING, MountState.FROZEN_MOUNTING})


@dataclass(frozen=True, slots=True)
class MountChange:
    """A command to a table's tablets. `cell`: where they are to be mounted; None: where each of them lives.
    `is_forced`: rows that were not written out may stay so."""

    command: MountCommand
    tablets: TabletRange = ALL_TABLETS
    cell: str | None = None
    is_forced: bool = False


async def change_state(caller: TablesCaller, name: str, change: MountChange, *, is_awaited: bool = True) -> Topic:
    """Mount, unmount, freeze or unfreeze tablets; return when they are in their state, or with `is_awaited` false as
    soon as they are on their way. A mount makes the set attributes act in these tablets, as a remount does; after an
    unmount that was not forced all rows lie in the body.

    KafkaError as `find_topic`; TableError NO_TABLE, NO_TABLET, NO_CELL, WRONG_STATE, CANNOT_MOVE, NODE_SILENT.
    """
    topic, _ = find_table(caller, AclOperation.ALTER, name)
    hive = caller.node.cell.current.hive
    indexes, cell = change.tablets.of(topic), cell_wanted(hive, topic.config.pq_bundle, change.cell)
    present = states(topic)
    targets = {index: next_state(index, present[index], change.command) for index in indexes}
    begun = {index: state for index, state in targets.items() if state is not present[index]}
    under_way = [topic.moving[index].end for index in indexes if index in topic.moving and index not in begun]
    end = asyncio.get_running_loop().create_future()
    moving = {state: Moving(state.value, end) for state in {*begun.values()}}  # one for all: there may be thousands
    topic.moving.update({index: moving[state] for index, state in begun.items()})
    topic.renew()
    way = _Way(begun, end, {index: cell for index in indexes if cell is not None}, change.is_forced)
    reaching = _reach(caller, topic, way)
    if not is_awaited:
        uninterrupted(_logged(reaching, topic))
        return topic
    await uninterrupted(reaching)
    for other in under_way:
        await asyncio.shield(other)
    return topic


@dataclass(frozen=True, slots=True)
class _Way:
    """Tablets on their way: their states meanwhile, what resolves at the end, and the cells they go to."""

    begun: Mapping[int, MountState]
    end: asyncio.Future[None]
    cells: Mapping[int, CellId]
    is_forced: bool


async def _logged(reaching: Coroutine[Any, Any, None], topic: Topic) -> None:
    """Run a change that no caller waits for: a refusal is logged, and the tablets keep the state before."""
    try:
        await reaching
    except _REFUSED as refusal:
        _log.warning("tablets of %s stay %s: %s", topic.record.name, ", ".join(sorted({*topic.states})), refusal)


async def _reach(caller: TablesCaller, topic: Topic, way: _Way) -> None:
    """Bring tablets to their cells, and from states on their way to where these end; end what waits for it."""
    topics, begun, before = caller.node.cell.current.topics, way.begun, topic.record
    partitions = list(topic.partitions)  # a reshard may renumber them
    away: AwayTablets = {}
    try:
        for index, cell in way.cells.items():
            await _live_in(caller, topic, before.tablets[index], cell)
        away = tablets_away(caller, topic, begun)
        if begun:
            leaving = [] if way.is_forced else [index for index, state in begun.items() if state in FLUSHING]
            if leaving:
                await leave_away(caller, topic, away, begun)
            there = {index for tablets in away.values() for index in tablets}
            await flush([partitions[index] for index in leaving if index not in there])
            settle = partial(_settle, topic, begun)
            await topics.change(topic.record.name, lambda record: _arrived(record, before, topic, begun), settle)
    except BaseException:
        _settle(topic, begun)
        topic.renew()
        raise
    finally:
        await settle_away(caller, topic, away)
        way.end.set_result(None)


def _settle(topic: Topic, begun: Mapping[int, MountState]) -> None:
    """Have the tablets be in the states that are stored, but for those that a later command has overtaken."""
    for index, state in begun.items():
        if _is_still(topic, index, state):
            del topic.moving[index]


async def _live_in(caller: TablesCaller, topic: Topic, tablet_id: TabletId, cell: CellId) -> None:
    try:
        opened = caller.node.cell.current
        await opened.others.move_tablet(opened.topics.owner_of(topic), tablet_id, cell)
    except BundleRefused as refusal:
        raise TableError("CANNOT_MOVE", str(refusal), "GET /v1/cells shows which cells are open.") from None


def _arrived(record: TopicRecord, before: TopicRecord, topic: Topic, begun: Mapping[int, MountState]) -> TopicRecord:
    """The record with the states that its tablets have reached; a later command may have overtaken some."""
    assert record.table is not None
    if record.tablets[: len(before.tablets)] != before.tablets:
        text = f"{topic.record.name} was resharded meanwhile: its tablets have other numbers"
        raise TableError("WRONG_STATE", text, "List its tablets, and give the command again.")
    arrived = {index: state for index, state in begun.items() if _is_still(topic, index, state)}
    reached = [*record.table.states]
    for index, state in arrived.items():
        reached[index] = ENDS[state].value
    record = replace(record, table=replace(record.table, states=tuple(reached)))
    mounted = {index for index, state in arrived.items() if state in _MOUNTS}
    return remounted(record, mounted) if mounted else record


def _is_still(topic: Topic, index: int, state: MountState) -> bool:
    moving = topic.moving.get(index)
    return moving is not None and moving.state == state.value


def cell_wanted(hive: Hive, bundle: str, wanted: str | None) -> CellId | None:
    """Return the cell of a table's bundle that a command names; None: it names none. TableError NO_CELL."""
    if wanted is None:
        return None
    bundles = {str(SYSTEM_CELL): DEFAULT_BUNDLE} | {str(one): cell.bundle for one, cell in hive.cells.items()}
    if bundles.get(wanted) != bundle:
        known = ", ".join(sorted((cell for cell, name in bundles.items() if name == bundle), key=int)) or "none"
        text = f"cell_id is {wanted[:100]!r}, and that is no cell of the table's bundle {bundle!r}"
        raise TableError("NO_CELL", text, f"Give one of its cells ({known}), or leave it out.")
    return CellId(int(wanted))
