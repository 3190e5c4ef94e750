"""Versions of one key: what a reader sees of them at a timestamp, and which of them a clean-up leaves (C.8).

Plain and slow: a worker decides the same by arithmetic over whole columns, and is compared with this. Each column has
versions of its own: writes and updates that have it, and deletes, which have every column. The row itself counts as one
more column, which all versions have: it keeps a row that has key columns alone.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pqbroker.pq.log.commit_timestamps import milliseconds_of
from pqbroker.tables.sorted.packed_rows import ABSENT

VERSIONS_MAX: Final = 30_000
"""Writes of one key in a chunk, and deletes."""


class Version(NamedTuple):
    """One version of a row. `values`: of the value columns, in order, ABSENT where an update leaves one as it was;
    None: the version is a delete."""

    timestamp: int
    values: Sequence[Any] | None


@dataclass(frozen=True, slots=True)
class CleanUp:
    """Rules of a clean-up; times are in milliseconds, timestamps those of commits."""

    now_ms: int
    min_data_ttl: int
    max_data_ttl: int
    min_data_versions: int
    max_data_versions: int
    major: int
    """Least timestamp of the stores that take no part: expired versions and deletes go below it alone."""
    retained: int
    """Timestamp from which on readers find what they found before, but for what expires."""
    hidden_before: int
    """Timestamp below which versions go that newer ones hide: `major` in a merge of chunks (H16). A flush sets no
    bound: the newer version that hides one is in the same store, and an older chunk would defeat `merge_rows_on_flush`
    where a key has too many versions."""

    def is_young(self, timestamp: int) -> bool:
        """Return True if nothing may remove a version of this timestamp."""
        return timestamp > self.retained or self._age_ms(timestamp) < self.min_data_ttl

    def is_expired(self, timestamp: int) -> bool:
        return self._age_ms(timestamp) > self.max_data_ttl

    def _age_ms(self, timestamp: int) -> int:
        return self.now_ms - milliseconds_of(timestamp)


class TooManyVersions(Exception):
    """A key has more versions than a chunk can hold. `kind`: write or delete."""

    def __init__(self, kind: str, count: int, versions_max: int) -> None:
        super().__init__(f"Too many {kind} timestamps in a versioned row: {count}; a key has {versions_max} at most")
        self.cure = (
            "Set merge_rows_on_flush to true and a smaller min_data_ttl, or merge_deletions_on_flush where the key is"
            " deleted often, and remount the table: stores that wait for their flush follow it too."
        )


def seen(versions: Iterable[Version], timestamp: int, columns: Sequence[int]) -> list[Any] | None:
    """Return the values of these value columns as a reader at a timestamp sees them, given the versions of one key, the
    newest first; None: there is no such row."""
    found: dict[int, Any] = {}
    has_row = False
    for version in versions:
        if version.timestamp > timestamp:
            continue
        if version.values is None:
            break
        has_row = True
        for column in columns:
            if column not in found and version.values[column] is not ABSENT:
                found[column] = version.values[column]
        if len(found) == len(columns):
            break
    return [found.get(column) for column in columns] if has_row else None


def clean(versions: Sequence[Version], columns: int, rules: CleanUp) -> list[Version]:
    """Return what is left of the versions of one key, the newest first, with `columns` value columns."""
    of_row = _kept(versions, None, rules)
    of_columns = [_kept(versions, column, rules) for column in range(columns)]
    kept = of_row.union(*of_columns)
    left: list[Version] = []
    has_older_write = False
    for number in sorted(kept, reverse=True):
        version = versions[number]
        if version.values is not None:
            values = [
                value if number in of_column else ABSENT
                for value, of_column in zip(version.values, of_columns, strict=True)
            ]
            left.append(Version(version.timestamp, values))
            has_older_write = True
        elif has_older_write or version.timestamp >= rules.major or rules.is_young(version.timestamp):
            left.append(version)
    return left[::-1]


def merge_deletes(versions: Sequence[Version]) -> list[Version]:
    """Return versions of one key, the newest first, with the oldest alone of deletes that follow one another: readers
    between them find no row either."""
    return [
        version
        for number, version in enumerate(versions)
        if version.values is not None or number + 1 == len(versions) or versions[number + 1].values is not None
    ]


def check_counts(versions: Sequence[Version], versions_max: int) -> None:
    """TooManyVersions."""
    deletes = sum(version.values is None for version in versions)
    for kind, count in (("write", len(versions) - deletes), ("delete", deletes)):
        if count > versions_max:
            raise TooManyVersions(kind, count, versions_max)


def _kept(versions: Sequence[Version], column: int | None, rules: CleanUp) -> set[int]:
    """Return the numbers of the versions that stay for a column; None: for the row itself."""
    kept = set()
    older = 0
    has_retained = False
    own = [number for number, version in enumerate(versions) if _has(version, column)]
    for index, number in enumerate(own):
        timestamp = versions[number].timestamp
        is_read = not has_retained and timestamp <= rules.retained
        has_retained = has_retained or is_read
        if rules.is_young(timestamp):
            kept.add(number)
            continue
        is_guarded = older < rules.min_data_versions
        older += 1
        is_expired = rules.is_expired(timestamp) and timestamp < rules.major
        is_hidden = index >= rules.max_data_versions and not is_read and timestamp < rules.hidden_before
        if is_guarded or not (is_expired or is_hidden):
            kept.add(number)
    return kept


def _has(version: Version, column: int | None) -> bool:
    return column is None or version.values is None or version.values[column] is not ABSENT
