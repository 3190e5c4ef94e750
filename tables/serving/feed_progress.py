"""Progress of a table that is fed from a topic, beside the rows: the first tablet of the table keeps it.

    s  partition 4     the run that reads the partition, 16 bytes, and the offset that it reads next, 8
    e                  dead letters of the run: JSON

A run is one reading of the topic from some offset on. A commit of rows moves a partition's offset only from where its
run stood: rows that were read before another run began, or twice, are refused.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from struct import Struct
from typing import Final, NamedTuple

import msgspec

from pqbroker.storage.kv.commands import INLINE, Command, Write
from pqbroker.tables.refusals import TableError
from pqbroker.tables.serving.stored_keys import LETTERS_KEY, feed_key, read_feed_key

LETTERS_MAX: Final = 100
"""Dead letters of a table that are kept, the last ones."""
_OFFSET = Struct(">16sQ")
_ROWS_AT_ONCE = 1_000


class DeadLetter(NamedTuple):
    """One record that is no row of the table."""

    partition: int
    offset: int
    reason: str


class RunLetters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Dead letters of one run: how many there were, and the last ones."""

    run: str = ""
    count: int = 0
    last: tuple[DeadLetter, ...] = ()

    def followed_by(self, count: int, last: Sequence[DeadLetter]) -> "RunLetters":
        """Return these with `count` more, of which `last` are the last ones."""
        return RunLetters(self.run, self.count + count, (*self.last, *last)[-LETTERS_MAX:])


class FeedMove(NamedTuple):
    """The progress that one commit makes in a partition. `letters`: those of the run afterwards; None: as before."""

    run: bytes
    partition: int
    start: int
    end: int
    letters: RunLetters | None = None


class FeedProgress:
    """Progress of one table, as durable."""

    __slots__ = ("_offsets", "letters")

    def __init__(self) -> None:
        self._offsets: dict[int, tuple[bytes, int]] = {}
        self.letters = RunLetters()

    @classmethod
    def read(cls, rows: Iterable[tuple[bytes, bytes]], letters: bytes | None) -> "FeedProgress":
        """Read what is stored, by key. ValueError."""
        progress = cls()
        for key, value in rows:
            if len(value) != _OFFSET.size:
                raise ValueError(f"progress of a feed has {len(value)} bytes; {_OFFSET.size} are written")
            progress._offsets[read_feed_key(key)] = _OFFSET.unpack(value)
        if letters is not None:
            progress.letters = msgspec.json.decode(letters, type=RunLetters)
        return progress

    @classmethod
    def of_run(cls, run: bytes, offsets: Mapping[int, int], letters: RunLetters) -> "FeedProgress":
        """Return the progress of a run as another node tells it, by partition."""
        progress = cls()
        progress._offsets = {partition: (run, offset) for partition, offset in offsets.items()}
        progress.letters = letters
        return progress

    def offsets_of(self, run: bytes) -> list[tuple[int, int]]:
        """Return the partitions that a run has read of, each with the offset that it reads next."""
        return [(partition, offset) for partition, (known, offset) in self._offsets.items() if known == run]

    def offset_of(self, run: bytes, partition: int) -> int | None:
        """Return the offset that a run reads next; None: it has read nothing of the partition."""
        known, offset = self._offsets.get(partition, (b"", 0))
        return offset if known == run else None

    def letters_of(self, run: bytes) -> RunLetters:
        """Return the dead letters of a run."""
        return self.letters if self.letters.run == run.hex() else RunLetters(run.hex())

    def check(self, move: FeedMove) -> None:
        """Check that a move begins where its run stands. TableError FEED_MOVED."""
        stands = self.offset_of(move.run, move.partition)
        if stands is not None and stands != move.start:
            text = f"partition {move.partition} was read up to {stands} meanwhile, and these rows are from {move.start}"
            raise TableError("FEED_MOVED", text, "It continues by itself from there.")

    def commands(self, move: FeedMove) -> list[Command]:
        """Return the commands that make a move durable."""
        value = _OFFSET.pack(move.run, move.end)
        written: list[Command] = [Write(feed_key(move.partition), [value], len(value), INLINE)]
        if move.letters is not None:
            letters = msgspec.json.encode(move.letters)
            written.append(Write(LETTERS_KEY, [letters], len(letters)))
        return written

    def requests(self) -> Iterator[list[Command]]:
        """Yield requests that make all of it durable in another tablet, which takes the place of this one."""
        if self.letters.count:
            letters = msgspec.json.encode(self.letters)
            yield [Write(LETTERS_KEY, [letters], len(letters))]
        rows = [(partition, _OFFSET.pack(run, offset)) for partition, (run, offset) in self._offsets.items()]
        for first in range(0, len(rows), _ROWS_AT_ONCE):
            some = rows[first : first + _ROWS_AT_ONCE]
            yield [Write(feed_key(partition), [value], len(value), INLINE) for partition, value in some]

    def apply(self, move: FeedMove) -> None:
        """The move is durable. One of an earlier start may be told late."""
        if (self.offset_of(move.run, move.partition) or 0) > move.end:
            return
        self._offsets[move.partition] = (move.run, move.end)
        if move.letters is not None:
            self.letters = move.letters
