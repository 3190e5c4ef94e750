"""What everybody in a simulation shares: the node, what was promised, chance, and the story as it is told."""

import asyncio
import hashlib
from collections import deque
from dataclasses import replace
from random import Random

from pqbroker.conf.broker import BrokerSettings
from pqbroker.pq.serving.offsets import TopicPartition
from pqbroker.storage.engine import CommitRefused, ShardLost
from pqbroker.storage.tablets.scheme_state import TopicRecord
from tests.simulation.backup_story import BackupStory
from tests.simulation.compacted_story import CompactedStory, cleaning
from tests.simulation.ledger import GroupBook, TopicBook, expect
from tests.simulation.node import SimulatedNode
from tests.simulation.producing_story import ProducingStory
from tests.simulation.sorted_story import SortedStory
from tests.simulation.transaction_story import TransactionStory

GROUPS = ("g", "h")
TABLE = "table"
CELLS_SHARE = 0.4
TABLE_SHARE = 0.4
SORTED_SHARE = 0.4
COMPACTED_SHARE = 0.4
"""Share of the runs with a compacted topic."""
PRODUCING_SHARE = 0.4
"""Share of the runs with Kafka transactions."""
TRANSACTIONS_SHARE = 0.7
"""Share of the runs with a sorted table; they have a second cell too."""
HAS_ROOM = 0.7
"""Share of the runs in which a cleaning has room for all keys."""
WORKER_KILLS = 0.03
"""Share of the messages of workers at which they end."""
LINES_TOLD = 40
BACK_OFF_S = 0.2


class World:
    """One run. Everybody draws from a chance of their own, so that one who draws more changes nobody else's."""

    def __init__(self, seed: int, told: deque[str], *, forgettable: int | None = None) -> None:
        """`told`: takes the last lines of the story. `forgettable`: commits that the store forgets, 0 too: there are no
        stories then whose ends are known."""
        self.seed = seed
        has_stories = forgettable is None
        settings = _settings(self.chance("settings"))
        if has_stories and (has_compacted(seed) or has_kafka_transactions(seed)):
            settings = cleaning(settings, has_room=self.chance("room for keys").random() < HAS_ROOM)
        self.node = SimulatedNode(settings, forgettable=forgettable or 0)
        self.has_cells = has_stories and self.chance("cells").random() < CELLS_SHARE
        """Whether there is a second cell, and tablets move."""
        self.has_table = has_stories and self.chance("has table").random() < TABLE_SHARE
        has_sorted_table = has_stories and has_sorted(seed)
        self.sorted_story = SortedStory(self.node) if has_sorted_table else None
        self.transaction_story: TransactionStory | None = None
        self.backup_story: BackupStory | None = None
        if self.sorted_story is not None and has_transactions(seed):
            self.transaction_story = TransactionStory(self.sorted_story)
            self.backup_story = BackupStory(self.transaction_story, settings)
            self.has_cells = True
        self.compacted_story = CompactedStory(self.node) if has_stories and has_compacted(seed) else None
        has_producing = has_stories and has_kafka_transactions(seed)
        self.producing_story = ProducingStory(self.node, self.producer_id) if has_producing else None
        self._worker_kills = self.chance("worker kills")
        self.topics: dict[bytes, TopicBook] = {}
        self.groups = {name: GroupBook(name) for name in GROUPS}
        self.is_ending = False
        """Nothing new is begun any more."""
        self.writing = 0
        """Producers that are not done yet."""
        self.parked = 0
        """Fetches that wait."""
        self.clients: asyncio.TaskGroup
        self._told = told
        self._story = hashlib.blake2b(digest_size=8)

    @property
    def digest(self) -> str:
        """Tells one story from another."""
        return self._story.hexdigest()

    def kills_worker(self) -> bool:
        """Return True if a worker is to end before its next message."""
        return not self.is_ending and self._worker_kills.random() < WORKER_KILLS

    def chance(self, name: str) -> Random:
        return _chance(self.seed, name)

    def note(self, line: str) -> None:
        text = f"{asyncio.get_running_loop().time():9.4f} {line}"
        self._told.append(text)
        self._story.update(text.encode())

    def book(self, topic: TopicRecord) -> TopicBook:
        """The book of a topic that is served."""
        book = self.topics.get(topic.topic_id)
        if book is None:
            book = self.topics[topic.topic_id] = TopicBook(topic.name, topic.topic_id)
        expect(not book.gone, f"topic {topic.name} was deleted and is there again")
        book.count = max(book.count, topic.partitions)
        return book

    def is_served(self, place: TopicPartition) -> bool:
        topic = self.node.node.cell.current.topics.get(place[0]) if self.node.is_up else None
        return topic is not None and place[1] < len(topic.partitions)

    async def producer_id(self) -> int:
        """One that nobody else has."""
        while True:
            if self.node.is_up:
                ids = self.node.node.producer_ids
                try:
                    taken = ids.take()
                    return await ids.take_from_next_block() if taken is None else taken
                except (CommitRefused, ShardLost):
                    self.note("no producer id")
            await asyncio.sleep(BACK_OFF_S)


def has_sorted(seed: int) -> bool:
    """Return True if a run has a sorted table, unless its store forgets."""
    return _chance(seed, "has sorted table").random() < SORTED_SHARE


def has_compacted(seed: int) -> bool:
    """Return True if a run has a compacted topic, unless its store forgets."""
    return _chance(seed, "has compacted topic").random() < COMPACTED_SHARE


def has_kafka_transactions(seed: int) -> bool:
    """Return True if a run has Kafka transactions, unless its store forgets."""
    return _chance(seed, "has Kafka transactions").random() < PRODUCING_SHARE


def has_transactions(seed: int) -> bool:
    """Return True if it has transactions too."""
    return has_sorted(seed) and _chance(seed, "has transactions").random() < TRANSACTIONS_SHARE


def _chance(seed: int, name: str) -> Random:
    return Random(f"{seed} {name}")


def _settings(chance: Random) -> BrokerSettings:
    """Small budgets and quick rebalances, so that heads are dropped, bodies read cold, and groups not waited for."""
    return replace(
        BrokerSettings(),
        cache_bytes=chance.choice((0, 20_000, 1 << 24)),
        head_bytes=chance.choice((2_000, 1 << 24)),
        write_cycle_bytes_max=chance.choice((65_536, 1 << 24)),
        group_initial_rebalance_delay_ms=100,
        retention_check_interval_ms=1_000,
    )
