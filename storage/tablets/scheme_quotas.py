"""Quotas of a scheme: a row set that is laid out with the first one; what quotas mean is the broker's.

Earlier versions leave it alone, and throttle nobody.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from pqbroker.storage.tablets.row_sets import Key, Row, RowChanges
from pqbroker.storage.tablets.scheme import Scheme

QUOTAS: Final = "quotas"
"""Row set of the quotas, by entity."""
_KEY: Final = (("user", "str"), ("client_id", "str"), ("ip", "str"))
_ABSENT, _DEFAULT, _NAMED = "", "default", "name:"
"""Forms of a part of an entity."""

StoredEntity = tuple[str | None, str | None, str | None]
"""User, client id, address; None: no part of it; empty: the default."""


def stored_entity(key: Key) -> StoredEntity:
    """Return the entity of a row's key. ValueError for one that this version did not write."""
    user, client_id, ip = map(_read, key)
    return user, client_id, ip


def entity_key(entity: StoredEntity) -> Key:
    """Return the key of an entity's row."""
    return tuple(_ABSENT if name is None else f"{_NAMED}{name}" if name else _DEFAULT for name in entity)


class QuotaChanges:
    """Each change is durable when its call returns. They raise as `Scheme.change`."""

    def __init__(self, scheme: Scheme) -> None:
        self._scheme = scheme

    async def change(self, plan: Callable[[Mapping[Key, Row]], Mapping[Key, Mapping[str, float]]]) -> None:
        """Replace the values of the entities that `plan` returns, by key; it is given all rows. Without values an
        entity is removed. What it raises passes through."""

        def change(changes: RowChanges) -> None:
            row_set = changes.row_sets.get(QUOTAS)
            stored: Mapping[Key, Row] = {} if row_set is None else row_set.rows
            wanted = plan(stored)
            if row_set is None and any(wanted.values()):
                changes.create_row_set(QUOTAS, _KEY, ["values"])
            for key, values in wanted.items():
                if values:
                    changes.put(QUOTAS, key, {"values": dict(values)})
                elif key in stored:
                    changes.delete(QUOTAS, key)

        await self._scheme.change(change)


def _read(part: Any) -> str | None:
    if part == _ABSENT:
        return None
    if part == _DEFAULT:
        return ""
    if not isinstance(part, str) or not part.startswith(_NAMED) or part == _NAMED:
        raise ValueError(f"{part!r} is no part of an entity that this version knows")
    return part.removeprefix(_NAMED)
