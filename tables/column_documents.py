"""Columns as clients give them: what is common to those of every kind of table."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from pqbroker.tables.columns import folded
from pqbroker.tables.refusals import TableError, nearest
from pqbroker.tables.types import TYPES, ColumnType, is_text

COLUMN_NAME_CHARACTERS_MAX = 256


def read_column(item: Any, where: str, fields: Sequence[str]) -> tuple[str, ColumnType, bool]:
    """Return a column's name and type, and whether it is required; the document has none but these fields. TableError
    INVALID_SCHEMA."""
    if not isinstance(item, dict):
        raise invalid_schema(f"{where} is no object", 'Give {"name": …, "type": …}.')
    for field in item:
        if field not in fields:
            raise invalid_schema(f"{where} has an unknown field {field[:100]!r}", nearest(field[:100], fields))
    name, type_name, required = item.get("name"), item.get("type"), item.get("required", False)
    if not isinstance(name, str) or not 1 <= len(name) <= COLUMN_NAME_CHARACTERS_MAX:
        cure = f"Give 1 to {COLUMN_NAME_CHARACTERS_MAX} characters."
        raise invalid_schema(f"{where}.name is missing, or no name", cure)
    if not is_text(name):
        raise invalid_schema(f"{where}.name has half of a surrogate pair", "Choose a name that UTF-8 can hold.")
    if not isinstance(type_name, str) or type_name not in TYPES:
        raise invalid_schema(f"{where}.type of column {name!r} is {type_name!r}", f"Give one of {', '.join(TYPES)}.")
    if not isinstance(required, bool):
        raise invalid_schema(f"{where}.required of column {name!r} is {required!r}", "Give true or false.")
    return name, TYPES[type_name], required


def clashing(names: Iterable[str]) -> tuple[str, str] | None:
    """Two names that are one when case is folded; None: there are none."""
    known: dict[str, str] = {}
    for name in names:
        first = known.setdefault(folded(name), name)
        if first != name:
            return first, name
    return None


def check_column_names(names: Iterable[str], kept: Collection[str] = ()) -> None:
    """TableError INVALID_SCHEMA where two columns of a schema that is to be set have names that differ by case alone,
    which SQL and Spark cannot tell apart, or one has a NUL. Columns that are kept may stay."""
    given = list(names)
    known = {folded(name): name for name in kept if name in given}
    for name in given:
        if "\0" in name and name not in kept:
            raise invalid_schema(f"the column {name!r} has a NUL in its name", "Leave it out: names in SQL end there.")
        first = name if name in kept else known.setdefault(folded(name), name)
        if first != name:
            text = f"the columns {first!r} and {name!r} differ by upper and lower case alone"
            raise invalid_schema(text, "Rename one of them: in SQL they are one name.")


def is_wider(old: ColumnType, new: ColumnType) -> bool:
    """Return True if every value of the old type is one of the new type, too."""
    if old is new:
        return True
    if old.bounds is None or new.bounds is None:
        return False
    return new.bounds[0] <= old.bounds[0] and old.bounds[1] <= new.bounds[1]


def invalid_schema(message: str, cure: str) -> TableError:
    return TableError("INVALID_SCHEMA", message, cure)
