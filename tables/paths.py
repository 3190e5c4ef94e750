"""Paths of tables: `//a/b/c` is the topic `a.b.c`. Whether a topic may have the name is the topics' rule."""

from pqbroker.tables.refusals import TableError

ROOT = "//"


def topic_name(path: str) -> str:
    """The topic of a path; TableError INVALID_PATH."""
    parts = path.removeprefix(ROOT).split("/")
    if not path.startswith(ROOT) or not all(parts):
        raise TableError("INVALID_PATH", f"path is {path[:300]!r}", "Give a path such as //shop/orders.")
    if any("." in part for part in parts):
        text = f"path {path[:300]!r} has a dot, which stands for a slash in the topic's name"
        raise TableError("INVALID_PATH", text, "Give a slash in its place, or another character.")
    return ".".join(parts)


def table_path(topic: str) -> str:
    return ROOT + topic.replace(".", "/")
