"""Checks of the attributes that a table is given. `conf/table_attributes.py` says what they mean."""

from collections.abc import Mapping
from typing import Any

from pqbroker.conf.table_attributes import DEFAULTS, ORDERINGS, WEIGHT_MAX
from pqbroker.tables.refusals import TableError, nearest

NUMBER_MAX = (1 << 63) - 1


def check_attributes(given: Mapping[str, Any]) -> None:
    """TableError INVALID_ATTRIBUTE for a name or a value that no table has."""
    for name, value in given.items():
        if name not in DEFAULTS:
            raise _invalid(f"attributes has the unknown name {name[:100]!r}", nearest(name[:100], DEFAULTS))
        if name == "commit_ordering":
            if value not in ORDERINGS:
                raise _invalid(f"attributes.{name} is {value!r}", nearest(str(value), ORDERINGS))
        elif name == WEIGHT_MAX:
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise _invalid(f"attributes.{name} is {value!r}", "Give a whole number of bytes above 0, or null.")
        elif isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= NUMBER_MAX:
            raise _invalid(f"attributes.{name} is {value!r}", "Give a whole number from 0 on.")


def _invalid(message: str, cure: str) -> TableError:
    return TableError("INVALID_ATTRIBUTE", message, cure)
