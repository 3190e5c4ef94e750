"""Tablets that take no writes, by the code of the refusal, as of the last look; the log says when that begins and ends.

    taken    a look finds a refusal    -> blocked, with its text and cure
    blocked  a look finds none         -> taken
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from typing import Final

from pqbroker.tables.paths import table_path
from pqbroker.tables.refusals import TableError
from pqbroker.tables.serving.tablet import SortedTablet
from pqbroker.tables.sorted.write_refusals import BLOCKING_CODES

BLOCK_LINES_MAX: Final = 10
"""Lines that one look logs at most: a node out of memory refuses the writes of all its tables."""
_log = logging.getLogger(__name__)


class WriteBlocks:
    """The refusals of a node's sorted tables."""

    def __init__(self) -> None:
        self.tablets: dict[SortedTablet, TableError] = {}
        """Refusal of each tablet that takes no writes."""

    async def look(self, served: Sequence[tuple[SortedTablet, bool]], at_once: int) -> None:
        """Find out which tablets take no writes; `served`: each with whether it is frozen, and takes none anyway.
        `at_once`: tablets before the loop's other work has its turn."""
        found: dict[SortedTablet, TableError] = {}
        for number, (tablet, is_frozen) in enumerate(served):
            if number % at_once == at_once - 1:
                await asyncio.sleep(0)
            if is_frozen or not tablet.is_serving:
                continue
            refusal = tablet.memory_refusal if tablet.is_idle else tablet.write_block
            if refusal is not None:
                found[tablet] = refusal
        before, self.tablets = self.tablets, found
        self._log_changes(before, found)

    def by_code(self) -> Counter[str]:
        """Return the number of tablets by the code of the refusal; a code without tablets has 0."""
        return Counter({**dict.fromkeys(BLOCKING_CODES, 0), **Counter(each.code for each in self.tablets.values())})

    def _log_changes(self, before: dict[SortedTablet, TableError], after: dict[SortedTablet, TableError]) -> None:
        old, new = _by_table(before), _by_table(after)
        begun = [place for place in new if place not in old]
        ended = [place for place in old if place not in new]
        for place in begun[:BLOCK_LINES_MAX]:
            table, code = place
            count, refusal = new[place]
            text = "writes to %d tablets of %s are refused, %s: %s; %s"
            _log.warning(text, count, table_path(table), code, refusal.message, refusal.cure)
        for table, code in ended[:BLOCK_LINES_MAX]:
            _log.info("writes to %s are taken again, the cause was %s", table_path(table), code)
        left_out = max(len(begun) - BLOCK_LINES_MAX, 0), max(len(ended) - BLOCK_LINES_MAX, 0)
        if any(left_out):
            _log.warning("writes to %d more tables are refused, those to %d more are taken again", *left_out)


def _by_table(tablets: dict[SortedTablet, TableError]) -> dict[tuple[str, str], tuple[int, TableError]]:
    """Return the number of tablets, and one refusal, by the table and the code."""
    found: dict[tuple[str, str], tuple[int, TableError]] = {}
    for tablet, refusal in tablets.items():
        place = tablet.config.table, refusal.code
        count, first = found.get(place, (0, refusal))
        found[place] = count + 1, first
    return found
