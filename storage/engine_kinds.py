"""Kinds of engines: which one has the data at a place, and what can be done with that data beside opening it.

A task that a kind does not have, it refuses with EngineCannot, which says what to do instead.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.storage import MAIN_POOL, parse_pools
from pqbroker.storage.disk.disk_kind import DiskKind
from pqbroker.storage.engine import Engine, EngineCannot, EngineTask, Shard
from pqbroker.storage.pool_status import Thresholds

if TYPE_CHECKING:
    from pqbroker.storage.disk.offline import OfflineCell

MEMORY = ":memory:"
Pools = Mapping[str, Path]
"""Directories of pools by name."""


class EngineKind(Protocol):
    """One kind of engine. What it does not define of its own it cannot do, and what is found here refuses it."""

    name: str
    cure: str
    """The way that remains where the kind cannot do a task."""

    def owns(self, data: str) -> bool:
        """Return True if the data at this place is, or would be, of this kind."""

    def engine(self, data: str, settings: BrokerSettings) -> Engine:
        """Return the engine of the data at this place. ConfigError."""

    async def preview(
        self, data: str, settings: BrokerSettings, check: Callable[[Shard], Awaitable[None]]
    ) -> None:
        """Look at what a start would find, `check` included, and change nothing; EngineError where no start can serve
        it. A kind without such a look lets the start find out."""

    def look_into(self, path: Path, pools: Pools) -> "AbstractContextManager[OfflineCell]":
        """Return a stopped cell, for the doctor to verify. EngineCannot, EngineError."""
        raise EngineCannot(self.name, EngineTask.VERIFY, self.cure)

    def check_salvage(self) -> None:
        """Raise EngineCannot where a damaged commit log of this kind is nothing that the doctor can salvage."""
        raise EngineCannot(self.name, EngineTask.SALVAGE, self.cure)

    def restore(self, backup: Path, directory: Path, pools: Pools, advance: Callable[[int], None]) -> None:
        """Make a data directory of a backup; `advance` is called with the number of bytes of each piece. EngineCannot,
        EngineError, OSError."""
        raise EngineCannot(self.name, EngineTask.RESTORE, self.cure)


class MemoryKind(EngineKind):
    """Memory of the broker's process: nothing of it is left when that ends."""

    name = "memory"
    cure = "it keeps nothing once its broker stops; give a data directory"

    def owns(self, data: str) -> bool:
        return data == MEMORY

    def engine(self, data: str, settings: BrokerSettings) -> Engine:
        from pqbroker.storage.memory import MemoryEngine

        thresholds = Thresholds(settings.disk_light_yellow_bytes, settings.disk_yellow_bytes)
        pools = (MAIN_POOL, *parse_pools(settings.pools))
        return MemoryEngine(settings.memory_engine_bytes, pools=pools, thresholds=thresholds)

    async def preview(
        self, data: str, settings: BrokerSettings, check: Callable[[Shard], Awaitable[None]]
    ) -> None:
        """Nothing is stored yet."""


ENGINE_KINDS: Sequence[EngineKind] = (MemoryKind(), DiskKind())
"""The first that owns a place has it; the last one owns every directory."""


def kind_of(data: str) -> EngineKind:
    """Return the kind of engine that has the data at a place: a directory, or MEMORY."""
    return next(kind for kind in ENGINE_KINDS if kind.owns(data))
