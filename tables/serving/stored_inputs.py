"""Places of a sorted tablet's chunks and logs, as a worker is given them to read rows at a timestamp.

Nothing is kept for a reader: it opens the files that it is given, and so reads them to its end, whatever is merged and
removed meanwhile. One that finds a file gone before it is open asks again, and is given what the tablet has by then:
clean-up leaves what readers at their timestamps see (`open_reads`).
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from pqbroker.storage.engine import BlobCorrupt, BlobMissing, Buffer, CommitRefused, FileRange, ShardLost
from pqbroker.storage.kv.changing_values import see_deletions
from pqbroker.storage.kv.commands import KeyMissing
from pqbroker.storage.kv.tablet import KeyValueTablet
from pqbroker.tables.refusals import TableError
from pqbroker.tables.serving.merging import MergeInput
from pqbroker.tables.serving.stored_keys import chunk_data_key
from pqbroker.tables.serving.tablet import SortedTablet

LOCATE_ATTEMPTS_MAX: Final = 10
"""Tries to locate inputs that are merged or moved meanwhile."""
KeyBounds = tuple[bytes, bytes | None]
"""Keys from the first to before the second; None: to the last one."""


class LocatedInputs(NamedTuple):
    """Places of inputs as a message has them, the bytes of those that lie in no file, and the tablet's chunk count."""

    documents: Sequence[Mapping[str, Any]]
    payload: Sequence[Buffer]
    chunks: int


async def locate_inputs(tablet: SortedTablet, timestamp: int, ranges: Sequence[KeyBounds]) -> LocatedInputs:
    """Return the places of all that a reader at a timestamp may see in ranges of keys. It waits for writes on their way
    at or below the timestamp.

    TableError WRONG_STATE, TABLET_STARTING, TABLET_NOT_OPEN, TIMESTAMP_TOO_OLD, TABLET_DAMAGED, TABLET_BUSY; ShardLost.
    """
    await tablet.settle(timestamp)
    for _ in range(LOCATE_ATTEMPTS_MAX):
        tablet.check()
        tablet.check_timestamp(timestamp)
        kv, inputs = tablet.kv, _inputs(tablet, timestamp, ranges)
        try:
            return await _located(kv, inputs, len(tablet.structure.chunks))
        except (BlobCorrupt, BlobMissing, KeyMissing) as damage:
            with suppress(CommitRefused, ShardLost):
                await see_deletions(kv)
            if tablet.is_serving and tablet.kv is kv and _inputs(tablet, timestamp, ranges) == inputs:
                raise _damaged(tablet, damage) from None  # else it was merged or flushed meanwhile
    text = f"chunks of {tablet.name} were replaced {LOCATE_ATTEMPTS_MAX} times while they were looked for"
    raise TableError("TABLET_BUSY", text, "Try again.")


def _damaged(tablet: SortedTablet, damage: Exception) -> TableError:
    cure = "Stop the broker, see what `pqbroker doctor` says, and restore the directory from a copy."
    return TableError("TABLET_DAMAGED", f"stored rows of {tablet.name} are unreadable: {damage}", cure)


def _inputs(tablet: SortedTablet, timestamp: int, ranges: Sequence[KeyBounds]) -> list[MergeInput]:
    logs = [item for store in tablet.stores for item in tablet.log_inputs(store)]
    chunks = [
        MergeInput("chunk", chunk_data_key(chunk.number))
        for chunk in tablet.structure.chunks.values()
        if chunk.record.least_timestamp <= timestamp
        and any(first <= chunk.last_key and (end is None or chunk.first_key < end) for first, end in ranges)
    ]
    return [*logs, *chunks]


async def _located(kv: KeyValueTablet, inputs: Sequence[MergeInput], chunks: int) -> LocatedInputs:
    """Locate inputs. Blocks of chunks have checksums that their reader looks at; logs are verified here."""
    places: dict[bytes, Sequence[Buffer | FileRange]] = {}
    for name, by_reader in (("log", False), ("chunk", True)):
        keys = [key for kind, key in inputs if kind == name]
        found = await kv.verify([(key, 0, _size(kv, key)) for key in keys], by_reader=by_reader)
        small = [key for key, at in zip(keys, found, strict=True) if at is None]
        places.update((key, at) for key, at in zip(keys, found, strict=True) if at is not None)
        places.update(zip(small, await kv.read([(key, 0, 0) for key in small]), strict=True))
    documents: list[Mapping[str, Any]] = []
    payload: list[Buffer] = []
    for kind, key in inputs:
        pieces: list[Any] = []
        for part in places[key]:
            if isinstance(part, FileRange):
                pieces.append([part.path, part.position, part.size])
            else:
                pieces.append(len(part))
                payload.append(part)
        documents.append({"kind": kind, "pieces": pieces})
    return LocatedInputs(documents, payload, chunks)


def _size(kv: KeyValueTablet, key: bytes) -> int:
    entry = kv.entry(key)
    if entry is None:
        raise KeyMissing(key)
    return entry.size
