"""Removes from a cell the tablets that no object of the scheme names, where the opener knows enough of the scheme."""

import logging
from collections.abc import Mapping
from typing import NamedTuple

from pqbroker.storage.ids import CellId
from pqbroker.storage.tablets.hosting import TabletHost
from pqbroker.storage.tablets.row_sets import RowSet
from pqbroker.storage.tablets.scheme_objects import unowned_tablets

_log = logging.getLogger(__name__)


class KnownScheme(NamedTuple):
    """The scheme as the opener of a cell knows it."""

    row_sets: Mapping[str, RowSet]
    number: int
    """Number of its last change."""
    is_mirror: bool = False


def reclaim_unowned(known: KnownScheme, host: TabletHost, cell: CellId) -> None:
    """Begin to remove what belongs to no object from the host's cell; nothing where that has seen a later scheme."""
    mark = host.cell.scheme_mark
    unowned = unowned_tablets(known.row_sets, host.cell.tablets().values(), cell)
    for tablet_id, cause in unowned.unknown.items():
        _log.warning("tablet %d is left as it is: %s, which this version does not know", tablet_id, cause)
    kept = mark.why_kept(known.number, is_mirror=known.is_mirror)
    if not kept:
        if not known.is_mirror:
            mark.checked()
        if unowned.dead:
            host.reclaim(unowned.dead)
    elif unowned.dead:
        _log.error(
            "%d tablets of cell %d that belong to no known topic or table are kept: %s", len(unowned.dead), cell, kept
        )
