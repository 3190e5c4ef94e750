"""The second copy of a cell's facts: the text of `cell` behind its checksum, in a file of its own.

    crc32c of the text, 8 hexadecimal digits · line feed · the text of `cell`

It is written before `cell`, so where the two differ the copy, if its checksum is right, is the one to believe: `cell`
was damaged, or a crash came between the two writes.
"""

import json
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from pqbroker.storage.engine import EngineError

FACTS_FILE = "cell"
FACTS_COPY = "cell.copy"
_CRC_BYTES = 9


def encode_copy(text: bytes) -> bytes:
    """The content of the copy."""
    return b"%08x\n" % crc32c(text) + text


def decode_copy(content: bytes) -> bytes | None:
    """The text of `cell` that the copy holds; None when the copy is damaged."""
    text = content[_CRC_BYTES:]
    return text if text and encode_copy(text) == content else None


class StoredFacts(NamedTuple):
    """The facts as text, the file that they are from, and what is wrong with the other one."""

    file: Path
    text: bytes
    damage: str | None


def has_facts(path: Path) -> bool:
    """Return True if the directory holds the file `cell` or its copy."""
    return (path / FACTS_FILE).is_file() or (path / FACTS_COPY).is_file()


def choose_facts(path: Path) -> StoredFacts:
    """Read the facts of a directory from `cell` or from its copy. EngineError where neither can be read."""
    file, copy = path / FACTS_FILE, path / FACTS_COPY
    facts, copied = _readable(file), _readable(copy)
    text = None if copied is None else decode_copy(copied)
    if text is not None:
        told = f"{file} is damaged, missing or older than {FACTS_COPY}"
        return StoredFacts(copy, text, None if facts == text else told)
    if facts is None:
        raise EngineError(f"{file} is missing or cannot be read; restore it from a copy")
    return StoredFacts(file, facts, f"{copy} is damaged" if copy.exists() else None)


def is_left_by_crash(path: Path) -> bool:
    """Return True if `cell` is as a crash between the two writes leaves it: missing, or whole and older."""
    facts = _readable(path / FACTS_FILE)
    if facts is None:
        return not (path / FACTS_FILE).exists()
    try:
        return isinstance(json.loads(facts), dict)
    except ValueError:
        return False


def _readable(file: Path) -> bytes | None:
    """The content of a small file; None when it is missing, or the disk cannot read it. PermissionError."""
    try:
        return file.read_bytes()
    except PermissionError:  # says nothing of the data
        raise
    except OSError:
        return None
