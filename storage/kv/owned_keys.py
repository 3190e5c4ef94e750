"""The usual request to a KV tablet: keys that one owner sets, and keys of its that go. Planned straight.

What is unusual leaves before anything is planned, and becomes commands (plan.py): values in several blobs, blobs with
several holders, and values that are replaced but are not rows; and all of a tablet with limited channels.
"""

from collections.abc import Mapping, Sequence

from pqbroker.storage.engine import Batch, BlobKey, Buffer
from pqbroker.storage.kv.commands import (
    INLINE,
    INLINE_BYTES_MAX,
    MAIN,
    PIECE_BYTES_MAX,
    Command,
    DeleteRange,
    Write,
)
from pqbroker.storage.kv.rows import ROW_FORM, SHARED_FORM, Entry
from pqbroker.storage.tablets.tablet import USER_CHANNEL, TabletStorage

Put = tuple[bytes, Sequence[Buffer], int, bool]
"""Key; value as buffers and bytes of them; whether it is a row whatever its size."""

Changes = dict[bytes, Entry | None]
"""New entries by key; None deletes."""


class OwnedKeys:
    """Plans such requests over a tablet's entries, which only the tablet changes."""

    __slots__ = ("_entries", "_inline_bytes_max", "_storage")

    def __init__(self, storage: TabletStorage, entries: Mapping[bytes, Entry], inline_bytes_max: int) -> None:
        self._storage = storage
        self._entries = entries
        self._inline_bytes_max = inline_bytes_max

    def plan(self, batch: Batch, puts: Sequence[Put], gone: Sequence[bytes], now_ms: int) -> Changes | None:
        """Put the request into the empty batch: what it changes; None when it needs the general road.

        Raises Blocked when a later instance of the tablet runs.
        """
        changes = self._deletions(batch, gone)
        if changes is None or not self._are_usual(puts):
            return None
        storage, rows = self._storage, batch.rows
        prefix = storage.prefix
        size = 0
        for key in changes:
            rows.append((prefix + key, None))
            size += len(key)
        for key, buffers, value_bytes, is_row in puts:
            if is_row or value_bytes < self._inline_bytes_max:
                entry = Entry.inline(now_ms, buffers, value_bytes)
            else:
                entry = Entry.chained(now_ms, storage.put_blob(batch, USER_CHANNEL, buffers, value_bytes), value_bytes)
            changes[key] = entry
            rows.append((prefix + key, entry.row))
            size += len(key) + len(entry.row)
        batch.bytes += size + len(prefix) * len(rows)
        return changes

    def _deletions(self, batch: Batch, gone: Sequence[bytes]) -> Changes | None:
        changes: Changes = {}
        dead: list[BlobKey] = []
        for key in gone:
            before = self._entries.get(key)
            if before is None:
                continue
            form = before.row[0]
            if form == SHARED_FORM:
                return None
            if form != ROW_FORM:
                dead += before.blobs()
            changes[key] = None
        batch.dead = dead
        return changes

    def _are_usual(self, puts: Sequence[Put]) -> bool:
        for key, _, size, is_row in puts:
            before = self._entries.get(key)
            if size > (INLINE_BYTES_MAX if is_row else PIECE_BYTES_MAX):
                return False
            if before is not None and before.row[0] != ROW_FORM:
                return False
        return not self._storage.is_limited


def as_commands(puts: Sequence[Put], gone: Sequence[bytes]) -> list[Command]:
    """Return the same request as commands, for the general way."""
    return [
        *(DeleteRange(key, True, key, True) for key in gone),
        *(Write(key, buffers, size, INLINE if is_row else MAIN) for key, buffers, size, is_row in puts),
    ]
