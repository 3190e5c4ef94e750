"""Refusals of writes to a sorted table (C.9), each with its cure.

    code                            when
    OUT_OF_TABLET_MEMORY            the stores of the node, or of the table, take all memory they may
    STORE_OVERFLOWN                 the active store has reached one of its limits
    TOO_MANY_OVERLAPPING_STORES     chunks over one key reach max_overlapping_store_count
    TOO_MANY_STORES                 chunks of the tablet reach max_stores_per_tablet
    TOO_MANY_EDEN_STORES            chunks of Eden reach max_eden_stores_per_tablet
    TOO_MANY_DYNAMIC_STORES         stores wait for their flush
    ROW_LOCK_CONFLICT               another write has locked the row
    TOO_MANY_ROWS_IN_TRANSACTION    a transaction writes too many rows
    INVALID_MOUNT_REVISION          the tablet was mounted again since the client looked
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pqbroker.conf.sorted_attributes import DYNAMIC_STORES_MAX, SortedAttributes
from pqbroker.tables.refusals import TableError
from pqbroker.tables.sorted.picking.facts import DynamicStore
from pqbroker.tables.sorted.picking.rotation import TABLE_PART, amounts, is_full

YT_NUMBERS: Mapping[str, int] = {
    "ROW_LOCK_CONFLICT": 1700,
    "WRONG_STATE": 1702,
    "OUT_OF_TABLET_MEMORY": 1703,
    "STORE_OVERFLOWN": 1703,
    "TOO_MANY_OVERLAPPING_STORES": 1703,
    "TOO_MANY_STORES": 1703,
    "TOO_MANY_EDEN_STORES": 1703,
    "TOO_MANY_DYNAMIC_STORES": 1703,
    "INVALID_MOUNT_REVISION": 1704,
    "ROW_LOCKED": 1713,
    "TOO_MANY_ROWS_IN_TRANSACTION": 1717,
}
"""YT's numbers of codes that it knows too."""
BLOCKING_CODES: Final = tuple(code for code, number in YT_NUMBERS.items() if number == YT_NUMBERS["STORE_OVERFLOWN"])
"""Codes of refusals that concern all writes to a tablet."""
_SLOW = "Wait for compaction (`pqbroker table inside` shows it; enable_compaction_and_partitioning switches it on)"


@dataclass(frozen=True, slots=True)
class WriteFacts:
    """State of a tablet that its writes depend on; counts are those of chunks."""

    overlapping_store_count: int
    store_count: int
    eden_store_count: int
    dynamic_store_count: int
    active: DynamicStore


def write_refusal(facts: WriteFacts, attributes: SortedAttributes) -> TableError | None:
    """Return the refusal of all writes to a tablet; None: it takes them."""
    if is_full(facts.active, attributes):
        reached = amounts(facts.active, attributes).items()
        full = ", ".join(f"{count} {what} of {most}" for what, (count, most) in reached if count >= most)
        text = f"Active store is overflown, all writes disabled: it has {full}"
        return TableError("STORE_OVERFLOWN", text, "Wait for its rotation (enable_store_rotation switches it on).")
    for code, what, count, limit in _counts(facts, attributes):
        if count >= limit:
            name, cure = _LIMITS[code]
            text = f"Too many {what}, all writes disabled: {count}, and {name or 'the limit'} is {limit}"
            return TableError(code, text, cure)
    return None


def memory_refusal(used_bytes: int, used_by_table: int, limit_bytes: int) -> TableError | None:
    """Return the refusal of writes for want of memory; None: there is some. `limit_bytes`: that of the node."""
    cure = "Wait for flushes, which `pqbroker table inside` shows, or raise the node's memory for stores."
    if used_bytes >= limit_bytes:
        text = f"Node is out of tablet memory, all writes disabled: {used_bytes} bytes, and the limit is {limit_bytes}"
        return TableError("OUT_OF_TABLET_MEMORY", text, cure)
    of_table = int(limit_bytes * TABLE_PART)
    if used_by_table >= of_table:
        text = f"Table is out of tablet memory, all its writes disabled: {used_by_table} bytes of {of_table}"
        return TableError("OUT_OF_TABLET_MEMORY", text, cure)
    return None


_LIMITS: Mapping[str, tuple[str, str]] = {
    "TOO_MANY_OVERLAPPING_STORES": ("max_overlapping_store_count", f"{_SLOW}; or raise the limit and remount."),
    "TOO_MANY_STORES": ("max_stores_per_tablet", f"{_SLOW}; or reshard the table into more tablets."),
    "TOO_MANY_EDEN_STORES": ("max_eden_stores_per_tablet", f"{_SLOW}; or raise the limit and remount."),
    "TOO_MANY_DYNAMIC_STORES": (
        "", "Wait for their flush (`pqbroker table inside` shows it; enable_store_flush switches it on).",
    ),
}  # fmt: skip
"""Attribute that is the limit, if one is, and the cure, by code."""


def _counts(facts: WriteFacts, attributes: SortedAttributes) -> tuple[tuple[str, str, int, int], ...]:
    """Return the code, the things that are counted, their count and its limit."""
    return (
        (
            "TOO_MANY_OVERLAPPING_STORES", "overlapping stores in tablet",
            facts.overlapping_store_count, attributes.max_overlapping_store_count,
        ),
        ("TOO_MANY_STORES", "stores in tablet", facts.store_count, attributes.max_stores_per_tablet),
        (
            "TOO_MANY_EDEN_STORES", "Eden stores in tablet",
            facts.eden_store_count, attributes.max_eden_stores_per_tablet,
        ),
        ("TOO_MANY_DYNAMIC_STORES", "dynamic stores in tablet", facts.dynamic_store_count, DYNAMIC_STORES_MAX),
    )  # fmt: skip
