"""Access rules of a scheme: a row set that is laid out with the first rule. The rules' meaning is the broker's.

A scheme that has or had a rule is of a format that earlier versions refuse: they would let everybody in.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pqbroker.storage.tablets.row_sets import Key, Row, RowChanges
from pqbroker.storage.tablets.scheme import Scheme
from pqbroker.storage.tablets.scheme_state import ACCESS_FORMAT, raise_format

ACLS: Final = "acls"
"""Row set of the access rules. A row's key says all."""
_KEY: Final = (
    ("kind", "int"), ("pattern", "int"), ("name", "str"), ("principal", "str"), ("host", "str"), ("operation", "int"),
    ("permission", "int"),
)  # fmt: skip


def rule_fields(key: Key) -> dict[str, Any]:
    """Return what a row's key says, by field. ValueError where it has other fields."""
    if len(key) != len(_KEY):
        raise ValueError(f"it has {len(key)} fields, and this version reads {len(_KEY)}")
    return {name: value for (name, _), value in zip(_KEY, key, strict=True)}


class AclChanges:
    """Each change is durable when its call returns. They raise as `Scheme.change`."""

    def __init__(self, scheme: Scheme) -> None:
        self._scheme = scheme

    def rows(self) -> Mapping[Key, Row]:
        """Return every row by key."""
        return self._scheme.rows(ACLS)

    async def add(self, keys: Sequence[Key], most: int) -> list[Key]:
        """Add rules that are not there yet, until there are `most`; return those that there was no room for."""

        def plan(changes: RowChanges) -> list[Key]:
            row_set = changes.row_sets.get(ACLS)
            stored = {} if row_set is None else row_set.rows
            new = [key for key in keys if key not in stored]
            room = max(most - len(stored), 0)
            if new[:room]:
                if row_set is None:
                    changes.create_row_set(ACLS, _KEY, ())
                raise_format(changes, ACCESS_FORMAT)
            for key in new[:room]:
                changes.put(ACLS, _plain(key), {})
            return new[room:]

        return await self._scheme.change(plan)

    async def remove(self, keys: Sequence[Key]) -> list[Key]:
        """Remove rules, and return those that there were, in the same order."""

        def plan(changes: RowChanges) -> list[Key]:
            row_set = changes.row_sets.get(ACLS)
            found = [key for key in keys if row_set is not None and row_set.get(key) is not None]
            for key in found:
                changes.delete(ACLS, _plain(key))
            return found

        return await self._scheme.change(plan)


def _plain(key: Key) -> Key:
    """Return the key with numbers in place of names of numbers, as a row set has it."""
    return tuple(int(value) if isinstance(value, int) else value for value in key)
