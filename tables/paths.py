"""Paths of tables: `//a/b/c` is the topic `a.b.c`. Which names a topic may have is the topics' rule."""

from pqbroker.tables.refusals import TableError

ROOT = "//"
SYSTEM = "sys"
"""The directory of what runs the tables: `//sys` and all below it."""


def topic_name(path: str) -> str:
    """The topic of a path; TableError INVALID_PATH."""
    parts = path.removeprefix(ROOT).split("/")
    if not path.startswith(ROOT) or not all(parts):
        raise TableError("INVALID_PATH", f"path is {path[:300]!r}", "Give a path such as //shop/orders.")
    if any("." in part for part in parts):
        text = f"path {path[:300]!r} has a dot, which stands for a slash in the topic's name"
        raise TableError("INVALID_PATH", text, "Give a slash in its place, or another character.")
    if parts[0] == SYSTEM:
        text = f"path {path[:300]!r} is below //sys, which the broker fills itself"
        raise TableError("INVALID_PATH", text, "Give a path outside //sys, such as //shop/orders.")
    return ".".join(parts)


def has_path(topic: str) -> bool:
    """Return True if a path leads to the topic: //sys is the system's, and no name in a path is empty."""
    parts = topic.split(".")
    return all(parts) and parts[0] != SYSTEM


def table_path(topic: str) -> str:
    return ROOT + topic.replace(".", "/")
