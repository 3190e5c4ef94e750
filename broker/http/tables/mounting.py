"""Mounting, unmounting, freezing and unfreezing tablets.

    the matrix of D.2 allows it -> on the way: what the state will refuse is refused -> in the cell that was asked for
        -> rows flushed -> stored -> there

A state on its way is in memory alone: after a crash the tablet is in the state before. A flush that is refused leaves
it there too.
"""

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from typing import Any

from pqbroker.broker.apis.access import AclOperation
from pqbroker.broker.apis.refusals import REFUSED
from pqbroker.broker.http.routes import Accepted, Call
from pqbroker.broker.http.tables.attributes import remounted
from pqbroker.broker.http.tables.finding import facts, find_table, states, tablet_range
from pqbroker.pq.serving.topic import Moving, Topic
from pqbroker.storage.bundles.bundle import DEFAULT_BUNDLE, BundleRefused
from pqbroker.storage.ids import SYSTEM_CELL, CellId, TabletId
from pqbroker.storage.tablets.scheme_state import TopicRecord
from pqbroker.storage.uninterrupted import uninterrupted
from pqbroker.tables.mount import ENDS, FLUSHING, MountCommand, MountState, next_state
from pqbroker.tables.refusals import TableError

_log = logging.getLogger(__name__)
_REFUSED: tuple[type[Exception], ...] = (*REFUSED, TableError)
_FLUSHED_AT_ONCE = 200
"""Tablets of one command: of thousands each turn of the loop has some."""
_MOUNTS = frozenset({MountState.MOUNTING, MountState.FROZEN_MOUNTING})


async def mount(call: Call) -> Any:
    """Make the set attributes act in these tablets from now on, as a remount does."""
    return await _command(call, MountCommand.MOUNT_FROZEN if call.body.get("freeze", False) else MountCommand.MOUNT)


async def unmount(call: Call) -> Any:
    """All rows lie in the body when it returns, unless it is forced."""
    return await _command(call, MountCommand.UNMOUNT)


async def freeze(call: Call) -> Any:
    return await _command(call, MountCommand.FREEZE)


async def unfreeze(call: Call) -> Any:
    return await _command(call, MountCommand.UNFREEZE)


async def _command(call: Call, command: MountCommand) -> Any:
    topic, _ = find_table(call, AclOperation.ALTER)
    indexes, cell, present = tablet_range(call, topic), _cell_wanted(call, topic), states(topic)
    targets = {index: next_state(index, present[index], command) for index in indexes}
    begun = {index: state for index, state in targets.items() if state is not present[index]}
    under_way = [topic.moving[index].end for index in indexes if index in topic.moving and index not in begun]
    end = asyncio.get_running_loop().create_future()
    topic.moving.update({index: Moving(state.value, end) for index, state in begun.items()})
    topic.renew()
    reaching = _reach(call, topic, begun, end, {index: cell for index in indexes if cell is not None})
    if not call.query.get("wait", True):
        uninterrupted(_logged(reaching, topic))
        return Accepted(facts(topic))
    await uninterrupted(reaching)
    for other in under_way:
        await asyncio.shield(other)
    return facts(topic)


async def _logged(reaching: Coroutine[Any, Any, None], topic: Topic) -> None:
    """Nobody waits for it: what refuses it is in the log, and the tablets are in the state before."""
    try:
        await reaching
    except _REFUSED as refusal:
        _log.warning("tablets of %s stay %s: %s", topic.record.name, ", ".join(sorted({*topic.states})), refusal)


async def _reach(
    call: Call, topic: Topic, begun: Mapping[int, MountState], end: asyncio.Future[None], cells: Mapping[int, CellId]
) -> None:
    """Bring tablets to their cells, and from states on their way to where these end; end what waits for it."""
    topics, is_forced, before = call.owner.current.topics, call.body.get("force", False), topic.record
    try:
        for index, cell in cells.items():
            await _live_in(call, topic, before.tablets[index], cell)
        if begun:
            flushed = [] if is_forced else [index for index, state in begun.items() if state in FLUSHING]
            for start in range(0, len(flushed), _FLUSHED_AT_ONCE):
                some = flushed[start : start + _FLUSHED_AT_ONCE]
                await asyncio.gather(*(topic.partitions[index].flush() for index in some))
            await topics.change(topic.record.name, lambda record: _arrived(record, before, topic, begun))
    finally:
        for index, state in begun.items():
            if _is_still(topic, index, state):
                del topic.moving[index]
        topic.renew()
        end.set_result(None)


async def _live_in(call: Call, topic: Topic, tablet_id: TabletId, cell: CellId) -> None:
    try:
        await call.owner.current.others.move_tablet(topic, tablet_id, cell)
    except BundleRefused as refusal:
        raise TableError("CANNOT_MOVE", str(refusal), "GET /v1/cells shows which cells are open.") from None


def _arrived(
    record: TopicRecord, before: TopicRecord, topic: Topic, begun: Mapping[int, MountState]
) -> TopicRecord:
    """The record with the states that its tablets have reached; a later command may have overtaken some."""
    assert record.table is not None
    if record.tablets[: len(before.tablets)] != before.tablets:
        text = f"{topic.record.name} was resharded meanwhile: its tablets have other numbers"
        raise TableError("WRONG_STATE", text, "List its tablets, and give the command again.")
    arrived = {index: state for index, state in begun.items() if _is_still(topic, index, state)}
    ends = {index: ENDS[state].value for index, state in arrived.items()}
    reached = tuple(ends.get(index, state) for index, state in enumerate(record.table.states))
    record = replace(record, table=replace(record.table, states=reached))
    mounted = {index for index, state in arrived.items() if state in _MOUNTS}
    return remounted(record, mounted) if mounted else record


def _is_still(topic: Topic, index: int, state: MountState) -> bool:
    moving = topic.moving.get(index)
    return moving is not None and moving.state == state.value


def _cell_wanted(call: Call, topic: Topic) -> CellId | None:
    """The cell that tablets are to be mounted in; None: where each of them lives."""
    wanted = call.body.get("cell_id")
    if wanted is None:
        return None
    opened = call.owner.current
    bundles = {str(SYSTEM_CELL): DEFAULT_BUNDLE} | {str(one): cell.bundle for one, cell in opened.hive.cells.items()}
    bundle = topic.config.pq_bundle
    if bundles.get(wanted) != bundle:
        known = ", ".join(sorted((cell for cell, name in bundles.items() if name == bundle), key=int)) or "none"
        text = f"cell_id is {wanted[:100]!r}, and that is no cell of the table's bundle {bundle!r}"
        raise TableError("NO_CELL", text, f"Give one of its cells ({known}), or leave it out.")
    return CellId(int(wanted))
