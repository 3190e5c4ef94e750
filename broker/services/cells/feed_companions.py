"""Tablets that have to live in one cell: those of a table with a change feed, each with its partition's."""

from collections.abc import Sequence

from pqbroker.pq.serving.topics import Topics
from pqbroker.storage.ids import CellId, TabletId
from pqbroker.storage.tablets.owners import TabletOwner
from pqbroker.tables.paths import table_path
from pqbroker.tables.serving.tables import SortedTables, feeds_of


def companions(
    topics: Topics, tables: SortedTables, owner: TabletOwner, tablet_id: TabletId
) -> Sequence[tuple[TabletOwner, TabletId]]:
    """Return the tablets that have to live in the cell of one tablet, each with its owner."""
    feeding = tables.feeders
    if not feeding:
        return ()
    path = feeding.get(owner.name, table_path(owner.name))
    table = next((one for name, one in tables.tables.items() if table_path(name) == path), None)
    if table is None:
        return ()
    owned: list[tuple[TabletOwner, Sequence[TabletId]]] = [(tables.owner_of(table), table.record.tablets)]
    for name in sorted(feeds_of(table.record)):
        topic = topics.get(name, or_static=True)
        if topic is not None:
            owned.append((topics.owner_of(topic), topic.record.tablets))
    number = next((tablets.index(tablet_id) for _, tablets in owned if tablet_id in tablets), None)
    if number is None:
        return ()
    return [
        (other, tablets[number]) for other, tablets in owned if number < len(tablets) and tablets[number] != tablet_id
    ]


def stray_partitions(topics: Topics, tables: SortedTables) -> Sequence[tuple[TabletOwner, TabletId, CellId]]:
    """Return the tablets of change feeds that do not live in the cell of their table's, each with its owner and that
    cell: a move of both is two commits, and a crash or a refusal may come between."""
    if not tables.feeders:
        return ()
    return [
        (topics.owner_of(topic), tablet_id, table.record.cell_of(number))
        for table in tables.tables.values()
        for topic in filter(None, (topics.get(name, or_static=True) for name in sorted(feeds_of(table.record))))
        for number, tablet_id in enumerate(topic.record.tablets[: len(table.record.tablets)])
        if topic.record.cell_of(number) != table.record.cell_of(number)
    ]
