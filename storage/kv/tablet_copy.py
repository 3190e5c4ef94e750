"""A KV tablet copied into another cell while it serves: its rows as they are, its blobs under ids of their own there.

Rows keep when they were created, and blobs that several rows hold are held by as many there.
"""

import asyncio
from itertools import islice
from typing import Final

from pqbroker.storage.blobs.blob_id import blob_size
from pqbroker.storage.engine import Batch, BlobKey, BlobMissing
from pqbroker.storage.kv.key_ranges import GENERATION_KEY
from pqbroker.storage.kv.rows import Entry
from pqbroker.storage.kv.tablet import KeyValueTablet
from pqbroker.storage.tablets.tablet import USER_CHANNEL, TabletStorage

COPIED_BYTES: Final = 8 << 20
"""Bytes of one commit, about."""
_COPIED_ROWS = 1000
_CHANNEL_BYTE = 8
"""Position of the channel in a blob key, behind the tablet's id."""


class TabletCopy:
    """The copying of a running tablet to the storage of its copy, which nothing runs on yet."""

    def __init__(self, original: KeyValueTablet, target: TabletStorage) -> None:
        self._original = original
        self._target = target
        self._batch = Batch()
        self._rows: dict[bytes, bytes] = {}
        """Rows of the original that were copied, by key."""
        self._blobs: dict[BlobKey, BlobKey] = {}
        """Blobs of the copy by those of the original."""
        self._user_generation = 0

    async def follow(self) -> bool:
        """Bring the copy to what the original has: all at the first call, then what has changed since. False: a blob
        was not there any more; the next call takes what came in its place.

        BlobCorrupt, CommitRefused, ShardLost.
        """
        keys: set[bytes] = set()
        held: set[BlobKey] = set()
        is_whole = True
        after = b""
        while True:
            page = list(islice(self._original.keys(after), _COPIED_ROWS))
            for key, entry in page:
                keys.add(key)
                held.update(entry.blobs())
                if self._rows.get(key) != entry.row:
                    is_whole = await self._copy(key, entry) and is_whole
            if len(page) < _COPIED_ROWS:
                break
            after = page[-1][0] + b"\0"
            await self._commit()
            await asyncio.sleep(0)
        if self._user_generation != self._original.user_generation:
            self._user_generation = self._original.user_generation
            self._batch.put(self._target.prefix + GENERATION_KEY, Entry.number(0, self._user_generation).row)
        for key in self._rows.keys() - keys:
            del self._rows[key]
            self._batch.delete(self._target.prefix + key)
        for blob in self._blobs.keys() - held:
            self._batch.delete_blob(self._blobs.pop(blob))
        await self._commit()
        return is_whole

    async def _copy(self, key: bytes, entry: Entry) -> bool:
        row = entry.row
        if not entry.is_inline:
            copied = []
            for blob in entry.blobs():
                if blob not in self._blobs and not await self._copy_blob(blob):
                    return False
                copied.append(self._blobs[blob])
            row = Entry.chained(entry.created_ms, b"".join(copied), entry.size, shared=entry.is_shared).row
        self._batch.put(self._target.prefix + key, row)
        self._rows[key] = entry.row
        return True

    async def _copy_blob(self, blob: BlobKey) -> bool:
        size = blob_size(blob, 0)
        try:
            (content,) = await self._original.storage.read([(blob, 0, size)])
        except BlobMissing:
            return False
        if self._batch.bytes + size > COPIED_BYTES:
            await self._commit()
        channel = blob[_CHANNEL_BYTE]
        channel = channel if channel < self._target.channel_count else USER_CHANNEL
        self._blobs[blob] = self._target.put_blob(self._batch, channel, [content], size)
        return True

    async def _commit(self) -> None:
        if self._batch.bytes or self._batch.dead:
            batch, self._batch = self._batch, Batch()
            await self._target.commit(batch)
