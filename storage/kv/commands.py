"""Commands of a request to a KV tablet, and their refusals (spec B.1).

Commands of one request run by their `order`, whatever place they have in it: CheckGeneration, DeleteRange, Rename,
CopyRange, Concat, Splice, Write (spec H12). What is read is in kv_reads.py.
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
DIFFS_MAX = 1000
"""Diffs of one patch."""
REWRITTEN_BYTES_MAX = 32 << 20
"""Bytes that the patches of one request may read and rewrite: the blobs that their diffs touch, whole."""


class KeyValueError(Exception):
    """The request is invalid: it fails as a whole and changes nothing."""


class KeyMissing(KeyValueError):
    """The key does not exist (NODATA)."""

    def __init__(self, key: bytes) -> None:
        super().__init__(f"there is no key {key!r}")
        self.key = key


class ValueChanged(KeyValueError):
    """The value that a request was made for is not there any more."""

    def __init__(self, key: bytes) -> None:
        super().__init__(f"the value of {key!r} was changed meanwhile: read it and try again")
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

    `created_ms`: when the value was made, milliseconds since 1970; None: now. `autoselect`: channels of which the
    value's blobs take the one with the most room, by colour, and of equals the first; `channel` does not count then.
    """

    order: ClassVar[int] = 5
    key: bytes
    buffers: Sequence[Buffer]
    size: int
    channel: int = MAIN
    created_ms: int | None = None
    autoselect: Sequence[int] = ()


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
    """Chain the inputs' values under `output`, by reference; the inputs go unless they are kept. `created_ms` as in
    `Write`."""

    order: ClassVar[int] = 3
    inputs: tuple[bytes | Piece, ...]
    output: bytes
    keep_inputs: bool = False
    created_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Diff:
    """Bytes for the place `offset` of a value. The buffer must not change until the request is done."""

    offset: int
    buffer: Buffer


@dataclass(frozen=True, slots=True)
class Patch:
    """Set `patched` to the value of `original` with the diffs written over it, a later one over an earlier one.

    The size stays: a diff that reaches beyond the end fails the request. The original stays too, unless both keys are
    the same. New blobs go to `channel`, and INLINE takes the whole value into the row; a blob that no diff touches
    stays where it is. Patches run after Concat and before Write, on originals that no earlier command has changed.
    """

    original: bytes
    patched: bytes
    diffs: Sequence[Diff]
    channel: int = MAIN


@dataclass(frozen=True, slots=True)
class Splice:
    """Chain under `output` blobs of `original`, by reference, and new bytes: what Patch becomes once it has read.

    `parts`: the keys of blobs that stay, end to end, or new bytes for `channel`. A single part of new bytes is stored
    as a Write's value is. Refused with ValueChanged unless the original's value still has the identity `seen`.
    """

    order: ClassVar[int] = 4
    original: bytes
    seen: bytes
    parts: Sequence[bytes | Piece]
    output: bytes
    channel: int = MAIN


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


Command = Write | DeleteRange | Rename | CopyRange | Concat | Splice | CheckGeneration | IncrementGeneration
