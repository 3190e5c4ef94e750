"""Tablets that run in cells, each with its generation, as nodes name them to each other."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from pqbroker.broker.peers.peer_frames import LinkBroken
from pqbroker.broker.services.cells.cell_owner import OpenCell
from pqbroker.storage.ids import SYSTEM_CELL, CellId, TabletId

RUNNING_LOOK_S: Final = 0.1
"""Seconds between two looks for tablets that run now, or do not any more: many may change one after the other."""
_QUIET_S: Final = 1.0
"""Seconds after which a node looks though nothing has called for it."""

CellTablets = Mapping[CellId, Mapping[TabletId, int]]


async def until_changed(changed: asyncio.Event) -> None:
    """Return when tablets may have begun to run somewhere, or ceased to."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_QUIET_S):
            await changed.wait()
    changed.clear()


def running_tablets(opened: OpenCell, *, with_system: bool) -> dict[CellId, dict[TabletId, int]]:
    """Return the tablets of objects that run in the open cells of this node, by cell; the system cell's if asked."""
    found = {}
    for cell, host in opened.cells.hosts():
        if (cell != SYSTEM_CELL or with_system) and not host.cell.lost.done():
            records = host.cell.tablets().items()
            found[cell] = {
                tablet: record.generation for tablet, record in records if host.tablet(tablet) is not None
            }
    return found


def encode_tablets(cells: CellTablets) -> dict[str, dict[str, int]]:
    """Return them as JSON has them."""
    return {
        str(cell): {str(tablet): generation for tablet, generation in tablets.items()}
        for cell, tablets in cells.items()
    }


def decode_tablets(told: Any) -> dict[CellId, dict[TabletId, int]]:
    """Read what another node said. LinkBroken for what is none."""
    try:
        found = {
            CellId(int(cell)): {TabletId(int(tablet)): int(generation) for tablet, generation in tablets.items()}
            for cell, tablets in told.items()
        }
    except (AttributeError, TypeError, ValueError) as bad:
        raise LinkBroken(f"a node named no tablets: {bad}") from None
    if any(cell < SYSTEM_CELL for cell in found):
        raise LinkBroken("a node named a cell of a negative number")
    return found
