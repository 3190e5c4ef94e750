"""Keeps damaged bytes as they were found, in files of the directory `damaged` that no broker reads or removes."""

from pathlib import Path

from pqbroker.storage.disk.directory import fsync_directory, write_durably

DAMAGED = "damaged"


def set_aside(cell: Path, name: str, content: bytes) -> str:
    """Keep the bytes durably, unless they are kept already. Return the file's name in the cell's directory. OSError."""
    directory = cell / DAMAGED
    if not directory.exists():
        directory.mkdir()
        fsync_directory(cell)
    kept = directory / name
    while kept.exists() and kept.read_bytes() != content:  # of another pool, or damaged again since
        kept = kept.with_name(f"{kept.name}+")
    if not kept.exists():
        write_durably(kept, content)
    return str(kept.relative_to(cell))
