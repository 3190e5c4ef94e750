"""Budgets that the nodes of a broker share: the setting is for the broker, and each node takes an equal part.

A part below its floor would be useless, so then a node takes the floor, or the whole where that is less.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from pqbroker.conf.broker import BrokerSettings

MIB: Final = 1 << 20
FLOORS: Final[Mapping[str, int]] = {
    "node_bytes_max": 32 * MIB, "reserved_bytes": 8 * MIB, "unfinished_bytes_max": 16 * MIB,
    "unsent_bytes_max": 16 * MIB, "cache_bytes": 16 * MIB, "head_bytes": 32 * MIB, "sent_files_max": 16,
    "table_stores_bytes_max": 32 * MIB, "table_blocks_bytes_max": 8 * MIB, "table_flushes_max": 1,
    "table_compactions_max": 1, "table_partitionings_max": 1, "table_merge_rate": 8 * MIB,
}  # fmt: skip
"""Least part of a node, by the field of the setting."""


def share_of(settings: BrokerSettings, nodes: int) -> BrokerSettings:
    """Return the settings with a node's parts of the shared budgets."""
    if nodes == 1:
        return settings
    parts: dict[str, Any] = {}
    for name, floor in FLOORS.items():
        whole: int = getattr(settings, name)
        parts[name] = min(whole, max(whole // nodes, floor))
    return replace(settings, **parts)
