"""Values that requests change while they are read: requests with patches, and reads that are not torn by a change."""

from collections.abc import Sequence

from pqbroker.storage.engine import BlobMissing, Buffer
from pqbroker.storage.kv.commands import Command, Patch, ValueChanged
from pqbroker.storage.kv.patch import Patching
from pqbroker.storage.kv.rows import Entry
from pqbroker.storage.kv.tablet import KeyValueTablet
from pqbroker.storage.kv.value_parts import Range

PATCH_ATTEMPTS_MAX = 10
"""Tries of a request with patches whose originals change meanwhile."""


async def execute_patching(tablet: KeyValueTablet, commands: Sequence[Command | Patch]) -> None:
    """Execute, as `KeyValueTablet.execute` does, commands and patches, for which the originals are read before.

    What changes meanwhile is read again. Raises KeyValueError (ValueChanged when an original was changed
    `PATCH_ATTEMPTS_MAX` times), CommitRefused, BlobCorrupt, ShardLost.
    """
    attempts = 1
    while True:
        patching = Patching(commands, tablet.entry)
        try:
            contents = await read_unchanged(tablet, patching.originals(), patching.ranges())
            return await tablet.execute(patching.request(contents))
        except ValueChanged:
            if attempts == PATCH_ATTEMPTS_MAX:
                raise
            attempts += 1


async def see_deletions(tablet: KeyValueTablet) -> None:
    """Wait until what was deleted on the disk is deleted for readers of keys too: a blob may be missing a moment before
    its key is. CommitRefused, ShardLost."""
    await tablet.execute(())


async def read_unchanged(
    tablet: KeyValueTablet, entries: Sequence[tuple[bytes, Entry]], ranges: Sequence[Range]
) -> list[list[Buffer]]:
    """Read, as `KeyValueTablet.read` does, the values that these entries are. Raises ValueChanged when a request
    deletes blobs of them."""
    try:
        return await tablet.read(ranges)
    except BlobMissing:
        await see_deletions(tablet)
        for key, entry in entries:
            if tablet.entry(key) is not entry:
                raise ValueChanged(key) from None
        raise
