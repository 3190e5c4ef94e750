"""Things that the sorted tables of a node have in common."""

from typing import NamedTuple

from pqbroker.pq.serving.timestamps import NodeTime
from pqbroker.storage.counters import KeyValueCounters


class SortedShare(NamedTuple):
    """The things that all sorted tablets of a node have in common."""

    time: NodeTime
    inline_bytes_max: int
    key_values: KeyValueCounters
