"""Changes of the topics in a scheme.

    topic:   unknown --create--> known --delete--> tombstone --forget--> unknown

One commit each; a tombstone keeps the tablets' ids until the cell has dropped them. Objects of all kinds share the
names.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pqbroker.storage.bundles.bundle import DEFAULT_BUNDLE
from pqbroker.storage.ids import SYSTEM_CELL, CellId, new_uuid
from pqbroker.storage.tablets.row_sets import RowChanges
from pqbroker.storage.tablets.scheme import Scheme, SchemeError
from pqbroker.storage.tablets.scheme_objects import NAMES, TOPIC
from pqbroker.storage.tablets.scheme_state import (
    TOPICS,
    Resharded,
    TableRecord,
    Tombstone,
    TopicRecord,
    put_tombstone,
    put_topic,
    stored_cells,
)

PARTITIONS_MAX = 20_000
PARTITIONS_PER_TABLET_MAX = 1_000
TABLETS_PER_TOPIC_MAX = 10_000

ChooseCells = Callable[[str, int], Sequence[CellId]]
"""Chooses the cells of new tablets, by the name of their bundle and their number."""


def in_the_system_cell(bundle: str, count: int) -> Sequence[CellId]:
    return [SYSTEM_CELL] * count


class TopicExists(SchemeError):
    """The name is taken, by a topic or by an object of another kind."""


class TopicUnknown(SchemeError):
    """No topic has that name."""


class PartitionsNotGrown(SchemeError):
    """The number of partitions may only grow (spec A.15)."""


class PartitionsRefused(SchemeError):
    """More partitions, or tablets for them, than a topic may have; or fewer than one (spec A.15)."""


class TopicChanges:
    """Each is durable when its call returns. They raise as `Scheme.change`, besides what is said."""

    def __init__(
        self, scheme: Scheme, clock: Callable[[], int], choose_cells: ChooseCells = in_the_system_cell
    ) -> None:
        """`clock`: milliseconds since 1970. `choose_cells` chooses the cells of new tablets."""
        self._scheme = scheme
        self._clock = clock
        self._choose_cells = choose_cells

    async def create(
        self,
        name: str,
        partitions: int,
        config: Mapping[str, str],
        partitions_per_tablet: int,
        table: TableRecord | None = None,
    ) -> TopicRecord:
        """Raises TopicExists, PartitionsRefused, and what `choose_cells` raises."""

        def plan(changes: RowChanges) -> TopicRecord:
            check_free(changes, name)
            count = tablet_count(partitions, partitions_per_tablet)
            cells = stored_cells(self._choose_cells(bundle_of(config), count))
            tablets = self._scheme.new_tablets(changes, count)
            topic = TopicRecord(
                name, new_uuid(), partitions, partitions_per_tablet, tablets, dict(config), self._clock(), table, cells
            )
            changes.put(NAMES, (name,), {"kind": TOPIC, "id": topic.topic_id})
            put_topic(changes, topic)
            return topic

        return await self._scheme.change(plan)

    async def grow(self, name: str, count: int) -> TopicRecord:
        """Raise the number of partitions to `count`. Raises TopicUnknown, PartitionsNotGrown, PartitionsRefused, and
        what `choose_cells` raises."""

        def plan(changes: RowChanges) -> TopicRecord:
            topic = self._known(name)
            if count <= topic.partitions:
                raise PartitionsNotGrown(f"topic {name!r} has {topic.partitions} partitions; {count} are no more")
            added = tablet_count(count, topic.partitions_per_tablet) - len(topic.tablets)
            homes = [topic.cell_of(number) for number in range(len(topic.tablets))]
            cells = stored_cells([*homes, *(self._choose_cells(bundle_of(topic.config), added) if added else ())])
            tablets = topic.tablets + self._scheme.new_tablets(changes, added)
            grown = replace(topic.grown(count), tablets=tablets, cells=cells)
            put_topic(changes, grown)
            return grown

        return await self._scheme.change(plan)

    async def change(self, name: str, change: Callable[[TopicRecord], TopicRecord]) -> TopicRecord:
        """Replace the topic's record, but for its name and id, by what `change` makes of it; tablet ids given out stay
        so. Raises TopicUnknown, and what `change` raises."""

        def plan(changes: RowChanges) -> TopicRecord:
            topic = change(self._known(name))
            put_topic(changes, topic)
            return topic

        return await self._scheme.change(plan)

    async def reshard(
        self, name: str, change: Callable[[TopicRecord], Resharded]
    ) -> tuple[TopicRecord, Tombstone | None]:
        """Give a table with a partition a tablet other tablets; those that it has no more get a tombstone. Raises
        TopicUnknown, PartitionsRefused, and what `change` and `choose_cells` raise."""

        def plan(changes: RowChanges) -> tuple[TopicRecord, Tombstone | None]:
            topic = self._known(name)
            record, origins, _ = after = change(topic)
            added = tablet_count(len(origins), 1) - len(set(origins) - {None})
            homes = iter(self._choose_cells(bundle_of(topic.config), added) if added else ())
            tablets = after.tablets(topic.tablets, self._scheme.new_tablets(changes, added))
            cells = stored_cells([next(homes) if origin is None else topic.cell_of(origin) for origin in origins])
            record = replace(record, partitions=len(tablets), tablets=tablets, cells=cells)
            changes.put(NAMES, (name,), {"kind": TOPIC, "id": record.topic_id})
            put_topic(changes, record, topic.topic_id)
            removed = tuple(known for known in topic.tablets if known not in set(tablets))
            tombstone = Tombstone(name, new_uuid(), removed) if removed else None
            if tombstone is not None:
                put_tombstone(changes, tombstone)
            return record, tombstone

        return await self._scheme.change(plan)

    async def delete(self, name: str) -> TopicRecord:
        """Free the name, leave a tombstone. Raises TopicUnknown."""

        def plan(changes: RowChanges) -> TopicRecord:
            topic = self._known(name)
            changes.delete(NAMES, (name,))
            changes.delete(TOPICS, (topic.topic_id,))
            put_tombstone(changes, Tombstone(name, topic.topic_id, topic.tablets))
            return topic

        return await self._scheme.change(plan)

    def _known(self, name: str) -> TopicRecord:
        topic = self._scheme.topics.get(name)
        if topic is None:
            raise TopicUnknown(f"there is no topic {name!r}")
        return topic


def check_free(changes: RowChanges, name: str) -> None:
    """Raise TopicExists when an object of any kind has the name."""
    if changes.row_sets[NAMES].get((name,)) is not None:
        raise TopicExists(f"there is a topic or table {name!r} already")


def tablet_count(partitions: int, partitions_per_tablet: int) -> int:
    """Tablets that the partitions need. PartitionsRefused outside the limits of spec A.15."""
    if not 1 <= partitions <= PARTITIONS_MAX:
        raise PartitionsRefused(f"{partitions} partitions; a topic has 1 to {PARTITIONS_MAX}")
    if not 1 <= partitions_per_tablet <= PARTITIONS_PER_TABLET_MAX:
        raise PartitionsRefused(f"{partitions_per_tablet} partitions per tablet; 1 to {PARTITIONS_PER_TABLET_MAX}")
    count = -(-partitions // partitions_per_tablet)
    if count > TABLETS_PER_TOPIC_MAX:
        raise PartitionsRefused(f"{count} tablets; a topic has at most {TABLETS_PER_TOPIC_MAX}: put more into each")
    return count


def bundle_of(config: Mapping[str, str]) -> str:
    """The name of a topic's bundle."""
    return config.get("pq.bundle", DEFAULT_BUNDLE)
