"""Events of a broker: writes to its files and answers to its clients, which `recorder.c`, preloaded, writes down."""

import os
import platform
import shutil
import struct
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).with_name("recorder.c")
_EVENT = struct.Struct("=Iiqqi")


class Event(NamedTuple):
    """One call; `recorder.c` says what the kinds and numbers mean."""

    kind: str
    file: int
    number: int
    data: bytes


def reason_not_to_record() -> str | None:
    """Why nothing can be recorded here, None when it can."""
    if platform.libc_ver()[0] != "glibc":
        return "calls are recorded by a library preloaded before glibc, which is not what runs here"
    if shutil.which("cc") is None:
        return "no C compiler (cc) to build the recorder with; install gcc"
    return None


def build(directory: Path) -> Path:
    """The recorder as a library."""
    library = directory / "recorder.so"
    command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return library


def environment(library: Path, data: Path, into: Path, die_at: int | None) -> Mapping[str, str]:
    """Variables with which a broker is recorded; with `die_at` it kills itself after so many events."""
    found = {"LD_PRELOAD": str(library), "RECORD_BELOW": str(data), "RECORD_INTO": str(into)}
    return found if die_at is None else found | {"RECORD_DIE_AT": str(die_at)}


def events(file: Path) -> Iterator[Event]:
    """The events of one process in order."""
    recorded = memoryview(file.read_bytes())
    position = 0
    while position < len(recorded):
        kind, descriptor, number, _, size = _EVENT.unpack_from(recorded, position)
        position += _EVENT.size
        yield Event(chr(kind), descriptor, number, bytes(recorded[position : position + size]))
        position += size


def resident(directory: Path) -> dict[str, bytes]:
    """Every file below a directory with its bytes, by relative path."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and os.access(path, os.R_OK)
    }
