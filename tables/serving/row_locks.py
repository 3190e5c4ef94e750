"""Locks of a sorted tablet's rows, in memory: keys of prepared rows, and claims of writes that were set aside for them.

    locked   prepared by this process, no timestamp yet --deciding(T)--> decided at T --finish--> gone
             found at a start, in doubt                 --deciding(T)--> decided at T
             any                                        --finish(None)--> gone
    claimed  by the writes that wait, in the order of their arrival; each claim ends when its write begins, or fails

A write passes a key that is not locked and that no earlier write claims.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

from pqbroker.pq.transactions.stored_forms import PreparedHead, TransactionId
from pqbroker.storage.outcome import Outcome
from pqbroker.tables.sorted.log_entries import NewRow
from pqbroker.tables.sorted.store import KEY_MEMORY

_W = TypeVar("_W")


class LockedRows:
    """The rows that one transaction has prepared in a tablet. `columns`: value columns that they have; `stored_bytes`:
    size of them as they are stored."""

    __slots__ = ("columns", "end", "finishing", "head", "is_in_doubt", "memory_bytes", "rows", "timestamp")

    def __init__(
        self, head: PreparedHead, columns: int, rows: Sequence[NewRow], stored_bytes: int, *, is_in_doubt: bool
    ) -> None:
        self.head = head
        self.columns = columns
        self.rows = rows
        self.memory_bytes = stored_bytes + KEY_MEMORY * len(rows)
        """Bytes that they take in memory, as a store counts them."""
        self.is_in_doubt = is_in_doubt
        """True for rows that a start has found: they may be committed already."""
        self.timestamp: int | None = None
        """Timestamp of the commit, once it is given."""
        self.finishing: Outcome[None] | None = None
        """The outcome of `finish`, while that is on its way."""
        self.end: Outcome[None] = Outcome()
        """Done when the keys are not locked any more, or the tablet is lost."""

    def may_be_seen(self, timestamp: int) -> bool:
        """Return True if a reader at a timestamp that was given already may have to see the rows. The timestamp of a
        commit that is not given yet will be greater."""
        if self.timestamp is not None:
            return self.timestamp <= timestamp
        return self.is_in_doubt and self.head.least_timestamp < timestamp


class RowLocks(Generic[_W]):
    """Locks and claims of one tablet, by encoded key."""

    __slots__ = ("_claims", "by_key", "by_transaction", "is_contended")

    def __init__(self) -> None:
        self.by_key: dict[bytes, LockedRows] = {}
        self.by_transaction: dict[TransactionId, LockedRows] = {}
        self.is_contended = False
        """False: no key is locked or claimed, so every write passes."""
        self._claims: dict[bytes, deque[_W]] = {}

    @property
    def least_timestamp(self) -> int | None:
        """Return a timestamp that all commits of prepared rows are above; None: nothing is prepared."""
        return min((rows.head.least_timestamp for rows in self.by_transaction.values()), default=None)

    @property
    def memory_bytes(self) -> int:
        """Return the bytes that prepared rows take in memory."""
        return sum(rows.memory_bytes for rows in self.by_transaction.values())

    def lock(self, rows: LockedRows) -> None:
        self.by_transaction[rows.head.transaction] = rows
        self.by_key.update((row.key, rows) for row in rows.rows)
        self._look()

    def unlock(self, rows: LockedRows) -> bool:
        """End the locks of rows; False: they have ended with an earlier instance of the tablet."""
        if self.by_transaction.get(rows.head.transaction) is not rows:
            return False
        del self.by_transaction[rows.head.transaction]
        for row in rows.rows:
            self.by_key.pop(row.key, None)  # a transaction may have a key twice
        self._look()
        rows.end.set_result(None)
        return True

    def forget(self) -> None:
        """End all locks: the tablet is lost. Its next start finds what is prepared."""
        known, self.by_transaction, self.by_key = self.by_transaction, {}, {}
        self._look()
        for rows in known.values():
            rows.end.set_result(None)

    def blocking(self, rows: Iterable[NewRow], one: _W) -> bytes | None:
        """Return a key that a write waits for; None: it passes."""
        locks, claims = self.by_key, self._claims
        for key, _ in rows:
            if key in locks or (claims and key in claims and claims[key][0] is not one):
                return key
        return None

    def claim(self, rows: Iterable[NewRow], one: _W) -> None:
        """Have later writes of these keys wait for this one."""
        for key, _ in rows:
            waiting = self._claims.setdefault(key, deque())
            if not waiting or waiting[-1] is not one:
                waiting.append(one)
        self._look()

    def drop_claims(self, rows: Iterable[NewRow], one: _W) -> None:
        """Remove the claims of a write, which has begun or failed."""
        for key, _ in rows:
            waiting = self._claims.get(key)
            if waiting is not None and one in waiting:
                waiting.remove(one)
                if not waiting:
                    del self._claims[key]
        self._look()

    def first_claims(self, rows: Iterable[NewRow]) -> list[_W]:
        """Return the writes that come first for these keys, each once."""
        return list(dict.fromkeys(self._claims[key][0] for key, _ in rows if key in self._claims))

    def _look(self) -> None:
        self.is_contended = bool(self.by_key or self._claims)
