"""Changes of a value's blobs by a Patch (spec B.1): which are read and rewritten, which stay. Nothing is read here.

A value lies in blobs that never change, and a request is planned in memory. So the blobs that diffs fall into are read
first; then one request puts new blobs in their place, and is refused if the original changed meanwhile: all of it is
done again, on the present value. Blobs that no diff touches are not read but shared with the original.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate

from pqbroker.storage.engine import BLOB_KEY_BYTES, Buffer
from pqbroker.storage.kv.commands import (
    DIFFS_MAX,
    INLINE,
    REWRITTEN_BYTES_MAX,
    Command,
    KeyMissing,
    KeyValueError,
    Patch,
    Piece,
    Splice,
)
from pqbroker.storage.kv.rows import Entry


class Patching:
    """A request with patches, on the entries as they are now. KeyValueError if one of the patches is invalid."""

    __slots__ = ("_commands", "_rewrites")

    def __init__(self, commands: Sequence[Command | Patch], entry: Callable[[bytes], Entry | None]) -> None:
        self._commands = commands
        self._rewrites = [
            _Rewrite(command, entry(command.original)) for command in commands if isinstance(command, Patch)
        ]
        size = sum(stop - start for rewrite in self._rewrites for start, stop in rewrite.runs)
        if size > REWRITTEN_BYTES_MAX:
            raise KeyValueError(
                f"the diffs touch blobs of {size} bytes in all; a request may rewrite {REWRITTEN_BYTES_MAX}:"
                " send fewer of them at a time"
            )

    def originals(self) -> list[tuple[bytes, Entry]]:
        return [(rewrite.patch.original, rewrite.entry) for rewrite in self._rewrites]

    def ranges(self) -> list[tuple[bytes, int, int]]:
        """Return what has to be read: key, offset, size."""
        return [
            (rewrite.patch.original, start, stop - start) for rewrite in self._rewrites for start, stop in rewrite.runs
        ]

    def request(self, contents: Sequence[list[Buffer]]) -> list[Command]:
        """The commands with the patches worked out; `contents` are the bytes of the ranges."""
        content = iter(contents)
        splices = iter([rewrite.splice([next(content) for _ in rewrite.runs]) for rewrite in self._rewrites])
        return [next(splices) if isinstance(command, Patch) else command for command in self._commands]


class _Rewrite:
    """One patch of the value as it was found: which runs of bytes, whole blobs each, are rewritten."""

    __slots__ = ("_starts", "entry", "patch", "runs")

    def __init__(self, patch: Patch, entry: Entry | None) -> None:
        if entry is None:
            raise KeyMissing(patch.original)
        if len(patch.diffs) > DIFFS_MAX:
            raise KeyValueError(f"{len(patch.diffs)} diffs in a patch; there may be {DIFFS_MAX}")
        for diff in patch.diffs:
            if not 0 <= diff.offset <= entry.size - len(diff.buffer):
                raise KeyValueError(
                    f"{len(diff.buffer)} bytes at {diff.offset} are not within the {entry.size} of {patch.original!r}"
                )
        self.patch = patch
        self.entry = entry
        self._starts = list(accumulate(entry.pieces, initial=0))
        """Positions where the value's blobs begin, and where the last one ends."""
        self.runs = self._touched()
        """First byte, and the one behind the last; in order, apart from one another."""

    def splice(self, contents: Sequence[list[Buffer]]) -> Splice:
        """The command that makes the patched value; `contents` are the bytes of the runs."""
        images = [_Image(start, buffers) for (start, _), buffers in zip(self.runs, contents, strict=True)]
        for diff in self.patch.diffs:
            if len(diff.buffer):
                index = bisect_right(self.runs, diff.offset, key=lambda run: run[0]) - 1
                images[index].write(diff.offset, diff.buffer)
        parts: list[bytes | Piece] = []
        end = 0
        for (start, stop), image in zip(self.runs, images, strict=True):
            parts += self._kept(end, start)
            parts.append(Piece(image.buffers, stop - start))
            end = stop
        parts += self._kept(end, self.entry.size)
        return Splice(self.patch.original, self.entry.identity, parts, self.patch.patched, self.patch.channel)

    def _touched(self) -> list[tuple[int, int]]:
        starts, size = self._starts, self.entry.size
        if self.entry.is_inline or self.patch.channel == INLINE:
            return [(0, size)]
        runs: list[tuple[int, int]] = []
        for diff in sorted((diff for diff in self.patch.diffs if len(diff.buffer)), key=lambda diff: diff.offset):
            start = starts[bisect_right(starts, diff.offset) - 1]
            stop = starts[bisect_left(starts, diff.offset + len(diff.buffer))]
            if runs and start <= runs[-1][1]:
                runs[-1] = runs[-1][0], max(stop, runs[-1][1])
            else:
                runs.append((start, stop))
        return runs

    def _kept(self, start: int, stop: int) -> list[bytes]:
        """The keys of the blobs from one byte to another, as a part of a splice."""
        first, last = bisect_left(self._starts, start), bisect_left(self._starts, stop)
        return [self.entry.blob_keys[first * BLOB_KEY_BYTES : last * BLOB_KEY_BYTES]] if first < last else []


class _Image:
    """A run of bytes, from the place `start` of a value on, as buffers: cut and replaced, never copied."""

    __slots__ = ("_starts", "buffers")

    def __init__(self, start: int, buffers: Sequence[Buffer]) -> None:
        self.buffers = [memoryview(buffer) for buffer in buffers or (b"",)]
        self._starts = list(accumulate(map(len, self.buffers), initial=start))
        """Positions where the buffers begin, and where the last one ends."""

    def write(self, offset: int, buffer: Buffer) -> None:
        first, last = self._cut(offset), self._cut(offset + len(buffer))
        self.buffers[first:last] = [memoryview(buffer)]
        self._starts[first:last] = [offset]

    def _cut(self, at: int) -> int:
        """Make a buffer begin, or the last one end, at a place; its index."""
        index = bisect_left(self._starts, at)
        if self._starts[index] != at:
            inside = at - self._starts[index - 1]
            cut = self.buffers[index - 1]
            self.buffers[index - 1 : index] = [cut[:inside], cut[inside:]]
            self._starts.insert(index, at)
        return index
