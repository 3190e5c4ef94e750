"""Creators of change feeds in a scheme: a row set that is laid out with the first one whose rights were checked.

Earlier versions leave it alone, and check the rights of who mounts the table.
"""

from typing import Any, Final

from pqbroker.storage.tablets.row_sets import RowChanges
from pqbroker.storage.tablets.scheme import Scheme
from pqbroker.storage.tablets.scheme_objects import FEED_CREATORS

_KEY: Final = (("id", "bytes"),)
_COLUMNS: Final = ("topic", "creator")


def feed_creator(scheme: Scheme, table_id: bytes, topic: str) -> str:
    """Return the principal that named a table's change feed; empty where it is unknown, or named another topic."""
    row: Any = scheme.rows(FEED_CREATORS).get((table_id,))
    if row is None or row.get("topic") != topic or not isinstance(row.get("creator"), str):
        return ""
    creator: str = row["creator"]
    return creator


async def keep_feed_creator(scheme: Scheme, table_id: bytes, topic: str, creator: str) -> None:
    """Store the principal that names a table's change feed; an empty one removes what is stored. Raises as
    `Scheme.change`."""

    def plan(changes: RowChanges) -> None:
        row_set = changes.row_sets.get(FEED_CREATORS)
        if creator and row_set is None:
            changes.create_row_set(FEED_CREATORS, _KEY, _COLUMNS)
        if creator:
            changes.put(FEED_CREATORS, (table_id,), {"topic": topic, "creator": creator})
        elif row_set is not None and (table_id,) in row_set.rows:
            changes.delete(FEED_CREATORS, (table_id,))

    if creator or scheme.rows(FEED_CREATORS).get((table_id,)) is not None:
        await scheme.change(plan)
