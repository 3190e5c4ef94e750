"""Changes of the topics in a scheme.

    topic:   unknown --create--> known --delete--> tombstone --forget--> unknown

One commit each; a tombstone keeps the tablets' ids until the cell has dropped them. Objects of all kinds share the
names.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from pqbroker.storage.bundles.bundle import DEFAULT_BUNDLE
from pqbroker.storage.bundles.placement import NoHealthyCell
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


class WantedTopic(NamedTuple):
    """A topic to create."""

    name: str
    partitions: int
    config: Mapping[str, str]
    partitions_per_tablet: int
    table: TableRecord | None = None


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

        (made,) = await self.create_each([WantedTopic(name, partitions, config, partitions_per_tablet, table)])
        if isinstance(made, Exception):
            raise made
        return made

    async def create_each(self, wanted: Sequence[WantedTopic]) -> list[TopicRecord | Exception]:
        """Create topics of different names in one change; return by topic its record, or why it has none: TopicExists,
        PartitionsRefused, NoHealthyCell."""
        return await self._scheme.change(lambda changes: self._plan_creations(changes, wanted))

    def _plan_creations(self, changes: RowChanges, wanted: Sequence[WantedTopic]) -> list[TopicRecord | Exception]:
        counts: dict[str, int] = {}
        found: dict[str, TopicRecord | Exception] = {}
        for each in wanted:
            try:
                check_free(changes, each.name)
                counts[each.name] = tablet_count(each.partitions, each.partitions_per_tablet)
            except SchemeError as refusal:
                found[each.name] = refusal
        homes = self._homes([(bundle_of(each.config), counts.get(each.name, 0)) for each in wanted])
        placed = []
        for each in wanted:
            home = homes[bundle_of(each.config)]
            if isinstance(home, NoHealthyCell):
                found.setdefault(each.name, home)
            elif each.name in counts:
                placed.append((each, stored_cells(tuple(islice(home, counts[each.name])))))
        tablets = iter(self._scheme.new_tablets(changes, sum(counts[each.name] for each, _ in placed)))
        for each, cells in placed:
            topic = TopicRecord(
                each.name, new_uuid(), each.partitions, each.partitions_per_tablet,
                tuple(islice(tablets, counts[each.name])), dict(each.config), self._clock(), each.table, cells,
            )  # fmt: skip
            changes.put(NAMES, (each.name,), {"kind": TOPIC, "id": topic.topic_id})
            put_topic(changes, topic)
            found[each.name] = topic
        return [found[each.name] for each in wanted]

    def _homes(self, wanted: Sequence[tuple[str, int]]) -> Mapping[str, Iterator[CellId] | NoHealthyCell]:
        """Choose the cells of new tablets, by bundle; `wanted`: a bundle and a number for each topic. All tablets of a
        bundle are placed together, so that they are spread over its cells."""
        totals = Counter[str]()
        for bundle, count in wanted:
            totals[bundle] += count
        homes: dict[str, Iterator[CellId] | NoHealthyCell] = {}
        for bundle, total in totals.items():
            try:
                homes[bundle] = iter(self._choose_cells(bundle, total))
            except NoHealthyCell as refusal:
                homes[bundle] = refusal
        return homes

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
        (deleted,) = await self.delete_each([name])
        return deleted

    async def delete_each(self, names: Sequence[str]) -> list[TopicRecord]:
        """Delete topics in one change, as `delete` does one."""

        def plan(changes: RowChanges) -> list[TopicRecord]:
            topics = [self._known(name) for name in names]
            for topic in topics:
                changes.delete(NAMES, (topic.name,))
                changes.delete(TOPICS, (topic.topic_id,))
                put_tombstone(changes, Tombstone(topic.name, topic.topic_id, topic.tablets))
            return topics

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
