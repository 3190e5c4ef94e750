"""Circles of change feeds and materializations: a change that went round would make another one, for ever."""

from collections import defaultdict
from typing import Protocol

from pqbroker.storage.tablets.scheme import Scheme
from pqbroker.storage.tablets.scheme_materializations import MaterializationChanges
from pqbroker.tables.paths import table_path
from pqbroker.tables.serving.tables import SortedTables

CIRCLE_CURE = "Name another topic or table, or drop the materialization that closes the circle."


class FeedsOpening(Protocol):
    """One opening of the system cell, with the tables that feed topics and are fed from them."""

    @property
    def scheme(self) -> Scheme: ...
    @property
    def sorted_tables(self) -> SortedTables: ...


def way_of_changes(opened: FeedsOpening, begin: str, end: str) -> list[str]:
    """Return the names that changes pass from `begin` to `end`, both included: topics, and paths of tables. Empty: they
    do not come to the end."""
    steps: defaultdict[str, list[str]] = defaultdict(list)
    for topic, table in opened.sorted_tables.feeders.items():
        steps[table].append(topic)
    for table_id, record in MaterializationChanges(opened.scheme).known().items():
        fed = opened.sorted_tables.by_id(table_id)
        if fed is not None:
            steps[record.topic].append(table_path(fed.record.name))
    before: dict[str, str] = {begin: ""}
    waiting = [begin]
    while waiting and end not in before:
        name = waiting.pop()
        for following in steps[name]:
            if following not in before:
                before[following] = name
                waiting.append(following)
    way: list[str] = []
    name = end if end in before else ""
    while name:
        way.append(name)
        name = before[name]
    return way[::-1]


def told_circle(way: list[str]) -> str:
    """Return the way back as a text for people."""
    return f"each change would make another one, for ever: {' -> '.join([*way, way[0]])}"
