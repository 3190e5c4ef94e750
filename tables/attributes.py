"""Attributes of an ordered table: those that were set, and what acts, which is what was set at the last remount (K.4).

Old rows go by E.6: never while min_data_versions is above 0; else max_data_versions says which of the two ages counts.
"""

from collections.abc import Mapping
from typing import Any

from pqbroker.tables.refusals import TableError, nearest

ORDERINGS = ("weak", "strong")
DEFAULTS: Mapping[str, Any] = {
    "min_data_versions": 1,
    "max_data_versions": 1,
    "min_data_ttl": 1_800_000,
    "max_data_ttl": 1_800_000,
    "max_ordered_tablet_data_weight": None,
    "commit_ordering": "weak",
}
"""Ages in milliseconds, the weight of a tablet's rows in bytes (E.7)."""
_WEIGHT_MAX = "max_ordered_tablet_data_weight"
NUMBER_MAX = (1 << 63) - 1
KEPT_FOR_EVER = -1


def check_attributes(given: Mapping[str, Any]) -> None:
    """TableError INVALID_ATTRIBUTE for a name or a value that no table has."""
    for name, value in given.items():
        if name not in DEFAULTS:
            raise _invalid(f"attributes has the unknown name {name[:100]!r}", nearest(name[:100], DEFAULTS))
        if name == "commit_ordering":
            if value not in ORDERINGS:
                raise _invalid(f"attributes.{name} is {value!r}", nearest(str(value), ORDERINGS))
        elif name == _WEIGHT_MAX:
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise _invalid(f"attributes.{name} is {value!r}", "Give a whole number of bytes above 0, or null.")
        elif isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= NUMBER_MAX:
            raise _invalid(f"attributes.{name} is {value!r}", "Give a whole number from 0 on.")


def in_force(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """With the defaults of those that are not set."""
    return {**DEFAULTS, **attributes}


def retention_ms(attributes: Mapping[str, Any]) -> int:
    """The age from which rows go, as the topic's retention.ms; -1: never (E.6)."""
    values = in_force(attributes)
    if values["min_data_versions"] > 0:
        return KEPT_FOR_EVER
    least: int = values["min_data_ttl"]
    return least if values["max_data_versions"] == 0 else max(least, values["max_data_ttl"])


def with_retention(attributes: Mapping[str, Any], kept_ms: int) -> dict[str, Any]:
    """The attributes by which rows go from the age `kept_ms`, -1: never, with as few changes as that takes."""
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


def _invalid(message: str, cure: str) -> TableError:
    return TableError("INVALID_ATTRIBUTE", message, cure)
