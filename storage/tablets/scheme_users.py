"""Users of a scheme, with the verifiers of their passwords and their tokens, and secrets of the cluster: stored forms,
changes.

    user, token:   unknown --put--> known --remove--> unknown

One commit each; a user's tokens go with it. Earlier versions would serve a directory with users to everybody, so the
format rises with the first.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from pqbroker.storage.tablets.row_sets import Row, RowChanges
from pqbroker.storage.tablets.scheme import Scheme
from pqbroker.storage.tablets.scheme_objects import STORED_SECRETS, STORED_TOKENS, STORED_USERS
from pqbroker.storage.tablets.scheme_state import ACCESS_FORMAT, raise_format

_COLUMNS = ("credentials", "is_super", "created_ms")
_TOKEN_COLUMNS = ("digest", "user", "note", "created_ms", "expires_ms")
_DIGEST_BYTES = 32


@dataclass(frozen=True, slots=True)
class StoredCredential:
    """One verifier of a user as stored; the rules for it are those of the services of logins."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    def fields(self) -> dict[str, Any]:
        """Return what is stored."""
        return {
            "salt": self.salt, "stored_key": self.stored_key, "server_key": self.server_key,
            "iterations": self.iterations,
        }  # fmt: skip

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> "StoredCredential":
        """Read what `fields` returned. ValueError, LookupError, TypeError."""
        salt, stored_key, server_key = (stored[name] for name in ("salt", "stored_key", "server_key"))
        iterations = stored["iterations"]
        keys = (salt, stored_key, server_key)
        if not all(isinstance(key, bytes) and key for key in keys) or not isinstance(iterations, int):
            raise ValueError("a verifier of a password has no bytes")
        return cls(salt, stored_key, server_key, iterations)


@dataclass(frozen=True, slots=True)
class UserRecord:
    """One user as stored."""

    name: str
    credentials: Mapping[str, StoredCredential]
    """Verifiers by SASL mechanism, the one changed last at the end."""
    is_super: bool
    created_ms: int

    def fields(self) -> dict[str, Any]:
        """Return what is stored."""
        credentials = {mechanism: one.fields() for mechanism, one in self.credentials.items()}
        return {"credentials": credentials, "is_super": self.is_super, "created_ms": self.created_ms}

    @classmethod
    def read(cls, name: str, row: Row) -> "UserRecord":
        """Read what `fields` returned. ValueError for a row that this version did not write."""
        stored: Any = row
        try:
            credentials = {text: StoredCredential.read(one) for text, one in stored["credentials"].items()}
            if not credentials:
                raise ValueError("it has no verifier")
            return cls(name, credentials, bool(stored["is_super"]), int(stored["created_ms"]))
        except (LookupError, TypeError, AttributeError, ValueError) as bad:
            raise ValueError(f"the row of the user {name!r} is unreadable: {type(bad).__name__}") from None


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """One token as stored."""

    token_id: str
    digest: bytes = field(repr=False)
    user: str
    note: str
    created_ms: int
    expires_ms: int | None

    def fields(self) -> dict[str, Any]:
        """Return what is stored."""
        return {
            "digest": self.digest, "user": self.user, "note": self.note, "created_ms": self.created_ms,
            "expires_ms": self.expires_ms,
        }  # fmt: skip

    @classmethod
    def read(cls, token_id: str, row: Row) -> "TokenRecord":
        """Read what `fields` returned. ValueError for a row that this version did not write."""
        stored: Any = row
        try:
            record = cls(token_id, **stored)
        except TypeError as bad:
            raise ValueError(f"the row of the token {token_id} is unreadable: {bad}") from None
        if not (isinstance(record.digest, bytes) and len(record.digest) == _DIGEST_BYTES):
            raise ValueError(f"the row of the token {token_id} is unreadable: it has no digest")
        if not isinstance(record.user, str) or not isinstance(record.expires_ms, int | None):
            raise ValueError(f"the row of the token {token_id} is unreadable: its user or its end is no such value")
        return record


class UserChanges:
    """Each is durable when its call returns. They raise as `Scheme.change`, besides what is said."""

    def __init__(self, scheme: Scheme) -> None:
        self._scheme = scheme

    async def change(self, names: list[str], change: Callable[[Mapping[str, UserRecord]], list[UserRecord]]) -> None:
        """Replace the users of these names by those that `change` makes of the known ones, in one commit; those that it
        leaves out, or leaves without credentials, are removed. Raises what `change` raises; ValueError for a row that
        is unreadable."""

        def plan(changes: RowChanges) -> None:
            rows = changes.row_sets.get(STORED_USERS)
            found = {name: row for name in names if rows is not None and (row := rows.get((name,))) is not None}
            known = {name: UserRecord.read(name, row) for name, row in found.items()}
            left = {record.name: record for record in change(known) if record.credentials}
            if left and rows is None:
                changes.create_row_set(STORED_USERS, [("name", "str")], _COLUMNS)
                raise_format(changes, ACCESS_FORMAT)
            for record in left.values():
                changes.put(STORED_USERS, (record.name,), record.fields())
            gone = known.keys() - left.keys()
            for name in gone:
                changes.delete(STORED_USERS, (name,))
            _end_tokens(changes, gone)

        await self._scheme.change(plan)

    async def keep_secret(self, name: str, new: bytes) -> bytes:
        """Return the secret of a name; `new` is stored as it where there is none."""

        def plan(changes: RowChanges) -> bytes:
            rows = changes.row_sets.get(STORED_SECRETS)
            row: Any = None if rows is None else rows.get((name,))
            if row is not None and isinstance(row.get("value"), bytes):
                stored: bytes = row["value"]
                return stored
            if rows is None:
                changes.create_row_set(STORED_SECRETS, [("name", "str")], ["value"])
            changes.put(STORED_SECRETS, (name,), {"value": new})
            return new

        return await self._scheme.change(plan)


class TokenChanges:
    """Each is durable when its call returns. They raise as `Scheme.change`."""

    def __init__(self, scheme: Scheme) -> None:
        self._scheme = scheme

    async def add(self, record: TokenRecord, count_max: int, now_ms: int) -> bool:
        """Add a token, and remove those whose time is over; False if there are `count_max` then."""

        def plan(changes: RowChanges) -> bool:
            rows = changes.row_sets.get(STORED_TOKENS)
            if rows is None:
                changes.create_row_set(STORED_TOKENS, [("id", "str")], _TOKEN_COLUMNS)
            over = [key for key, row in rows or () if _is_over(row, now_ms)]
            for key in over:
                changes.delete(STORED_TOKENS, key)
            if rows is not None and len(rows) - len(over) >= count_max:
                return False
            changes.put(STORED_TOKENS, (record.token_id,), record.fields())
            return True

        return await self._scheme.change(plan)

    async def remove(self, token_id: str) -> None:
        await self._scheme.change(lambda changes: changes.delete(STORED_TOKENS, (token_id,)))


def _end_tokens(changes: RowChanges, users: Collection[str]) -> None:
    rows = changes.row_sets.get(STORED_TOKENS)
    for key, row in rows or () if users else ():
        if row.get("user") in users:
            changes.delete(STORED_TOKENS, key)


def _is_over(row: Row, now_ms: int) -> bool:
    expires_ms = row.get("expires_ms")
    return isinstance(expires_ms, int) and expires_ms <= now_ms
