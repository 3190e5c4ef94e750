"""A bundle: a named set of cells with options, which the nodes of its filter run (D.5); pure.

Most options hold for a cell from its creation on: they change only while no tablet of the bundle is served, and its
cells are opened again. Dynamic ones change at any time.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from pqbroker.storage.bundles.node_tag_filter import FilterInvalid, NodeTagFilter, parse_filter

DEFAULT_BUNDLE = "default"
NAME_CHARS_MAX = 64
OPTION_CHARS_MAX = 256
_NAME = re.compile(r"[A-Za-z0-9._-]+")

OptionValue = bool | int | float | str


class BundleRefused(ValueError):
    """A bundle cannot be so, or not be changed so; nothing of it is."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its value where it is not set, and the least and greatest of a number."""

    default: OptionValue
    low: float = 0
    high: float = 0
    is_dynamic: bool = False


OPTIONS: Mapping[str, Option] = {
    "peer_count": Option(1, 1, 1),
    "independent_peers": Option(default=False),
    "clock_cluster_tag": Option(0, 0, 2**16 - 1),
    "changelog_account": Option("sys"),
    "snapshot_account": Option("sys"),
    "changelog_replication_factor": Option(3, 1, 20),
    "changelog_read_quorum": Option(2, 1, 20),
    "changelog_write_quorum": Option(2, 1, 20),
    "snapshot_replication_factor": Option(3, 1, 20),
    "forced_rotation_memory_ratio": Option(0.7, 0, 1, is_dynamic=True),
    "dynamic_memory_pool_weight": Option(1, 1, 1000, is_dynamic=True),
}
"""Options of the specification. On one machine a cell has one peer and no quorum: they are checked, stored and
shown."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle as stored; `options` are those that were set."""

    name: str
    options: Mapping[str, OptionValue] = field(default_factory=lambda: MappingProxyType({}))
    node_tag_filter: str = ""

    @property
    def filter(self) -> NodeTagFilter:
        """Parsed. FilterInvalid for a text that no version stores."""
        return parse_filter(self.node_tag_filter)

    @property
    def all_options(self) -> dict[str, OptionValue]:
        """Return the value of every option."""
        return {name: self.options.get(name, option.default) for name, option in OPTIONS.items()}


def new_bundle(name: str, options: Mapping[str, Any], node_tag_filter: str) -> Bundle:
    """Return a bundle of a client's values. BundleRefused names what is wrong, the value and the limit."""
    if len(name) > NAME_CHARS_MAX or not _NAME.fullmatch(name):
        raise BundleRefused(
            f"bundle name {name[:NAME_CHARS_MAX]!r} is invalid: 1 to {NAME_CHARS_MAX} letters, digits, '.', '_' and '-'"
        )
    for option, value in options.items():
        _check_option(option, value)
    bundle = Bundle(name, dict(options), node_tag_filter)
    found = bundle.all_options
    if max(found["changelog_read_quorum"], found["changelog_write_quorum"]) > found["changelog_replication_factor"]:  # type: ignore[operator]
        raise BundleRefused(f"bundle {name}: a quorum exceeds changelog_replication_factor; lower it, or raise that")
    try:
        parse_filter(node_tag_filter)
    except FilterInvalid as invalid:
        raise BundleRefused(f"bundle {name}: {invalid}") from None
    return bundle


def changed_bundle(
    before: Bundle, options: Mapping[str, Any], node_tag_filter: str | None, served: Collection[str]
) -> Bundle:
    """The bundle with these options set over those it has, and another filter (None: the same). BundleRefused.

    `served`: topics of the bundle with a tablet that is not unmounted.
    """
    text = before.node_tag_filter if node_tag_filter is None else node_tag_filter
    after = new_bundle(before.name, {**before.options, **options}, text)
    if served and reopens_cells(before, after):
        first = min(served)
        others = f" and {len(served) - 1} more" if len(served) > 1 else ""
        raise BundleRefused(
            f"options of bundle {before.name} change only while all its tables are unmounted: {first}{others} is served"
        )
    return after


def reopens_cells(before: Bundle, after: Bundle) -> bool:
    """Return True if the change takes effect only once the bundle's cells are opened again."""
    old, new = before.all_options, after.all_options
    return any(old[name] != new[name] for name, option in OPTIONS.items() if not option.is_dynamic)


def check_removal(name: str, cells: int) -> None:
    """BundleRefused for the default bundle, and for one that has cells."""
    if name == DEFAULT_BUNDLE:
        raise BundleRefused(f"bundle {DEFAULT_BUNDLE} always exists and cannot be removed")
    if cells:
        raise BundleRefused(f"bundle {name} has {cells} cells; remove them first")


def _check_option(name: str, value: object) -> None:
    option = OPTIONS.get(name)
    if option is None:
        raise BundleRefused(f"a bundle has no option {name[:OPTION_CHARS_MAX]!r}; there are {', '.join(OPTIONS)}")
    default = option.default
    if isinstance(default, str):
        is_right, wanted = isinstance(value, str) and len(value) <= OPTION_CHARS_MAX, f"{OPTION_CHARS_MAX} characters"
    elif isinstance(default, bool):
        is_right, wanted = isinstance(value, bool), "true or false"
    else:
        kinds = (int, float) if isinstance(default, float) else (int,)
        is_number = isinstance(value, kinds) and not isinstance(value, bool)
        is_right = is_number and option.low <= value <= option.high  # type: ignore[operator]
        wanted = f"{option.low:g} to {option.high:g}"
    if not is_right:
        raise BundleRefused(f"option {name} is {str(value)[:OPTION_CHARS_MAX]!r}; give {wanted}")
