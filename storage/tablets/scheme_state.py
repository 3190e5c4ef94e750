"""State of a scheme, by name and by id: it follows the row sets of the tablet, in memory alone."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from pqbroker.conf.table_attributes import longest_retention_ms
from pqbroker.storage.ids import SYSTEM_CELL, CellId, TabletId
from pqbroker.storage.tablets.mounted_attributes import MountedAttributes
from pqbroker.storage.tablets.row_sets import Key, Row, RowChanges
from pqbroker.storage.unreadable import StoredUnreadable

TOPICS = "topics"
TOMBSTONES = "tombstones"
SCHEME_FACTS = "facts"
SETTINGS = "settings"
NAMED_SETTINGS = "named_settings"
"""Row sets of the scheme."""

FIRST_FORMAT = 1
"""Format of a scheme without tables, which versions before tables can read."""
TABLES_FORMAT = 2
CELLS_FORMAT = 3
"""Once tablets of a topic live in other cells than the system cell."""
ATTRIBUTES_FORMAT = 4
"""Once attributes act in some tablets of a table that do not act in others."""
SORTED_TABLES_FORMAT = 5
"""Once there was a sorted table."""
ACCESS_FORMAT = 6
"""Once there was a user or an access rule: a version that knows none would serve the directory to everybody."""
SCHEME_FORMAT = ACCESS_FORMAT
TOPIC_COLUMNS = ("name", "partitions", "partitions_per_tablet", "tablets", "config", "created_ms")
TABLE_COLUMN = "table"
"""Joins the columns of topics with the first table."""
CELLS_COLUMN = "cells"
"""Joins them with the first tablet in another cell."""


@dataclass(frozen=True, slots=True)
class TableRecord:
    """Facts that make a topic a table, as stored: the rules for it are those of the tables' floor.

    `columns`: the schema's, each with its fields. `attributes` were set, `mounted` act: a tablet takes what is set at
    its own mount or remount. `states`: a mount state for each tablet, never one on its way.
    """

    columns: tuple[Mapping[str, Any], ...]
    attributes: Mapping[str, Any]
    mounted: MountedAttributes
    states: tuple[str, ...]
    first_rows: tuple[int, ...]
    """The first row index of each tablet, as it was created."""
    epoch_base: int = 0
    """Added to the generation of a tablet, it is the leader epoch: a reshard raises it above all epochs before."""
    is_static: bool = False
    """True for a table that takes no rows and that Kafka's clients do not see (E.10); all its rows are in one
    tablet."""

    def grown(self, count: int) -> "TableRecord":
        """Return the record with `count` tablets: the new ones are mounted, by the attributes that are set, and begin
        at 0."""
        added = count - len(self.states)
        mounted = MountedAttributes.collect([*self.mounted, *[self.attributes] * added])
        states, first_rows = (*self.states, *["mounted"] * added), (*self.first_rows, *[0] * added)
        return replace(self, mounted=mounted, states=states, first_rows=first_rows)

    def fields(self) -> dict[str, Any]:
        """Return what is stored."""
        return {**{field.name: getattr(self, field.name) for field in fields(self)}, **self.mounted.fields()}

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> "TableRecord":
        """Read what `fields` returned. ValueError, LookupError."""
        lists = {name: tuple(stored[name]) for name in ("columns", "states", "first_rows")}
        return cls(
            attributes=stored["attributes"], mounted=MountedAttributes.read(stored, len(lists["states"])),
            epoch_base=stored.get("epoch_base", 0), is_static=stored.get("is_static", False), **lists,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """One topic as stored. `config` holds what was set, as texts; the 16 bytes of `topic_id` are Kafka's topic id."""

    name: str
    topic_id: bytes
    partitions: int
    partitions_per_tablet: int
    tablets: tuple[TabletId, ...]
    config: Mapping[str, str]
    created_ms: int
    table: TableRecord | None = None
    cells: tuple[CellId, ...] = ()
    """Cell of each tablet; empty: all are in the system cell."""

    def cell_of(self, tablet: int) -> CellId:
        """Return the cell of the topic's tablet of this number."""
        return self.cells[tablet] if self.cells else SYSTEM_CELL

    def home_of(self, tablet_id: TabletId) -> CellId:
        """Return the cell of one of the topic's tablets."""
        return self.cell_of(self.tablets.index(tablet_id))

    def moved(self, tablet_id: TabletId, cell: CellId) -> "TopicRecord":
        """Return the record with one of its tablets in another cell."""
        homes = [cell if known == tablet_id else self.cell_of(number) for number, known in enumerate(self.tablets)]
        return replace(self, cells=stored_cells(homes))

    def tablet_of(self, partition: int) -> TabletId:
        """Id of the tablet that serves the partition: for ever the same one (spec A.15)."""
        assert 0 <= partition < self.partitions
        return self.tablets[partition // self.partitions_per_tablet]

    def spans(self) -> Iterator[tuple[TabletId, CellId, range]]:
        """Each tablet, where it lives, and the partitions that it serves."""
        for number, tablet_id in enumerate(self.tablets):
            first = number * self.partitions_per_tablet
            stop = min(first + self.partitions_per_tablet, self.partitions)
            yield tablet_id, self.cell_of(number), range(first, stop)

    def with_table(self, table: TableRecord) -> "TopicRecord":
        """Return the record with this table, which other attributes may act in: retention.ms follows them."""
        kept_ms = longest_retention_ms(table.mounted.sets)
        return replace(self, table=table, config={**self.config, "retention.ms": str(kept_ms)})

    def grown(self, count: int) -> "TopicRecord":
        """Return the record with `count` partitions, in the tablets that it has."""
        after = replace(self, partitions=count)
        return after if self.table is None else after.with_table(self.table.grown(count))

    @property
    def is_static(self) -> bool:
        return self.table is not None and self.table.is_static

    @property
    def epoch_base(self) -> int:
        return self.table.epoch_base if self.table is not None else 0


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A deleted topic whose tablets may still be there."""

    name: str
    topic_id: bytes
    tablets: tuple[TabletId, ...]


class Resharded(NamedTuple):
    """A resharded table: its record but for the tablets, and the number that each tablet had; None: a new one.
    `replaced`: by such a number, the tablet that stands for it from now on. The record may have another topic id."""

    record: TopicRecord
    origins: Sequence[int | None]
    replaced: Mapping[int, TabletId] = MappingProxyType({})

    def tablets(self, before: Sequence[TabletId], new: Iterable[TabletId]) -> tuple[TabletId, ...]:
        """Return the tablets that the table has from now on; `new` for those that are new."""
        added = iter(new)
        return tuple(
            next(added) if origin is None else self.replaced.get(origin, before[origin]) for origin in self.origins
        )


class SchemeState:
    """Everything that the rows of a scheme say. Only `follow` changes it."""

    __slots__ = ("facts", "named_settings", "settings", "tombstones", "topics", "topics_by_id")

    def __init__(self) -> None:
        self.topics: dict[str, TopicRecord] = {}
        self.topics_by_id: dict[bytes, TopicRecord] = {}
        self.tombstones: dict[bytes, Tombstone] = {}
        self.facts: dict[str, Any] = {}
        self.settings: dict[str, Mapping[str, str]] = {}
        self.named_settings: dict[str, dict[str, Mapping[str, str]]] = {}
        """The settings of resources that are neither topics nor nodes, by kind and name."""

    def check(self) -> None:
        """Check that what was replayed is a scheme of this version. Raises StoredUnreadable."""
        written = self.facts.get("format")
        lacking = {"cluster_id", "next_tablet_id", "next_producer_id"} - self.facts.keys()
        if not isinstance(written, int) or not 1 <= written <= SCHEME_FORMAT:
            readable = f"this version reads up to {SCHEME_FORMAT}"
            cause = f"it is of format {written!r}, and {readable}: a newer version wrote it"
            raise StoredUnreadable("the scheme", cause)
        if lacking:
            raise StoredUnreadable("the scheme", f"it has no {', '.join(sorted(lacking))}")

    def follow(self, row_set: str, key: Key, row: Row | None) -> None:
        """Follow a row that was set, or removed (None). Rows of other row sets are left to a later version."""
        item: Any = key[0]
        if row_set == TOPICS:
            self._follow_topic(item, row)
        elif row_set == TOMBSTONES:
            self.tombstones.pop(item, None)
            if row is not None:
                stored: Any = row
                self.tombstones[item] = Tombstone(stored["name"], item, tuple(stored["tablets"]))
        elif row_set == NAMED_SETTINGS:
            self._follow_named(str(item), str(key[1]), row)
        elif row_set in (SCHEME_FACTS, SETTINGS):
            if row is None:
                raise ValueError(f"{row_set}: {item!r} is deleted, which no version does")
            if row_set == SCHEME_FACTS:
                self.facts[item] = row["value"]
            else:
                texts: Any = row["texts"]
                self.settings[item] = texts

    def _follow_named(self, kind: str, name: str, row: Row | None) -> None:
        of_kind = self.named_settings.setdefault(kind, {})
        of_kind.pop(name, None)
        if row is not None:
            texts: Any = row["texts"]
            of_kind[name] = texts

    def _follow_topic(self, topic_id: bytes, row: Row | None) -> None:
        if row is None:
            del self.topics[self.topics_by_id.pop(topic_id).name]
        else:
            topic = _read_topic(topic_id, row)
            self.topics[topic.name] = self.topics_by_id[topic_id] = topic


def stored_cells(cells: Sequence[CellId]) -> tuple[CellId, ...]:
    """Return the cells as a record has them: none where all are the system cell."""
    return tuple(cells) if {*cells} != {SYSTEM_CELL} else ()


def put_topic(changes: RowChanges, topic: TopicRecord, id_before: bytes = b"") -> None:
    """`id_before`: the topic's id, which may be another one now."""
    if id_before and id_before != topic.topic_id:
        changes.delete(TOPICS, (id_before,))
    row: dict[str, Any] = {
        "name": topic.name,
        "partitions": topic.partitions,
        "partitions_per_tablet": topic.partitions_per_tablet,
        "tablets": topic.tablets,
        "config": dict(topic.config),
        "created_ms": topic.created_ms,
    }
    if topic.table is not None:
        row[TABLE_COLUMN] = topic.table.fields()
    if topic.cells:
        row[CELLS_COLUMN] = topic.cells
    columns = changes.columns(TOPICS)
    joining = [column for column in row if column not in columns]
    if joining:
        changes.alter_row_set(TOPICS, (*columns, *joining))
    raise_format(changes, _format_of(topic))
    changes.put(TOPICS, (topic.topic_id,), row)


def raise_format(changes: RowChanges, needed: int) -> None:
    """Have the scheme be of this format at least: earlier versions refuse it then."""
    if changes.row_sets[SCHEME_FACTS].rows[("format",)]["value"] < needed:
        changes.put(SCHEME_FACTS, ("format",), {"value": needed})


def put_tombstone(changes: RowChanges, tombstone: Tombstone) -> None:
    """An object's tablets are dead: they are dropped before the tombstone is."""
    changes.put(TOMBSTONES, (tombstone.topic_id,), {"name": tombstone.name, "tablets": list(tombstone.tablets)})


def _format_of(topic: TopicRecord) -> int:
    """The first format of a scheme that such a topic can be stored in."""
    if topic.table is not None and topic.table.mounted.differ:
        return ATTRIBUTES_FORMAT
    if topic.cells:
        return CELLS_FORMAT
    return FIRST_FORMAT if topic.table is None else TABLES_FORMAT


def _read_topic(topic_id: bytes, row: Row) -> TopicRecord:
    stored: dict[str, Any] = dict(row)
    stored["tablets"] = tuple(stored["tablets"])
    stored[CELLS_COLUMN] = tuple(stored.get(CELLS_COLUMN, ()))
    table = stored.get(TABLE_COLUMN)
    if table is not None:
        stored[TABLE_COLUMN] = TableRecord.read(table)
    return TopicRecord(topic_id=topic_id, **stored)
