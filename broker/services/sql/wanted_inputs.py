"""Inputs of sorted tablets as a query asks for them, at this node or at another one.

Those of another node are asked for over the peer link by the same calls; most bytes lie in files, which the worker
reads.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pqbroker.pq.log.commit_timestamps import TIMESTAMP_MAX

if TYPE_CHECKING:
    from pqbroker.tables.serving.stored_inputs import LocatedInputs


class WantedInputs(NamedTuple):
    """Inputs of ranges of keys of one tablet. `ranges`: the first key and the one behind the last, None: to the end, in
    hexadecimal."""

    table: str
    table_id: str
    tablet_id: int
    timestamp: int
    ranges: Sequence[tuple[str, str | None]]

    @classmethod
    def decode(cls, told: Any) -> "WantedInputs":
        """Read what another node asks for: the fields in their order. ValueError."""
        if not isinstance(told, list) or len(told) != len(cls._fields):
            raise ValueError("wanted inputs were expected")
        found = cls(*told)
        if not isinstance(found.table, str) or not isinstance(found.table_id, str):
            raise ValueError("wanted inputs have something else in place of a name")
        is_timestamp = isinstance(found.timestamp, int) and 0 <= found.timestamp <= TIMESTAMP_MAX
        if not isinstance(found.tablet_id, int) or not is_timestamp:
            raise ValueError("wanted inputs have something else in place of a number")
        try:
            ranges = [(str(first), None if end is None else str(end)) for first, end in found.ranges]
            for first, end in ranges:
                bytes.fromhex(first + (end or ""))
        except (TypeError, ValueError) as bad:
            raise ValueError(f"ranges of keys were expected: {bad}") from None
        if not ranges:
            raise ValueError("ranges of keys were expected")
        return found._replace(ranges=ranges)


class TabletReads(Protocol):
    """Reads of sorted tablets by one query at one node."""

    async def hold(self, timestamp: int) -> None:
        """Keep what is seen at the query's timestamp from clean-up until the query ends. QueryRefused."""

    async def inputs(self, wanted: WantedInputs) -> "LocatedInputs":
        """Return the places of what the query may see in ranges of a tablet. QueryRefused, KafkaError, ShardLost."""
