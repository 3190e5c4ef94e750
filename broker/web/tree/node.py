"""A node of the tree as it is found: what is below it, what is said of it, what can be set."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Read = Callable[[], Any]
Write = Callable[[Any], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class TreeNode:
    """`names`: those below it, in order. `value`: what it is; None for a directory, which is its names."""

    names: Iterable[str] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    value: Any = None
    long_attributes: Mapping[str, Read] = field(default_factory=dict)
    """Attributes that are shown only when they are named."""
    settable: Mapping[str, Write] = field(default_factory=dict)


def directory(names: Iterable[str]) -> TreeNode:
    return TreeNode(names, {"type": "directory"})


def attributes_of(kind: str, document: Mapping[str, Any], **renamed: str) -> dict[str, Any]:
    """Return the fields of a resource's document as attributes, some of them under the tree's names."""
    return {"type": kind, **{renamed.get(name, name): value for name, value in document.items()}}
