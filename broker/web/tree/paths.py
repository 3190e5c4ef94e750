"""Paths of the tree: names, and after them an attribute: `//shop/orders/@schema/0/name`."""

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from pqbroker.broker.web.routing.problems import Problem
from pqbroker.broker.web.routing.schemas import SHOWN

_MARK = "@"
_INDEX_DIGITS_MAX = 9


@dataclass(frozen=True, slots=True)
class TreePath:
    """A node, or something of its attributes: None when none is asked for, all of them when it is empty."""

    names: tuple[str, ...]
    attribute: tuple[str, ...] | None = None

    def __str__(self) -> str:
        shown = "//" + "/".join(self.names)
        return shown if self.attribute is None else f"{shown}/{_MARK}{'/'.join(self.attribute)}"


def parse_path(text: str) -> TreePath:
    """Parse a path with or without slashes around it. Raise Problem INVALID_PATH."""
    parts = text.strip("/").split("/") if text.strip("/") else []
    at = next((number for number, part in enumerate(parts) if part.startswith(_MARK)), len(parts))
    attribute = None
    if at < len(parts):
        asked = (parts[at][1:], *parts[at + 1 :])
        attribute = () if asked == ("",) else asked
    if not all(parts[:at]) or not all(attribute or ()):
        cure = "Give a path such as //shop/orders, //sys/tablets or //shop/orders/@schema."
        raise Problem(400, "INVALID_PATH", f"path {text[:SHOWN]!r} has an empty name", cure)
    return TreePath(tuple(parts[:at]), attribute)


def value_at(value: Any, steps: tuple[str, ...], path: TreePath) -> Any:
    """Return what lies in a document, step by step: by name in an object, by number in a list.

    Raise Problem NO_ATTRIBUTE.
    """
    for step in steps:
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and (index := _index(step)) is not None and index < len(value):
            value = value[index]
        else:
            raise no_attribute(path, value)
    return value


def with_value(value: Any, steps: tuple[str, ...], given: Any, path: TreePath) -> Any:
    """Return a copy of an object with one value replaced. Problem NO_ATTRIBUTE."""
    if not steps:
        return given
    if not isinstance(value, dict):
        raise no_attribute(path, value)
    return {**value, steps[0]: with_value(value.get(steps[0], {}), steps[1:], given, path)}


def no_attribute(path: TreePath, among: Any) -> Problem:
    cure = f"List them: //{'/'.join(path.names)}/{_MARK}"
    if isinstance(among, dict) and among:
        asked = path.attribute[-1] if path.attribute else ""
        near = get_close_matches(asked[:SHOWN], among, n=1)
        cure = f"Did you mean {near[0]}?" if near else f"There is {', '.join(sorted(among)[:SHOWN])}."
    return Problem(404, "NO_ATTRIBUTE", f"there is no {path}", cure)


def no_node(path: TreePath) -> Problem:
    parent = "/".join(path.names[:-1])
    return Problem(404, "NO_NODE", f"there is no {TreePath(path.names)}", f"List what there is in //{parent}.")


def _index(step: str) -> int | None:
    return int(step) if step.isascii() and step.isdigit() and len(step) <= _INDEX_DIGITS_MAX else None
