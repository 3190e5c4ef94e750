"""The mark of a cell: up to which change of the scheme its tablets were made, moved or dropped.

    clear --`ahead` entered, and a tablet created--> ahead --`ahead` left: the scheme decided--> clear
    ahead --a crash--> ahead --checked by the scheme itself--> clear at the next commit

Only a node that knows the scheme up to the mark may take a tablet that no object names for a dead one: to an older copy
of the scheme the tablets of newer topics look dead. While a tablet is made before the scheme names it, as by a move, no
mirror of the scheme can tell. The system cell has no mark: the scheme itself is in it.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from struct import Struct

from pqbroker.storage.engine import Batch, CommitRefused, Shard, ShardLost
from pqbroker.storage.tablets.cell_facts import SCHEME_KEY

_MARK_FORM = 1
_MARK = Struct(">BQB")


def encode_mark(number: int, *, is_ahead: bool) -> bytes:
    """Return the stored form."""
    return _MARK.pack(_MARK_FORM, number, is_ahead)


def decode_mark(row: bytes) -> tuple[int, bool]:
    """Return the number of the change, and True while a tablet may be ahead of the scheme. ValueError."""
    if len(row) != _MARK.size or row[0] != _MARK_FORM or row[-1] > 1:
        raise ValueError(f"{row.hex()} is no mark that this version reads")
    _, number, is_ahead = _MARK.unpack(row)
    return number, bool(is_ahead)


class SchemeMark:
    """The mark of one opening of a cell. `row`: as it is stored; None: there is none."""

    def __init__(self, shard: Shard, row: bytes | None) -> None:
        self._shard = shard
        self._known: Callable[[], int] | None = None
        self._unfinished = 0
        self._number, self._was_ahead, self._damage = 0, False, ""
        try:
            self._number, self._was_ahead = (0, False) if row is None else decode_mark(row)
        except ValueError as bad:
            self._damage = str(bad)

    def follow(self, known: Callable[[], int]) -> None:
        """`known` gives the number of the scheme's last change, which changes of the cell are made under."""
        self._known = known

    def put(self, batch: Batch) -> None:
        """Have a commit that creates or drops tablets raise the mark."""
        if self._known is not None and not self._damage:
            # Raised before the commit is durable: a mark that is too high keeps tablets, never removes them.
            self._number = max(self._number, self._known())
            is_ahead = self._unfinished > 0 or self._was_ahead
            batch.put(SCHEME_KEY, encode_mark(self._number, is_ahead=is_ahead))

    @asynccontextmanager
    async def ahead(self) -> AsyncIterator[None]:
        """Within it tablets are created that the scheme is to name later. Where that ends with ShardLost they stay
        ahead: what the scheme decided is unknown."""
        self._unfinished += 1
        try:
            yield
        except ShardLost:
            raise
        except BaseException:
            self._unfinished -= 1
            raise
        self._unfinished -= 1
        batch = Batch()
        self.put(batch)
        if batch.rows and not self._unfinished:
            with suppress(CommitRefused, ShardLost):  # the stored mark stays ahead, which is safe; losses are watched
                await self._shard.commit(batch)

    def checked(self) -> None:
        """Note that the scheme itself was compared with the cell: nothing that was made before is ahead of it."""
        self._was_ahead = False

    def why_kept(self, number: int, *, is_mirror: bool) -> str:
        """Return why a node that knows the scheme up to `number` removes nothing from the cell; empty: it may."""
        if self._damage:
            return f"its mark of the scheme is unreadable: {self._damage}"
        if number < self._number:
            return (
                f"its tablets were changed under change {self._number} of the scheme, and this node knows the scheme "
                f"up to change {number}"
            )
        if is_mirror and (self._unfinished or self._was_ahead):
            return "a tablet was on its way into it, and only the scheme itself knows what became of it"
        return ""
