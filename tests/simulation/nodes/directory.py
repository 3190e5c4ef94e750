"""The directory that all nodes share: an engine in memory for each cell, with a lock, or with fencing alone.

With locks a cell is in use until its process is dead or has closed it, as on one machine. Without them a process
that opens the cell later fences the one before, which learns of it when it next uses the cell, as on a bucket.
"""

import asyncio
from itertools import islice
from typing import Any

from pqbroker.storage.engine import CellInUse, EngineError, Fenced, Opener, StoreFailed
from pqbroker.storage.memory import MemoryEngine, MemoryShard
from tests.simulation.nodes.processes import CURRENT, SimulatedProcess

ENGINE_BYTES = 1 << 30
SYSTEM = "system"
ALL = "all"


class ProcessShard(MemoryShard):
    """An opening that belongs to a process: nothing is stored once that is dead, or another opening has followed."""

    fenced_by = 0
    """Generation that has fenced it, which it may not know yet."""
    process: SimulatedProcess | None = None

    def _round_later(self) -> None:
        if self.process is None:
            super()._round_later()
        elif not self._awaited and not self.is_lost:
            self._awaited = True
            self.process.run(self._round)

    def _round(self) -> None:
        if self.process is not None and self.process.is_dead:
            return
        self._learn()
        super()._round()

    def _check(self) -> None:
        self._learn()
        super()._check()

    def _learn(self) -> None:
        if self.fenced_by:
            self.lose(Fenced(f"generation {self.fenced_by} has opened the cell"))

    @property
    def is_lost(self) -> bool:
        return self._reason is not None

    def store_first(self, durable: int) -> None:
        """Make the first commits that wait durable, as their process dies; none of one that is fenced is."""
        if self.fenced_by:
            return
        for batch, _ in islice(self._queue, durable):
            if self._store.refusal(batch) is None:
                self._store.apply(batch)


class SharedCell(MemoryEngine):
    """One cell of the directory."""

    unfenced = ""
    """Cell that fences nobody, or ALL, in a broken variant: an owner that was replaced writes on."""

    def __init__(self, directory: "SharedDirectory", name: str) -> None:
        super().__init__(ENGINE_BYTES)
        self._name = name
        self._directory = directory

    async def open(self) -> MemoryShard:
        """Raises CellInUse, EngineError."""
        before, process = self._shard, CURRENT.get()
        if process is not None and process.number in self._directory.barred:
            raise EngineError("the store is not reached")
        if isinstance(before, ProcessShard) and before.process is not None:
            is_held = not before.is_lost and not before.process.is_dead and before.process is not process
            if is_held and self._directory.has_locks:
                raise CellInUse(f"process {before.process.pid} has the cell open")
            self._shard = None
        shard = await super().open()
        assert isinstance(shard, ProcessShard)
        assert process is not None
        shard.process = process
        process.ends.append(lambda: shard.store_first(self._directory.durable_of_the_dead()))
        if isinstance(before, ProcessShard) and not before.is_lost and self.unfenced not in (self._name, ALL):
            before.fenced_by = shard.generation
            if before.process is not None:
                before.process.run(before._learn)
        return shard

    def belongs_to(self, number: int) -> bool:
        """Return True if the process of a node opened it last."""
        shard = self._shard
        return isinstance(shard, ProcessShard) and shard.process is not None and shard.process.number == number

    def lose_of(self, number: int) -> None:
        """Have a node lose the cell, if it has it."""
        shard = self._shard
        if self.belongs_to(number):
            assert isinstance(shard, ProcessShard)
            assert shard.process is not None
            shard.process.run(shard.lose, StoreFailed("the store is not reached"))


class SharedDirectory:
    """All cells. `has_locks`: a cell has one process at a time."""

    def __init__(self, *, has_locks: bool) -> None:
        self.has_locks = has_locks
        self.cells: dict[str, SharedCell] = {}
        self.barred: set[int] = set()
        """Numbers of nodes that do not reach the store."""

    def bar(self, number: int) -> None:
        """Have a node lose its cells, and open none until it is let in again."""
        self.barred.add(number)
        for cell in self.cells.values():
            cell.lose_of(number)

    def durable_of_the_dead(self) -> int:
        """Return how many commits on their way become durable when a process dies."""
        return 0

    def cell(self, name: str) -> SharedCell:
        if name not in self.cells:
            self.cells[name] = SharedCell(self, name)
        return self.cells[name]


class NodeEngine:
    """The engine of one cell as a node has it, an `Engine`."""

    def __init__(self, directory: SharedDirectory, name: str = SYSTEM) -> None:
        self._directory = directory
        self._name = name

    async def open(self) -> MemoryShard:
        return await self._directory.cell(self._name).open()

    def for_reading(self, cause: str) -> Opener | None:
        """Memory needs no room for a log."""

    def sibling(self, name: str, *, must_exist: bool) -> "NodeEngine":
        return NodeEngine(self._directory, name)

    async def remove_sibling(self, name: str) -> None:
        self._directory.cells.pop(name, None)


class SharedKind:
    """The kind of engine that has the directory."""

    name = "simulated"

    def __init__(self, directory: SharedDirectory) -> None:
        self._directory = directory

    def owns(self, data: str) -> bool:
        return data == self.name

    def engine(self, data: str, settings: Any) -> NodeEngine:
        return NodeEngine(self._directory)

    async def preview(self, data: str, settings: Any, check: Any) -> None:
        """The start finds out."""
        await asyncio.sleep(0)
