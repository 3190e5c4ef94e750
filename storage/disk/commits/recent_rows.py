"""Rows of the last rounds, which the index has not yet: it gets those of many rounds at once, of each key the last.

The commit log has them already. So what the index costs is paid once for many rounds, and a row that several of them
change, as a producer's state or the head blobs of a partition, is written once.
"""

from collections.abc import Callable
from threading import Lock
from typing import TypeVar

from pqbroker.storage.disk.commits.index_changes import GONE, IndexBatch, IndexChanges

ROUNDS_MAX = 32
BYTES_MAX = 1 << 18
"""Bytes of changes, after which the index gets them."""

Batch = TypeVar("Batch", bound=IndexBatch)
Get = Callable[[list[bytes]], list[bytes | None]]


class RecentRows:
    """The recent rows of one index. The commit thread adds; any thread looks, and hands over before it walks."""

    __slots__ = ("_bytes", "_lock", "_rounds", "_rows")

    def __init__(self) -> None:
        self._rows: dict[bytes, bytes] = {}
        """Replaced by another once the index has it: who looks at it first and then at the index misses nothing."""
        self._rounds = 0
        self._bytes = 0
        self._lock = Lock()

    @property
    def is_full(self) -> bool:
        return self._rounds >= ROUNDS_MAX or self._bytes >= BYTES_MAX

    def add(self, changes: IndexChanges) -> None:
        """A round that deletes no range."""
        with self._lock:
            self._rows.update(changes.rows())
            self._rounds += 1
            self._bytes += changes.encoded_bytes()

    def get(self, keys: list[bytes], get_older: Get) -> list[bytes | None]:
        """Values of the keys, None where absent; `get_older`: those that the index has."""
        rows = self._rows
        recent = {key: rows[key] for key in keys if key in rows}
        if not recent:
            return get_older(keys)
        others = [key for key in keys if key not in recent]
        found: dict[bytes, bytes | None] = {**recent, **dict(zip(others, get_older(others), strict=True))}
        return [None if found[key] is GONE else found[key] for key in keys]

    def hand_over(self, begin: Callable[[], Batch], write: Callable[[Batch], None]) -> None:
        """Write to the index, in a batch of its own, what it lacks; kept where that fails."""
        with self._lock:
            if not self._rounds:
                return
            batch = begin()
            for key, value in self._rows.items():
                if value is GONE:
                    batch.delete(key)
                else:
                    batch.put(key, value)
            write(batch)
            self._rows = {}
            self._rounds = self._bytes = 0
