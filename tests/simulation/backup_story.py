"""Backups of a simulated node amid transactions: the moments of all cells, taken as a real backup takes them.

The last one is restored into a node of its own when the run is over: of each transaction it has all rows or none, all
of those that had ended before it was asked for, and nothing is prepared in it.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from pqbroker.conf.broker import BrokerSettings
from pqbroker.storage.memory import MemoryEngine
from tests.simulation.ledger import expect
from tests.simulation.node import SimulatedNode
from tests.simulation.sorted_story import SortedStory
from tests.simulation.transaction_story import SimulatedCommit, TransactionStory


@dataclass(frozen=True, slots=True)
class SimulatedBackup:
    """`ended`: how many transactions had ended before it was asked for."""

    engine: MemoryEngine
    ended: int


@dataclass(slots=True)
class BackupStory:
    """Takes backups of the node of a story, and restores the last one."""

    story: TransactionStory
    settings: BrokerSettings
    taken: SimulatedBackup | None = field(default=None)

    async def take(self, between_s: float) -> None:
        """Take the moment of each cell, the system cell's last, each `between_s` after the one before. Where a cell is
        not open, or commits are not finished everywhere, no backup is taken, as none is given to a user then."""
        node = self.story.story.node
        if not node.is_up:
            return
        opened, ended, opening = node.owner.current, len(self.story.ended), node.openings
        if not self._is_good(opening):
            return
        others: dict[str, MemoryEngine] = {}
        async with opened.others.unchanged(), opened.commits.pause() as is_quiet:
            for name in map(str, sorted(opened.hive.cells)):
                if not (is_quiet and self._is_good(opening)):
                    return
                others[name] = node.engine.sibling(name, must_exist=True).copied()
                await asyncio.sleep(between_s)
            if not self._is_good(opening):
                return
            copied = node.engine.copied()
        for name, engine in others.items():
            copied.take_sibling(name, engine)
        self.taken = SimulatedBackup(copied, ended)

    def _is_good(self, opening: int) -> bool:
        """Return True while the node that was asked runs, and all its cells are open."""
        node = self.story.story.node
        if not (node.is_up and node.openings == opening and node.owner.is_open):
            return False
        opened = node.owner.current
        return all(opened.others.health(cell) == "good" for cell in opened.hive.cells)

    async def verify(self, check_node: Callable[[SimulatedNode], None]) -> None:
        """Restore the last backup into a node, and look for each transaction in it. `check_node`: called with it when
        it has stopped."""
        if self.taken is None:
            return
        restored = SimulatedNode(self.settings)
        restored.engine = self.taken.engine
        await restored.start()
        await restored.settle()
        story = SortedStory(restored)
        await story.settle()
        opened, transactions = restored.owner.current, TransactionStory(story)
        expect(not opened.commits.is_busy, "a restored backup has commits that are not finished")
        await story.mount_all()
        await transactions.mount_log()
        await story.settle()
        numbers = await transactions.logged()
        for place, one in enumerate(self.story.ended):
            await _verify_whole(story, numbers, one, is_owed=place < self.taken.ended)
        await restored.stop()
        await asyncio.sleep(1.0)  # simulated: work in threads that nobody waits for any more ends
        check_node(restored)


async def _verify_whole(story: SortedStory, numbers: dict[int, int], one: SimulatedCommit, *, is_owed: bool) -> None:
    at = None if one.outcome is None else one.outcome.timestamp
    found = [at is not None and numbers.get(number) == at for number in one.numbers]
    expect(at is not None or not any(number in numbers for number in one.numbers), f"{one.name} was never committed")
    for key in one.keys if at is not None else ():
        found.append(any(timestamp == at for timestamp, _ in await story.stored(key)))
    expect(all(found) or not any(found), f"of transaction {one.name} a backup has a part: {found}")
    expect(at is None or not is_owed or all(found), f"a backup lacks {one.name}, which was acknowledged before it")
