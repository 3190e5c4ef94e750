"""A disk that loses power: files and directories with what is synced and what is not, and what a cut may leave of it.

A file's writes and sizes are safe from the end of a sync that began after them; until then any 4 KiB unit of them may
be there or not, whole or torn at a sector. A unit is written out with all that it holds, so that of several writes to
it a later one is never there without those before. Names are safe from the end of a sync of their directory; until then
the last changes of them, as many as chance wants, may be gone. That they go in order is more than POSIX promises, but
every file system with a journal keeps to it, and RocksDB counts on it: it renames CURRENT before it syncs new tables'
names.
"""

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from tests.faults.power.recording import Event

C = TypeVar("C")
D = TypeVar("D")
_UNIT_BYTES = 4096
_SECTOR_BYTES = 512


@dataclass(slots=True)
class Change:
    """A write at a position, or (no data) a new size, which only grows the file when `grows`."""

    position: int
    data: bytes | None = None
    grows: bool = False


class History(Generic[C, D]):
    """A content as it is synced, the changes since, and the content as processes see it; `make` makes a change."""

    def __init__(self, new: Callable[[], C], make: Callable[[C, D], None]) -> None:
        self.synced = new()
        self.live = new()
        self.pending: list[D] = []
        self._make = make
        self._settled = 0
        """Changes that were synced, since the beginning."""

    def change(self, change: D) -> None:
        self.pending.append(change)
        self._make(self.live, change)

    @property
    def count(self) -> int:
        return self._settled + len(self.pending)

    def sync(self, count: int) -> None:
        """The first `count` changes are safe."""
        done = count - self._settled
        if done > 0:
            for change in self.pending[:done]:
                self._make(self.synced, change)
            del self.pending[:done]
            self._settled = count


class File:
    """Bytes."""

    def __init__(self) -> None:
        self.history: History[bytearray, Change] = History(bytearray, apply)


class Directory:
    """Names; a change sets some of them at once (None: gone)."""

    def __init__(self) -> None:
        self.history: History[Names, Mapping[str, File | Directory | None]] = History(dict, rename)


Names = dict[str, File | Directory]


class Disk:
    """Takes events in order. `root` is the directory that holds what is recorded; it was there before."""

    def __init__(self, root: Path) -> None:
        self.root = Directory()
        self._path = root
        self._open: dict[int, File | Directory] = {}
        self._positions: dict[int, int] = {}
        self._syncs: dict[int, tuple[History[Any, Any], int]] = {}

    def start_process(self) -> None:
        """A new process begins: the one before has closed everything, and what it synced last never ended."""
        self._open.clear()
        self._positions.clear()
        self._syncs.clear()

    def take(self, event: Event) -> None:
        """Do what the event says."""
        if event.kind in "WTG":
            self._change(event)
        elif event.kind == "O":
            self._open_path(event)
        elif event.kind == "C":
            self._open.pop(event.file, None)
        elif event.kind == "B":
            history = self._open[event.file].history
            self._syncs[event.number] = history, history.count
        elif event.kind == "E":
            history, count = self._syncs.pop(event.number)
            history.sync(count)
        elif event.kind == "R":
            self._rename(*event.data.decode().split("\0"))
        elif event.kind == "L":
            self._link(*event.data.decode().split("\0"))
        elif event.kind in "UD":
            parent, name = self._find(event.data.decode())
            parent.history.change({name: None})
        elif event.kind == "M":
            parent, name = self._find(event.data.decode())
            parent.history.change({name: Directory()})
        else:
            assert event.kind == "S", event.kind

    def _change(self, event: Event) -> None:
        file = self._open[event.file]
        assert isinstance(file, File)
        if event.kind != "W":
            file.history.change(Change(event.number, grows=event.kind == "G"))
            return
        position = event.number
        if position < 0:
            position = self._positions[event.file]
            self._positions[event.file] += len(event.data)
        file.history.change(Change(position, event.data))

    def _open_path(self, event: Event) -> None:
        path = event.data.decode()
        if path == str(self._path):
            self._open[event.file] = self.root
            return
        parent, name = self._find(path)
        item = parent.history.live.get(name)
        if item is None:
            assert event.number & os.O_CREAT, event
            item = File()
            parent.history.change({name: item})
        elif event.number & os.O_TRUNC and isinstance(item, File) and item.history.live:
            item.history.change(Change(0))
        self._open[event.file] = item
        self._positions[event.file] = len(item.history.live) if event.number & os.O_APPEND else 0

    def _rename(self, old: str, new: str) -> None:
        parent, old_name = self._find(old)
        target, new_name = self._find(new)
        assert parent is target, f"{old} is renamed into another directory"
        parent.history.change({old_name: None, new_name: parent.history.live[old_name]})

    def _link(self, old: str, new: str) -> None:
        """Give a file another name: what is written through one of them is in the other."""
        origin, old_name = self._find(old)
        target, new_name = self._find(new)
        target.history.change({new_name: origin.history.live[old_name]})

    def _find(self, text: str) -> tuple[Directory, str]:
        """The directory of a path, and the last name in it."""
        *above, name = Path(text).relative_to(self._path).parts
        directory = self.root
        for part in above:
            found = directory.history.live[part]
            assert isinstance(found, Directory)
            directory = found
        return directory, name


def apply(content: bytearray, change: Change) -> None:
    """Make one change of a file."""
    position, data = change.position, change.data
    if data is not None:
        if position > len(content):
            content.extend(bytes(position - len(content)))
        content[position : position + len(data)] = data
    elif position > len(content):
        content.extend(bytes(position - len(content)))
    elif not change.grows:
        del content[position:]


def rename(names: Names, changes: Mapping[str, File | Directory | None]) -> None:
    """Make one change of a directory."""
    for name, item in changes.items():
        if item is None:
            names.pop(name, None)
        else:
            names[name] = item


def cut_power(root: Directory, into: Path, source: random.Random) -> None:
    """Write what a power cut leaves into a directory. What is not synced is there with a chance of its own each time:
    nothing of it, all of it, or some."""
    share = source.choice([0.0, 0.0, 0.2, 0.5, 0.8, 1.0])
    _write_directory(root, into, source, share, {})


def _write_directory(
    directory: Directory, into: Path, source: random.Random, share: float, written: dict[File, Path]
) -> None:
    """`written`: files that have a name already."""
    left = dict(directory.history.synced)
    count = len(directory.history.pending)
    kept = round(share * count) if share in (0, 1) else source.randint(0, count)
    for names in directory.history.pending[:kept]:
        rename(left, names)
    for name, item in left.items():
        if isinstance(item, Directory):
            (into / name).mkdir()
            _write_directory(item, into / name, source, share, written)
        elif item in written:
            os.link(written[item], into / name)
        else:
            (into / name).write_bytes(left_of(item, source, share))
            written[item] = into / name


def left_of(file: File, source: random.Random, share: float) -> bytes:
    content = bytearray(file.history.synced)
    writes = Counter(start // _UNIT_BYTES for change in file.history.pending for start, _ in _units(change))
    kept = {unit: sum(source.random() < share for _ in range(count)) for unit, count in writes.items()}
    for change in file.history.pending:
        if change.data is None:
            if source.random() < share:
                apply(content, change)
            continue
        for start, stop in _units(change):
            unit = start // _UNIT_BYTES
            kept[unit] -= 1
            if kept[unit] < 0:
                continue
            end = _torn_at(start, stop, source) if kept[unit] == 0 else stop
            if end > start:
                apply(content, Change(start, change.data[start - change.position : end - change.position]))
    return bytes(content)


def _units(change: Change) -> Iterator[tuple[int, int]]:
    """The parts of a write that fall into one unit each: begin and end."""
    start, end = change.position, change.position + len(change.data or b"")
    while start < end:
        stop = min(start - start % _UNIT_BYTES + _UNIT_BYTES, end)
        yield start, stop
        start = stop


def _torn_at(start: int, stop: int, source: random.Random) -> int:
    """Where what is left of the last write to a unit ends: at its end, or at a sector within."""
    if source.random() < 0.1:
        return max(start, source.randrange(start, stop) // _SECTOR_BYTES * _SECTOR_BYTES)
    return stop
