"""The memory engine with faults at a commit that lies ahead: for tests that crash at each step in turn."""

from typing import Any

from pqbroker.storage.engine import Batch, Shard
from pqbroker.storage.memory import MemoryEngine
from pqbroker.storage.outcome import Outcome


class FaultyEngine(MemoryEngine):
    """`crash_after(n)`: n more commits are made durable, then the cell is lost. `refuse_start`: refuse one at open."""

    def __init__(self, bytes_max: int = 1 << 26) -> None:
        super().__init__(bytes_max)
        self.commits_left: int | None = None
        self.refuse_start = False

    def crash_after(self, commits: int) -> None:
        self.commits_left = commits

    async def open(self) -> Any:
        self.commits_left = None
        shard = await super().open()
        if self.refuse_start:
            self.refuse_start = False
            self.refuse_next()
        return _FaultyShard(self, shard)


class _FaultyShard:
    def __init__(self, engine: FaultyEngine, shard: Shard) -> None:
        self._engine = engine
        self._shard = shard

    def commit(self, batch: Batch) -> Outcome[None]:
        left = self._engine.commits_left
        if left is not None:
            if left == 0:
                self._engine.crash()
            self._engine.commits_left = left - 1
        return self._shard.commit(batch)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shard, name)
