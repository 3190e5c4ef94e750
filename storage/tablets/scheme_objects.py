"""Objects of the scheme by kind, and the tablets that each of them owns: which tablets of a cell nobody owns any more.

A kind that this version does not know keeps what is its: a table of a newer version is not reclaimed by an older one.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from pqbroker.storage.ids import SYSTEM_CELL, CellId, TabletId
from pqbroker.storage.tablets.row_sets import RowSet
from pqbroker.storage.tablets.tablet import TabletRecord, TabletType
from pqbroker.storage.tablets.tablet_kinds import TABLET_KINDS

NAMES = "names"
"""Row set of the names: the kind and the id of each one's object."""
TOPIC = "topic"
SORTED_TABLE = "sorted table"
SORTED_TABLES = "sorted_tables"
FEED_CREATORS = "feed_creators"
"""Row set of the sorted tables, laid out with the first one."""
MATERIALIZATIONS = "materializations"
"""Row set of what feeds sorted tables, by the id of the table; laid out with the first one."""
STORED_USERS = "users"
"""Row set of the users by name; laid out with the first one."""
STORED_SECRETS = "secrets"
"""Row set of secrets of the cluster by name; laid out with the first one."""
STORED_TOKENS = "tokens"
"""Row set of tokens by id; laid out with the first one."""


@dataclass(frozen=True, slots=True)
class ObjectKind:
    """The scheme's stored form of the objects of one kind."""

    name: str
    """Kind in the rows of names."""
    row_set: str
    """Row set with the objects by id. Its column `tablets` has the ids of the tablets that each one owns, and `cells`
    the cell of each, unless all are in the system cell."""
    tablets: frozenset[TabletType]
    """Types of the tablets that such an object owns."""


OBJECT_KINDS: Mapping[str, ObjectKind] = {
    kind.name: kind
    for kind in (
        ObjectKind(TOPIC, "topics", frozenset({TabletType.PERSQUEUE})),
        ObjectKind(SORTED_TABLE, SORTED_TABLES, frozenset({TabletType.SORTED})),
    )
}
"""Every kind that this version knows."""


class OwnedTablet(NamedTuple):
    """A tablet that an object names as its own."""

    tablet_id: TabletId
    cell: CellId
    kind: ObjectKind
    object_id: bytes


def owned_tablets(row_sets: Mapping[str, RowSet], cell: CellId | None = None) -> Iterator[OwnedTablet]:
    """Yield the tablets that the objects of known kinds own, each where it lives; `cell`: those that live there."""
    for kind in OBJECT_KINDS.values():
        for (object_id, *_), row in row_sets.get(kind.row_set, ()):
            fields: Any = row
            key: Any = object_id
            homes = fields.get("cells") or (SYSTEM_CELL,) * len(fields["tablets"])
            if cell is None or cell in homes:  # one look for thousands of tablets
                found = zip(fields["tablets"], homes, strict=True)
                yield from (OwnedTablet(tablet, home, kind, key) for tablet, home in found if cell in (None, home))


def has_object_tablets(records: Iterable[TabletRecord]) -> bool:
    """Return True if a cell has tablets that belong to objects, which its scheme has to name."""
    return any(TABLET_KINDS[record.type].belongs_to_object for record in records)


class Unowned(NamedTuple):
    """Tablets of objects that no object names."""

    dead: list[TabletId]
    """Tablets whose owner, of a known kind, is gone or does not name them."""
    unknown: dict[int, str]
    """Reasons, by tablet, why an object of a kind that this version does not know may name it."""


def unowned_tablets(
    row_sets: Mapping[str, RowSet], records: Iterable[TabletRecord], cell: CellId = SYSTEM_CELL
) -> Unowned:
    """Tablets of a cell that no object of a known kind names as living there. In the system cell a tombstone may name
    them: they are dropped with it, those of other cells when the cell is opened."""
    named = set(_named(row_sets, cell))
    kinds: Mapping[Any, str] = {row["id"]: str(row["kind"]) for _, row in row_sets.get(NAMES, ())}
    strange = sorted(set(kinds.values()) - OBJECT_KINDS.keys())
    found = Unowned([], {})
    for record in records:
        if not TABLET_KINDS[record.type].belongs_to_object or record.tablet_id in named:
            continue
        kind = kinds.get(_owner_id(record.owner))
        if kind in OBJECT_KINDS or not strange:
            found.dead.append(record.tablet_id)
        elif kind is not None:
            found.unknown[record.tablet_id] = f"its owner is a {kind}"
        else:
            # An object that is not in the names may own it, such as a part of one that is.
            found.unknown[record.tablet_id] = f"its owner is unknown, and objects of kind {', '.join(strange)} exist"
    return found


def _named(row_sets: Mapping[str, RowSet], cell: CellId) -> Iterator[TabletId]:
    yield from (owned.tablet_id for owned in owned_tablets(row_sets, cell))
    if cell == SYSTEM_CELL:
        for _, row in row_sets.get("tombstones", ()):
            fields: Any = row
            yield from fields["tablets"]


def _owner_id(owner: str) -> bytes | None:
    """The id of the object that a tablet's record names as its owner."""
    try:
        return bytes.fromhex(owner)
    except ValueError:
        return None
