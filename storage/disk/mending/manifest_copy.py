"""The second copy of RocksDB's manifest: `copy-of-MANIFEST-<number>` beside it, of the same bytes.

A manifest only grows, so the copy follows by what is new: after each flush, before the commit log forgets what the
flush wrote. Its entries have checksums, and it is not synced: a copy that is older or torn only helps less. Where the
manifest is damaged its bytes are the copy's, and behind the copy's end its own. RocksDB's repair is never used, since
it brings deleted rows back.
"""

import contextlib
import logging
import re
from pathlib import Path
from typing import NamedTuple

from pqbroker.storage.disk.directory import write_durably
from pqbroker.storage.disk.manifest_check import is_whole
from pqbroker.storage.disk.mending.set_aside import set_aside

_log = logging.getLogger(__name__)
CURRENT = "CURRENT"
COPY = "copy-of-"
_CURRENT_TEXT = re.compile(rb"(MANIFEST-[0-9]{6,})\n")
_COPIES = f"{COPY}MANIFEST-*"


class ManifestCopy:
    """The copy of an open index's manifest. Calls never fail: the index does without."""

    def __init__(self, index: Path) -> None:
        self._index = index
        self._name = ""
        self._size = 0

    def begin(self) -> None:
        """Copy the manifest of this opening, and forget those before."""
        with contextlib.suppress(OSError):
            name = named_manifest(self._index) or ""
            for copy in self._index.glob(_COPIES):
                copy.unlink(missing_ok=True)
            self._name, self._size = name, 0
            self.follow()

    def follow(self) -> None:
        """Copy what is new."""
        if not self._name:
            return
        with contextlib.suppress(OSError):
            manifest = self._index / self._name
            if manifest.stat().st_size == self._size:
                return
            with manifest.open("rb") as file, (self._index / f"{COPY}{self._name}").open("ab") as copy:
                file.seek(self._size)
                copy.truncate(self._size)
                self._size += copy.write(file.read())


class WholeManifest(NamedTuple):
    """Manifest as it should be, and the damage of the file on disk."""

    name: str
    content: bytes
    damage: str


def named_manifest(index: Path) -> str | None:
    """Return the name of the manifest in `CURRENT`; None if it names no file that exists. OSError."""
    try:
        found = _CURRENT_TEXT.fullmatch((index / CURRENT).read_bytes())
    except FileNotFoundError:
        return None
    name = found[1].decode() if found else ""
    return name if found and (index / name).is_file() else None


def find_mended(index: Path) -> WholeManifest | None:
    """The manifest that the copy mends; None where nothing is damaged, or the copy does not help. OSError."""
    named = named_manifest(index)
    copies = sorted(path.name.removeprefix(COPY) for path in index.glob(_COPIES))
    name = named or (copies[-1] if copies else "")
    if name not in copies:
        return None
    manifest, copy = index / name, (index / f"{COPY}{name}").read_bytes()
    stored = manifest.read_bytes() if manifest.is_file() else b""
    mended = copy + stored[len(copy) :]
    if named is not None and (stored == mended or (is_whole(stored) and not copy.startswith(stored))):
        return None
    if not is_whole(mended):
        return None
    what = f"{index / CURRENT} names no manifest" if named is None else f"{manifest} is damaged"
    return WholeManifest(name, mended, what)


def mend_manifest(index: Path) -> None:
    """Write a damaged manifest again from its copy, before RocksDB opens it. OSError."""
    found = find_mended(index)
    if found is None:
        return
    manifest = index / found.name
    kept = set_aside(index.parent, found.name, manifest.read_bytes()) if manifest.is_file() else "nothing is left"
    _log.warning("%s: it is written again from its copy; as it was found: %s", found.damage, kept)
    write_durably(manifest, found.content)
    write_durably(index / CURRENT, f"{found.name}\n".encode())
