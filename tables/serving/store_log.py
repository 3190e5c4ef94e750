"""The log of one memory store: a key of the KV tablet for each commit, fewer as it grows (C.2).

Small entries are put together as the blobs of a head are: once `MERGED` of one level or below stand at the end, one
entry of the next level takes their place, in the request of the commit that completes them. An entry that has
become a blob is left as it is; where `CHAINED` such and smaller ones stand at the end they are chained by reference. So
the store of the largest size has some thousand keys, and a row is written again only as long as its entry is small.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from pqbroker.storage.kv.commands import Command, Concat, DeleteRange, Write
from pqbroker.storage.kv.tablet import KeyValueTablet
from pqbroker.tables.serving.stored_keys import log_key

MERGED: Final = 32
CHAINED: Final = 128
"""More than small entries alone can be: there are `MERGED` of each level at most, and three levels."""
_BLOB_LEVEL = 100
"""Level of a blob that was not chained yet."""


class LogWrite(NamedTuple):
    """The commands of one commit, and the entries that the log has once it is durable."""

    commands: Sequence[Command]
    entries: "list[_LogEntry]"
    next_entry: int


class _LogEntry(NamedTuple):
    key: bytes
    size: int
    level: int


class StoreLog:
    """Entries of one store's log, as they are durable."""

    __slots__ = ("_entries", "_inline_bytes_max", "_next_entry", "_store")

    def __init__(self, store: int, inline_bytes_max: int) -> None:
        """`inline_bytes_max`: smaller values are rows of the KV tablet."""
        self._store = store
        self._inline_bytes_max = inline_bytes_max
        self._entries: list[_LogEntry] = []
        self._next_entry = 0

    def found(self, entry: int, key: bytes, size: int, pieces: int) -> None:
        """Take an entry that a start found; they come in order. `pieces`: blobs that it is chained from."""
        self._entries.append(_LogEntry(key, size, _BLOB_LEVEL + (pieces > 1) if self._is_blob(size) else 0))
        self._next_entry = entry + 1

    def keys(self) -> list[bytes]:
        """Return the keys of the log, in order."""
        return [entry.key for entry in self._entries]

    def plan(self, kv: KeyValueTablet, value: bytes) -> LogWrite:
        """Plan the commit of one entry more. One plan at a time: `apply` it once it is durable, or forget it."""
        key = log_key(self._store, self._next_entry)
        entries = list(self._entries)
        own = _LogEntry(key, len(value), _BLOB_LEVEL if self._is_blob(len(value)) else 0)
        parts = [value]
        merged: list[bytes] = []
        while own.level < _BLOB_LEVEL:
            some = _last(entries, own.level)
            if len(some) < MERGED - 1:
                break
            del entries[-len(some) :]
            parts = [*(bytes(_stored(kv, one.key)) for one in some), *parts]
            size = sum(map(len, parts))
            merged += [one.key for one in some]
            own = _LogEntry(some[0].key, size, _BLOB_LEVEL if self._is_blob(size) else own.level + 1)
        commands: list[Command] = [DeleteRange(gone, True, gone, True) for gone in merged if gone != own.key]
        some = _last(entries, _BLOB_LEVEL)
        if len(some) >= CHAINED:
            del entries[-len(some) :]
            entries.append(_LogEntry(some[0].key, sum(one.size for one in some), _BLOB_LEVEL + 1))
            commands.append(Concat(tuple(one.key for one in some), some[0].key))
        entries.append(own)
        commands.append(Write(own.key, parts, own.size))
        return LogWrite(commands, entries, self._next_entry + 1)

    def apply(self, write: LogWrite) -> None:
        """The plan is durable."""
        self._entries = write.entries
        self._next_entry = write.next_entry

    def _is_blob(self, size: int) -> bool:
        return size >= self._inline_bytes_max


def _last(entries: Sequence[_LogEntry], level: int) -> Sequence[_LogEntry]:
    """Return the last entries that are of this level or below."""
    count = 0
    for entry in reversed(entries):
        if entry.level > level:
            break
        count += 1
    return entries[len(entries) - count :]


def _stored(kv: KeyValueTablet, key: bytes) -> memoryview:
    entry = kv.entry(key)
    assert entry is not None, "the tablet alone changes its log"
    return entry.value
