"""Unreadable parts of an open cell. While there are any, nothing of the cell is removed, moved or emptied.

    starting --release--> sound --found--> quarantined
        '----------------found-----------------^       no way back: the next start looks again

What is dead is known from rows; where some cannot be read, it may be needed by them, or to get them back.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType

from pqbroker.storage.engine import CommitRefused

_log = logging.getLogger(__name__)
DAMAGES_MAX = 1000
"""Named one by one; more are left to `pqbroker doctor`."""
_NOTHING: Mapping[str, str] = MappingProxyType({})
QUARANTINE_CURE = (
    "nothing is removed or compacted in this cell until the broker is started on a whole directory: stop it, see what"
    " `pqbroker doctor` says, and restore the directory from a copy"
)


HELD_CURE = "see that its data is as it should be, then stop the broker and run `pqbroker doctor --salvage --accept`"


class Quarantined(CommitRefused):
    """Refused, since it would remove something from a cell of which something cannot be read."""


class Quarantine:
    """The quarantine of one opening of a cell. Created on the loop; every thread may call `found` and read `is_sound`.

    `earlier`: what openings before this one found in this process. `hold` is called at the first damage behind
    `release`, by the thread that found it. `is_told`: in the log.
    """

    def __init__(
        self, earlier: Mapping[str, str] = _NOTHING, hold: Callable[[], None] | None = None, *, is_told: bool = True
    ) -> None:
        self.is_sound = False
        """True if dead bytes may be removed."""
        self.is_held = False
        """A salvage gave something up that nobody has accepted: nothing is moved away either, and retention waits."""
        self._cause = "it is closed"
        """Reason why nothing may be removed, where no damage is."""
        self._loop = asyncio.get_running_loop()
        self._decided = asyncio.Event()
        self._lock = threading.Lock()
        self._damages = dict(earlier)
        self._hold = hold
        self._is_told = is_told

    @property
    def damages(self) -> Mapping[str, str]:
        """Return what is wrong, by place."""
        with self._lock:
            return dict(self._damages)

    @property
    def is_damaged(self) -> bool:
        return bool(self._damages)

    def release(self) -> bool:
        """All that a start reads was read: whether it was whole, and what is dead may be removed from now on."""
        with self._lock:
            self.is_sound = not self._damages
        self._decided.set()
        return self.is_sound

    def end(self, cause: str = "it is closed") -> None:
        """Refuse callers that wait for the release: the cell is closed, lost, or open for reading only, by `cause`."""
        self._cause = cause
        self._decided.set()

    def found(self, place: str, cause: str) -> None:
        """Note something unreadable; `place` names it."""
        with self._lock:
            if place in self._damages or len(self._damages) == DAMAGES_MAX:
                return
            self._damages[place] = cause
            was_sound, self.is_sound = self.is_sound, False
        if self._is_told:
            _log.error("%s cannot be read: %s; %s", place, cause, QUARANTINE_CURE)
        if was_sound and self._hold is not None:
            self._hold()
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._decided.set)

    def check_held(self) -> None:
        """Raise Quarantined while a salvage of the cell is not accepted."""
        if self.is_held:
            raise Quarantined(f"the cell was salvaged, so nothing leaves it: {HELD_CURE}")

    async def check(self) -> None:
        """Return when what is dead may be removed, once the start is over. Raises Quarantined when it may not."""
        await self._decided.wait()
        if not self.is_sound:
            place = next(iter(self.damages), "")
            cause = f"a part of it cannot be read: {place}" if place else self._cause
            raise Quarantined(f"nothing is removed from the cell, since {cause}")
