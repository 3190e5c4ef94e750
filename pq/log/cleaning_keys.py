"""The last offset of each key of a log, in memory of a fixed size: what a cleaner knows of it (semantics G.3).

A table of open addressing with one slot for each key: what stands for the key, and its offset plus 1; 0 marks a free
slot. Pages of the table take memory once keys come to lie there.
"""

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from mmap import mmap
from struct import Struct
from typing import Final

from pqbroker.protocol.cleaned_batches import PlacedRecord

DIGEST_BYTES: Final = 16
SLOT_BYTES: Final = DIGEST_BYTES + 8
_OFFSET: Final = Struct("<Q")
_FREE: Final = bytes(8)


def key_digest(key: bytes) -> bytes:
    """Return what stands for a key in memory: equal for equal keys, and for no other two in 2^64 of them, about.

    Shorter keys stand for themselves, and end with their length, as no two of them are mistaken for each other.
    """
    size = len(key)
    if size < DIGEST_BYTES:
        return key.ljust(DIGEST_BYTES - 1, b"\0") + b"%c" % size
    return blake2b(key, digest_size=DIGEST_BYTES).digest()


class LastOffsets:
    """The last offset of each key in the batches that were looked at: at most `keys_max` keys."""

    __slots__ = ("_count", "_memory", "_slots", "keys_max")

    def __init__(self, keys_max: int, load_factor: float = 0.9) -> None:
        """`load_factor`: part of the slots that may be taken; the more, the longer a key is looked for."""
        self.keys_max = keys_max
        self._slots = max(int(keys_max / load_factor), keys_max + 1)
        self._memory = mmap(-1, self._slots * SLOT_BYTES)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def take(self, records: Iterable[PlacedRecord]) -> bool:
        """Look at the records of one batch. False: they may have more keys than there is room for, so none is taken.

        Batches come in the order of their offsets. A cleaning ends before the first one that is not taken.
        """
        digests = {key_digest(record.key): record.offset for record in records if record.key is not None}
        if self._count + len(digests) > self.keys_max and not self._fits(list(digests)):
            return False
        for digest, offset in digests.items():
            position, is_free = self._find(digest)
            if is_free:
                self._memory[position : position + DIGEST_BYTES] = digest
                self._count += 1
            _OFFSET.pack_into(self._memory, position + DIGEST_BYTES, offset + 1)
        return True

    def last(self, key: bytes) -> int:
        """The last offset of the key; -1 if it was not seen."""
        position, _ = self._find(key_digest(key))
        found: int = _OFFSET.unpack_from(self._memory, position + DIGEST_BYTES)[0]
        return found - 1

    def _find(self, digest: bytes) -> tuple[int, bool]:
        """Position of the key's slot, or of the free one that it would take, and whether it is free."""
        memory, size = self._memory, self._slots * SLOT_BYTES
        position = hash(digest) % self._slots * SLOT_BYTES  # keys that begin alike do not lie together
        while True:
            slot = memory[position : position + SLOT_BYTES]
            if slot.endswith(_FREE):
                return position, True
            if slot.startswith(digest):
                return position, False
            position += SLOT_BYTES
            if position == size:
                position = 0

    def _fits(self, digests: Sequence[bytes]) -> bool:
        new = sum(self._find(digest)[1] for digest in digests)
        return self._count + new <= self.keys_max
