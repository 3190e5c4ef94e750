"""The row sets of the scheme: those laid out with the cell, and that of named settings, laid out with the first one."""

from collections.abc import Mapping

from pqbroker.storage.ids import TabletId, new_uuid, uuid_text
from pqbroker.storage.tablets.row_sets import RowChanges, RowSet
from pqbroker.storage.tablets.scheme_objects import NAMES
from pqbroker.storage.tablets.scheme_state import (
    FIRST_FORMAT,
    NAMED_SETTINGS,
    SCHEME_FACTS,
    SETTINGS,
    TOMBSTONES,
    TOPIC_COLUMNS,
    TOPICS,
)

FIRST_TABLET_ID = TabletId(1 << 16)
"""Ids below are for the broker's own tablets."""


def lay_out(changes: RowChanges) -> None:
    """Lay out a new scheme."""
    changes.create_row_set(SCHEME_FACTS, [("name", "str")], ["value"])
    changes.create_row_set(NAMES, [("name", "str")], ["kind", "id"])
    changes.create_row_set(TOPICS, [("id", "bytes")], TOPIC_COLUMNS)
    changes.create_row_set(TOMBSTONES, [("id", "bytes")], ["name", "tablets"])
    lay_out_settings(changes)
    put_fact(changes, "format", FIRST_FORMAT)
    put_fact(changes, "cluster_id", uuid_text(new_uuid()))
    put_fact(changes, "next_tablet_id", FIRST_TABLET_ID)
    put_fact(changes, "next_producer_id", 0)


def lay_out_settings(changes: RowChanges) -> None:
    """Lay out the settings of nodes, which the first schemes had none of."""
    changes.create_row_set(SETTINGS, [("node", "str")], ["texts"])


def put_named_settings(
    changes: RowChanges, row_sets: Mapping[str, RowSet], key: tuple[str, str], texts: Mapping[str, str]
) -> None:
    """Set what the resource of a kind and name is set to; with no texts its row is deleted.

    Earlier versions do not read this row set, so it is one of its own: they refuse rows of `settings` that are deleted.
    """
    if NAMED_SETTINGS not in row_sets:
        if not texts:
            return
        changes.create_row_set(NAMED_SETTINGS, [("kind", "str"), ("name", "str")], ["texts"])
    if texts:
        changes.put(NAMED_SETTINGS, key, {"texts": dict(texts)})
    else:
        changes.delete(NAMED_SETTINGS, key)


def put_fact(changes: RowChanges, name: str, value: int | str) -> None:
    """Set one fact of the scheme."""
    changes.put(SCHEME_FACTS, (name,), {"value": value})
