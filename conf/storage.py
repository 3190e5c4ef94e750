"""Places of blobs: pools beside the one in the data directory, and the storage profile of tablets' channels (spec K.2).

Two settings whose values have a form of their own; both are read here, and refused with cause and cure. And where
backups go.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pqbroker.conf.declare import ConfigError, Kind, setting

MAIN_POOL = "main"
"""The pool in the data directory, which holds the index too: it belongs on the fastest medium."""
SORTED_TYPE = "sorted"
"""Type whose tablets have one channel more: 3 chunks."""
TABLET_TYPES = ("scheme", "persqueue", "coordinator", "hive", SORTED_TYPE)
CHANNELS = 3
"""0 log, 1 snapshots, 2 what users store."""

BACKUP_DIR = setting(
    "pqbroker.backup.dir", Kind.STRING, "",
    "Existing directory below which `pqbroker backup` writes. Empty: `backups` in the data directory. "
    "On the data directory's file system files are linked, on another one copied.",
)  # fmt: skip
BACKUPS_MAX = setting(
    "pqbroker.backups.max", Kind.INT, 16, "Entries of the directory of backups at most; with more, none is made.",
    low=1,
)  # fmt: skip
NODE_TAGS = setting(
    "pqbroker.node.tags", Kind.LIST, (),
    "Tags of the node, such as ssd,rack/7: it opens the cells of bundles whose node_tag_filter they fulfil. A tag "
    "begins with a letter or `_`; digits, `_`, `-`, `/` and `.` may follow.",
)  # fmt: skip
CELLS_MAX = setting(
    "pqbroker.cells.max", Kind.INT, 16, "Cells beside the system cell at most: each has a thread and files of its own.",
    low=0, high=1000,
)  # fmt: skip

_POOL_FORM = "give NAME=DIRECTORY, such as big=/mnt/big"
_PROFILE_FORM = "give TYPE.CHANNEL=POOL, such as persqueue.2=big or persqueue.2=big:space=1000000000"


@dataclass(frozen=True, slots=True)
class ChannelProfile:
    """A channel's pool, and its limits for each tablet; 0: none."""

    pool: str = MAIN_POOL
    operations: int = 0
    """Values and blobs stored in a second, those that are in the index too."""
    bytes: int = 0
    """Bytes stored in a second."""
    space: int = 0
    """Bytes kept; from there on the channel's status is yellow."""

    @property
    def is_limited(self) -> bool:
        return bool(self.operations or self.bytes or self.space)


StorageProfile = Mapping[tuple[str, int], ChannelProfile]
"""Profiles by tablet type and channel; a channel without one is in the main pool, without limits."""


def parse_pools(entries: Iterable[str]) -> dict[str, Path]:
    """Directories by pool name, the main one left out. ConfigError."""
    pools: dict[str, Path] = {}
    for entry in entries:
        name, equals, directory = entry.partition("=")
        if not equals or not directory or not name.replace("-", "").replace("_", "").isalnum():
            raise ConfigError(f"pqbroker.pools has {entry!r}; {_POOL_FORM}")
        if name == MAIN_POOL or name in pools:
            raise ConfigError(f"pqbroker.pools names {name!r} twice: {MAIN_POOL!r} is the pool in the data directory")
        pools[name] = Path(directory)
    return pools


def parse_profile(entries: Iterable[str], pools: Iterable[str]) -> StorageProfile:
    """The profile; `pools` are those that there are. ConfigError."""
    known = (MAIN_POOL, *pools)
    profile: dict[tuple[str, int], ChannelProfile] = {}
    for entry in entries:
        place, equals, value = entry.partition("=")
        type_name, _, channel = place.partition(".")
        channels = map(str, range(CHANNELS + (type_name == SORTED_TYPE)))
        if not equals or type_name not in TABLET_TYPES or channel not in channels:
            raise ConfigError(
                f"pqbroker.storage.profile has {entry!r}; types are {', '.join(TABLET_TYPES)}, channels 0 (log), "
                f"1 (snapshots), 2 (data) and, of sorted, 3 (chunks): {_PROFILE_FORM}"
            )
        pool, *limits = value.split(":")
        if pool not in known:
            raise ConfigError(f"pqbroker.storage.profile names pool {pool!r}; there is {', '.join(known)}")
        profile[type_name, int(channel)] = ChannelProfile(pool, **_limits(entry, limits))
    return profile


def _limits(entry: str, limits: Iterable[str]) -> dict[str, int]:
    found = {}
    for limit in limits:
        name, _, number = limit.partition("=")
        if name not in ("operations", "bytes", "space") or not number.isdecimal():
            raise ConfigError(
                f"pqbroker.storage.profile has {entry!r}; limits are operations=N and bytes=N a second, and space=N "
                f"bytes: {_PROFILE_FORM}"
            )
        found[name] = int(number)
    return found
