"""A file of SQL, opened: a regular file of the directory for them, whatever links, devices and pipes lie beside it, or
one that came with the query and lies in memory."""

import os
import stat
from collections.abc import Iterable, Mapping
from io import BytesIO
from typing import Any, BinaryIO

from pqbroker.tables.local_files import relation_of
from pqbroker.tables.work.refusal import QueryRefused


def open_file(place: Mapping[str, Any]) -> BinaryIO:
    """Return the file of a `place`: {directory, name, bytes_max}, or {content} of one that came with the query.
    QueryRefused NO_FILE, INVALID_FILE, FILE_TOO_LARGE.

    The file is looked at before it is opened, for opening a device may act, and after, for it may be another by then.
    """
    if (content := place.get("content")) is not None:
        return BytesIO(content)
    name, most = place["name"], place["bytes_max"]
    try:
        directory = os.open(place["directory"], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        text = f"the directory of pqbroker.sql.files.directory cannot be opened: {error.strerror}"
        raise QueryRefused("NO_FILE", text, "Have the broker's operator correct the setting.") from None
    try:
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
        _check(name, found)
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        file = os.fdopen(os.open(name, flags, dir_fd=directory), "rb")
    except FileNotFoundError:
        text = f"there is no file {name[:255]!r} in the directory of pqbroker.sql.files.directory"
        raise QueryRefused("NO_FILE", text, "SHOW TABLES lists those that exist.") from None
    except OSError as error:
        raise damaged(name, str(error.strerror)) from None
    finally:
        os.close(directory)
    opened = os.fstat(file.fileno())
    try:
        _check(name, opened)
        if opened.st_size > most:
            raise QueryRefused(
                "FILE_TOO_LARGE",
                f"{relation_of(name)} has {opened.st_size} bytes, more than pqbroker.sql.files.bytes.max = {most}",
                "Produce its rows to a topic, make it smaller, or raise the setting.",
            )  # fmt: skip
    except QueryRefused:
        file.close()
        raise
    return file


def sent_files(sizes: Iterable[tuple[str, int]], payload: bytes | bytearray | memoryview) -> Mapping[str, bytes]:
    """Return the files that came with a query, by name; they lie in `payload` one behind the other."""
    found: dict[str, bytes] = {}
    start = 0
    for name, size in sizes:
        found[name] = bytes(payload[start : start + size])
        start += size
    return found


def with_content(place: Mapping[str, Any], sent: Mapping[str, bytes]) -> Mapping[str, Any]:
    """Return the place of a file with its content, where it came with the query."""
    return {**place, "content": sent[place["name"]]} if place.get("is_sent") else place


def damaged(name: str, reason: str) -> QueryRefused:
    """Return the refusal of a file that is not what its name says."""
    cause = reason.partition("\n")[0][:300].rstrip(". ")
    text = f"{relation_of(name)} cannot be read: {cause}"
    cure = "Put a regular file there: CSV in UTF-8 with a line of names, or Parquet."
    return QueryRefused("INVALID_FILE", text, cure)


def _check(name: str, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise damaged(name, "it is no regular file")
