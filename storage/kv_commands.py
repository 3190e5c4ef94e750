"""What a request to a KV tablet says: its commands and their refusals (spec B.1).

Commands of one request run by their `order`, whatever place they have in it: CheckGeneration, DeleteRange, Rename,
CopyRange, Concat, Write (spec H12). What is read is in kv_reads.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pqbroker.storage.engine import Buffer

MAIN = 0
"""The channel of values unless another is named; EXTRA 1 to 9 follow. One that the tablet does not have means MAIN."""
EXTRA_MAX = 9
INLINE = 65_535
"""The value is kept in the index row itself, whatever the tablet's threshold."""

INLINE_BYTES_MAX = 65_536
PIECE_BYTES_MAX = 8 * (1 << 20)
"""A larger value is cut into blobs of this size."""
KEY_BYTES_MAX = 1024
DELETED_KEYS_MAX = 100_000
"""Keys that the DeleteRange commands of one request may cover."""


class KeyValueError(Exception):
    """The request cannot be: it fails whole and nothing of it is applied."""


class KeyMissing(KeyValueError):
    """There is no such key (NODATA)."""

    def __init__(self, key: bytes) -> None:
        super().__init__(f"there is no key {key!r}")
        self.key = key


class GenerationMismatch(KeyValueError):
    """The tablet's user generation is not the one that the request is for."""


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The keys from `lo` to `hi` (None: to the last one); each end only when included."""

    lo: bytes
    include_lo: bool
    hi: bytes | None
    include_hi: bool


@dataclass(frozen=True, slots=True)
class Write:
    """Set a key to `size` bytes, the buffers end to end. The buffers must not change until the request is done.

    `created_ms`: when the value was made, milliseconds since 1970; None: now.
    """

    order: ClassVar[int] = 4
    key: bytes
    buffers: Sequence[Buffer]
    size: int
    channel: int = MAIN
    created_ms: int | None = None


@dataclass(frozen=True, slots=True)
class DeleteRange:
    """Delete the keys from `lo` to `hi` (None: to the last one); each end only when included."""

    order: ClassVar[int] = 0
    lo: bytes
    include_lo: bool
    hi: bytes | None
    include_hi: bool


@dataclass(frozen=True, slots=True)
class Rename:
    """Move a value to another key, over what that key held. The value itself is not copied."""

    order: ClassVar[int] = 1
    old: bytes
    new: bytes


@dataclass(frozen=True, slots=True)
class CopyRange:
    """Copy, by reference, the keys of a range (None: all) that begin with `prefix_to_remove`, under a new prefix."""

    order: ClassVar[int] = 2
    within: KeyRange | None
    prefix_to_remove: bytes = b""
    prefix_to_add: bytes = b""


@dataclass(frozen=True, slots=True)
class Piece:
    """New bytes among a Concat's inputs: `size` bytes, the buffers end to end, stored as a blob of their own."""

    buffers: Sequence[Buffer]
    size: int


@dataclass(frozen=True, slots=True)
class Concat:
    """Chain the inputs' values under `output`, by reference; the inputs go unless they are kept."""

    order: ClassVar[int] = 3
    inputs: tuple[bytes | Piece, ...]
    output: bytes
    keep_inputs: bool = False


@dataclass(frozen=True, slots=True)
class CheckGeneration:
    """Refuse the whole request unless the tablet's user generation is this one."""

    order: ClassVar[int] = -1
    generation: int


@dataclass(frozen=True, slots=True)
class IncrementGeneration:
    """Raise the tablet's user generation by one: who knows only the one before is locked out. No other command may
    stand beside it."""

    order: ClassVar[int] = -1


Command = Write | DeleteRange | Rename | CopyRange | Concat | CheckGeneration | IncrementGeneration
