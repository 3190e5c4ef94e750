"""Where a bit is flipped: in the last acknowledged round, or anywhere in the files of a kind."""

import random
from pathlib import Path
from typing import NamedTuple

from tests.faults.flips.life import Left

KINDS = {
    "log": ("**/index-*/commits/*.commits",),
    "end": ("**/index-*/commits/*.end",),
    "segment": ("**/blobs/*.segment",),
    "index": ("**/index-*/*.sst", "**/index-*/MANIFEST-*", "**/index-*/CURRENT"),
    "cell": ("**/cell", "**/cell.copy"),
    "pool": ("**/blobs/pool",),
}
LAST_ROUND = "last round"
_WEIGHTS = {"log": 4, "end": 2, "segment": 4, "index": 4, "cell": 2, "pool": 1}
_BEHIND_BYTES = 64
"""Flipped too behind the end of a file's records, where room was taken for more."""
_SMALL_FILE_BYTES = 2_000
"""Bytes that a small file counts as, when one of a kind is chosen."""


class Flip(NamedTuple):
    """One bit; the path is relative to the directory."""

    kind: str
    path: Path
    position: int
    bit: int

    def make(self, directory: Path) -> None:
        with (directory / self.path).open("r+b") as file:
            file.seek(self.position)
            (byte,) = file.read(1)
            file.seek(self.position)
            file.write(bytes([byte ^ 1 << self.bit]))


def choose(left: Left, source: random.Random) -> Flip:
    """A bit of a cell's last round in half of the cases."""
    bit = source.randrange(8)
    if left.lasts and source.random() < 0.5:
        last = source.choice(left.lasts)
        return Flip(LAST_ROUND, last.path, source.randrange(last.begin, last.end), bit)
    found = {kind: _files(left.directory, patterns) for kind, patterns in KINDS.items()}
    kinds = [kind for kind, files in found.items() if files]
    (kind,) = source.choices(kinds, [_WEIGHTS[kind] for kind in kinds])
    files = found[kind]
    (path,) = source.choices(list(files), [max(size, _SMALL_FILE_BYTES) for size in files.values()])
    return Flip(kind, path.relative_to(left.directory), source.randrange(files[path]), bit)


def _files(directory: Path, patterns: tuple[str, ...]) -> dict[Path, int]:
    """Files that are not empty, and how many bytes of each may be flipped."""
    found = {}
    for path in sorted(path for pattern in patterns for path in directory.glob(pattern)):
        content = path.read_bytes()
        if content:
            found[path] = min(len(content.rstrip(b"\0")) + _BEHIND_BYTES, len(content))
    return found
