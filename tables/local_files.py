"""Names of local files in SQL: `files.NAME` is the file NAME of the directory that a setting names. Pure: no file is
looked at."""

from typing import Final

FILES_PREFIX: Final = "files."
_NAME_MAX: Final = 255
_ENDINGS: Final = (".csv", ".parquet")


def file_of(relation: str) -> str | None:
    """Return the file that a relation's name means; None: it means none. A file lies in the directory itself, is not
    hidden, and its ending says its format."""
    if not relation.startswith(FILES_PREFIX):
        return None
    name = relation.removeprefix(FILES_PREFIX)
    return name if is_file_name(name) else None


def is_file_name(name: str) -> bool:
    """Return True if a file of this name is a relation. Names that are no text, or are longer than a directory takes,
    are none."""
    is_plain = not name.startswith(".") and "/" not in name and name.isprintable()
    return is_plain and len(name) <= _NAME_MAX and name.lower().endswith(_ENDINGS)


def relation_of(file: str) -> str:
    """Return the name of a file as a relation."""
    return FILES_PREFIX + file
