"""Attributes of a table's tablets: their names and defaults, and what they say of a topic's configs (E.6, E.7).

Old rows go by E.6: never while min_data_versions is above 0; else max_data_versions says which of the two ages counts.
"""

from collections.abc import Iterable, Mapping
from typing import Any

ORDERINGS = ("weak", "strong")
WEIGHT_MAX = "max_ordered_tablet_data_weight"
DEFAULTS: Mapping[str, Any] = {
    "min_data_versions": 1,
    "max_data_versions": 1,
    "min_data_ttl": 1_800_000,
    "max_data_ttl": 1_800_000,
    WEIGHT_MAX: None,
    "commit_ordering": "weak",
}
"""Ages in milliseconds, the weight of a tablet's rows in bytes (E.7)."""
KEPT_FOR_EVER = -1


def in_force(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes with the defaults of those that are not set."""
    return {**DEFAULTS, **attributes}


def retention_ms(attributes: Mapping[str, Any]) -> int:
    """Return the age from which rows go, as the topic's retention.ms; -1: never (E.6)."""
    values = in_force(attributes)
    if values["min_data_versions"] > 0:
        return KEPT_FOR_EVER
    least: int = values["min_data_ttl"]
    return least if values["max_data_versions"] == 0 else max(least, values["max_data_ttl"])


def longest_retention_ms(sets: Iterable[Mapping[str, Any]]) -> int:
    """Return the retention.ms of a table whose tablets have these attributes: no tablet keeps rows longer."""
    ages = {retention_ms(attributes) for attributes in sets}
    return KEPT_FOR_EVER if KEPT_FOR_EVER in ages else max(ages)


def with_retention(attributes: Mapping[str, Any], kept_ms: int) -> dict[str, Any]:
    """Return the attributes by which rows go from the age `kept_ms`, -1: never, with as few changes as that takes."""
    values = in_force(attributes)
    if kept_ms < 0:
        return {**attributes, "min_data_versions": max(1, values["min_data_versions"])}
    return {
        **attributes,
        "min_data_versions": 0,
        "max_data_versions": max(1, values["max_data_versions"]),
        "min_data_ttl": min(values["min_data_ttl"], kept_ms),
        "max_data_ttl": kept_ms,
    }
