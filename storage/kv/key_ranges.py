"""Keys of a KV tablet that a range holds, and whether a request touches some that are in flight."""

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet

from pqbroker.storage.kv.commands import (
    CheckGeneration,
    Command,
    Concat,
    DeleteRange,
    KeyRange,
    KeyValueError,
    Rename,
    Splice,
    Write,
)
from pqbroker.storage.kv.ordered_entries import OrderedEntries

GENERATION_KEY = b""
"""Row of the user generation: the one key that no user can have."""


def keys_within(entries: OrderedEntries, within: DeleteRange | KeyRange) -> Iterator[bytes]:
    """The keys of the range in order. KeyValueError when its ends are the wrong way round."""
    lo, hi = within.lo, within.hi
    if hi is not None and lo > hi:
        raise KeyValueError(f"the range from {lo!r} to {hi!r} is inverted")
    if lo == hi and not (within.include_lo and within.include_hi):
        return iter(())
    return entries.irange(lo, hi, (within.include_lo, within.include_hi))


def touches(commands: Sequence[Command], busy: AbstractSet[bytes]) -> bool:
    """Return True if a request changes or reads one of the keys; a command of which that is not known does."""
    for command in commands:
        if type(command) is Write:
            if command.key in busy:
                return True
        elif type(command) is DeleteRange:
            if any(covers(command, key) for key in busy):
                return True
        elif type(command) is Concat:
            if command.output in busy or any(type(item) is bytes and item in busy for item in command.inputs):
                return True
        elif type(command) is Rename:
            if command.old in busy or command.new in busy:
                return True
        elif type(command) is Splice:
            if command.original in busy or command.output in busy:
                return True
        elif type(command) is CheckGeneration:
            if GENERATION_KEY in busy:
                return True
        else:
            return True
    return False


def covers(within: DeleteRange | KeyRange, key: bytes) -> bool:
    """Return True if the key lies in the range."""
    lo, hi = within.lo, within.hi
    if key < lo or (key == lo and not within.include_lo):
        return False
    return hi is None or key < hi or (key == hi and within.include_hi)
