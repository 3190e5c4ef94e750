"""Python's collector of cycles, kept from long walks: it stops the whole process for as long as it looks.

pass      looks at                                      when
young     what is new; Python's own, some milliseconds  as Python decides
deep      everything, 0.2 s for ten thousand partitions what outlived the passes has grown by half, and all is quiet
What a full pass of Python's leaves is set aside (frozen), so that the next one has only what came since: the time of a
pass does not grow with what the broker holds. A cycle that becomes garbage later is found by the deep pass.
"""

import asyncio
import gc
from collections.abc import Callable
from typing import Any, Final

LOOK_S: Final = 60.0
QUIET_S: Final = 1.0
GROWTH_MIN: Final = 500_000
"""Objects. Fewer are no reason for a deep pass."""
PATIENCE: Final = 600
"""How often a deep pass waits for a quiet moment before it comes all the same."""
_THRESHOLDS = (700, 10, 4)
"""Python's own, but for the last: a full pass sees 40 000 new objects at most, 20 ms, and not 80 000."""
_OLDEST = 2


def collect_deeply() -> None:
    """Look at everything, and set aside what lives."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def set_aside_what_lives() -> None:
    """From now on; what lives now is set aside at once."""
    collect_deeply()
    gc.set_threshold(*_THRESHOLDS)
    if _set_aside not in gc.callbacks:
        gc.callbacks.append(_set_aside)


async def collect_at_quiet_moments(bytes_in: Callable[[], int]) -> None:
    """Deep passes, for ever; `bytes_in` grows with every request."""
    known = gc.get_freeze_count()
    while True:
        await asyncio.sleep(LOOK_S)
        if gc.get_freeze_count() - known < max(GROWTH_MIN, known // 2):
            continue
        for _ in range(PATIENCE):
            before = bytes_in()
            await asyncio.sleep(QUIET_S)
            if bytes_in() == before:
                break
        collect_deeply()
        known = gc.get_freeze_count()


def _set_aside(phase: str, info: dict[str, Any]) -> None:
    if phase == "stop" and info["generation"] == _OLDEST:
        gc.freeze()
