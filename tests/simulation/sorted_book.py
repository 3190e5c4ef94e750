"""The books of a sorted table: each version that was acknowledged, and those of which nobody knows; a naive table."""

from bisect import insort
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pqbroker.pq.log.commit_timestamps import milliseconds_of
from pqbroker.tables.sorted.packed_rows import ABSENT
from tests.simulation.ledger import expect


class KnownVersion(NamedTuple):
    """One version of one key. `values`: by column, without those that an update left out; None: a delete."""

    timestamp: int
    is_update: bool
    values: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class SentWrite:
    """Rows that were sent together, by key."""

    is_update: bool
    rows: Mapping[int, Mapping[str, Any] | None]
    above: int
    """Timestamp that its own is above: the greatest one acknowledged when it was sent."""


@dataclass(slots=True)
class SortedBook:
    """All that is known of one table with these value columns."""

    columns: Sequence[str]
    versions: dict[int, list[KnownVersion]] = field(default_factory=lambda: defaultdict(list))
    doubtful: list[SentWrite] = field(default_factory=list)
    last: int = 0
    """The greatest timestamp that was acknowledged, or seen."""
    expired_before_ms: int = 0
    """Versions that are older may have expired under an attribute of some time."""
    discovered: set[tuple[int, int]] = field(default_factory=set)
    """Keys and timestamps of versions that nobody was told of."""
    is_guarded: bool = True
    """True while the newest version of each value was never allowed to expire."""

    def sent(self, rows: Mapping[int, Mapping[str, Any] | None], *, is_update: bool) -> SentWrite:
        return SentWrite(is_update, rows, self.last)

    def acknowledged(self, write: SentWrite, timestamp: int) -> None:
        expect(timestamp > write.above, f"a commit of timestamp {timestamp} came after one of {write.above}")
        self._add(write, timestamp)

    def expires(self, now_ms: int, max_data_ttl: int, min_data_versions: int) -> None:
        """Note that versions may expire by this rule until now."""
        self.expired_before_ms = max(self.expired_before_ms, now_ms - max_data_ttl)
        self.is_guarded = self.is_guarded and min_data_versions > 0

    def found_stored(self, key: int, found: Sequence[tuple[int, Sequence[Any] | None]]) -> None:
        """Take the versions of a key that a store has, and nobody was told of: each is of a write in doubt."""
        known = {version.timestamp for version in self.versions[key]}
        for timestamp, values in found:
            if timestamp not in known:
                given = None if values is None else self._by_column(values)
                expect(
                    any(write.above < timestamp and self._is_of(write, key, given) for write in self.doubtful),
                    f"key {key} has a version of timestamp {timestamp}, {given}, that nobody wrote",
                )
                is_update = given is not None and len(given) < len(self.columns)
                self._insert(key, KnownVersion(timestamp, is_update, given))
                self.discovered.add((key, timestamp))

    def settle(self) -> None:
        """Nothing is in doubt any more: of each write all rows were found, or none. Deletes all look the same,
        and so do rows of nulls."""
        for write in self.doubtful:
            found = [
                {
                    one.timestamp for one in self.versions[key]
                    if one.values == values and one.timestamp > write.above and (key, one.timestamp) in self.discovered
                }
                for key, values in write.rows.items()
                if values is not None and any(value is not None for value in values.values())
            ]
            is_whole = not found or bool(set.intersection(*found))
            expect(is_whole or not any(found), f"of the rows {write.rows} some are there without the others")
        self.doubtful.clear()

    def check(self, key: int, timestamp: int, found: Mapping[str, Any] | None) -> None:
        """Compare a row that a reader found at a timestamp with what it is to find. Violation."""
        seen = self._seen(key, timestamp)
        given = None if found is None else {name: found[name] for name in self.columns}
        wanted = None if seen is None else {name: seen[name][1] if name in seen else None for name in self.columns}
        if given == wanted:
            return
        story = f"key {key} at {timestamp}: {given}, where {wanted} is due of {self.versions[key]}"
        expect(seen is not None, story)
        assert seen is not None
        if given is None:
            expect(all(self._may_expire(key, name, at) for name, (at, _) in seen.items()), story)
            return
        assert wanted is not None
        for name in self.columns:
            is_gone = given[name] is None and name in seen and self._may_expire(key, name, seen[name][0])
            expect(given[name] == wanted[name] or is_gone, story)

    def timestamps(self, key: int) -> list[int]:
        return [version.timestamp for version in self.versions[key]]

    def _seen(self, key: int, timestamp: int) -> dict[str, tuple[int, Any]] | None:
        """Values by column, each with the timestamp of its version; under "" that of the row."""
        seen: dict[str, tuple[int, Any]] = {}
        for version in reversed(self.versions[key]):
            if version.timestamp > timestamp:
                continue
            if version.values is None:
                break
            seen.setdefault("", (version.timestamp, None))
            for name, value in version.values.items():
                seen.setdefault(name, (version.timestamp, value))
            if not version.is_update:
                break
        return seen or None

    def _may_expire(self, key: int, name: str, timestamp: int) -> bool:
        newest = max(
            one.timestamp for one in self.versions[key] if one.values is None or not name or name in one.values
        )
        is_newest = self.is_guarded and timestamp == newest
        return milliseconds_of(timestamp) < self.expired_before_ms and not is_newest

    def _by_column(self, values: Sequence[Any]) -> dict[str, Any]:
        return {name: value for name, value in zip(self.columns, values, strict=True) if value is not ABSENT}

    def _is_of(self, write: SentWrite, key: int, given: Mapping[str, Any] | None) -> bool:
        return key in write.rows and write.rows[key] == given

    def _add(self, write: SentWrite, timestamp: int) -> None:
        for key, values in write.rows.items():
            self._insert(key, KnownVersion(timestamp, write.is_update, values))

    def _insert(self, key: int, version: KnownVersion) -> None:
        known = self.versions[key]
        expect(version.timestamp not in self.timestamps(key), f"timestamp {version.timestamp} was given twice")
        insort(known, version, key=lambda one: one.timestamp)
        self.last = max(self.last, version.timestamp)
