"""Opening of every cell of a node: for writing; where its disk has no room for that, for reading only.

A cell that is open for reading only has its tablets, and serves what is stored. It takes no write, so nothing of a
group can be kept: the system cell has no coordinators then. Once there is room it is lost with RoomAgain, and opened
again.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from pqbroker.storage.engine import WANTS_ROOM, Engine, Opener, RoomAgain, ShardLost

_log = logging.getLogger(__name__)
T = TypeVar("T")


async def open_or_read(engine: Engine, open_by: Callable[[Opener], Awaitable[T]]) -> T:
    """Return what `open_by` makes of the engine or, where that finds no room, of what opens it for reading only.

    Raises as `open_by`.
    """
    try:
        return await open_by(engine)
    except WANTS_ROOM as cause:
        opener = engine.for_reading(str(cause))
        if opener is None:
            raise
        _log.error("%s; it is opened for reading only until there is room", cause)
    return await open_by(opener)


def level_of(loss: ShardLost) -> int:
    """Return the level at which a loss is logged: room on the disk is no failure."""
    return logging.WARNING if isinstance(loss, RoomAgain) else logging.ERROR
