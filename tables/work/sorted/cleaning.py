"""Clean-up of versions by arithmetic over whole columns: what `tables/sorted/versions.py` says of one key (C.8)."""

from dataclasses import dataclass
from typing import Any

import numpy
import pyarrow
import pyarrow.compute as compute

from pqbroker.tables.sorted.keys import key_decoder
from pqbroker.tables.sorted.versions import CleanUp, TooManyVersions
from pqbroker.tables.work.sorted.refusal import MergeRefused
from pqbroker.tables.work.sorted.version_columns import ColumnVersions, SortedShape, VersionColumns


class SortedKeys:
    """Keys of versions that are in order, by the first version of each."""

    def __init__(self, is_first: Any) -> None:
        self.begins = numpy.flatnonzero(is_first)
        self.numbers = numpy.cumsum(is_first) - 1
        """Number of each version's key."""

    def ranks(self, mask: Any) -> Any:
        """Return how many versions of the mask each has before it, of its key."""
        before = numpy.cumsum(mask) - mask
        return before - before[self.begins][self.numbers]

    def counts(self, mask: Any) -> Any:
        """Return how many versions of the mask each key has."""
        return numpy.add.reduceat(mask, self.begins, dtype=numpy.int64)


@dataclass(frozen=True, slots=True)
class _Times:
    """Traits of versions that follow from their timestamps: arrays of booleans."""

    is_young: Any
    is_expired: Any
    is_retained: Any
    """True at the retained timestamp and below it."""
    may_hide: Any
    is_major: Any
    """True at the major timestamp and above it."""

    @classmethod
    def of(cls, timestamps: Any, rules: CleanUp) -> "_Times":
        ages = rules.now_ms - _milliseconds(timestamps)
        is_retained = timestamps <= numpy.uint64(rules.retained)
        is_major = timestamps >= numpy.uint64(rules.major)
        return cls(
            is_young=~is_retained | (ages < rules.min_data_ttl),
            is_expired=(ages > rules.max_data_ttl) & ~is_major,
            is_retained=is_retained,
            may_hide=timestamps < numpy.uint64(rules.hidden_before),
            is_major=is_major,
        )


def clean_columns(rows: VersionColumns, rules: CleanUp) -> VersionColumns:
    """Return what the rules leave of versions that are in order."""
    keys = SortedKeys(rows.first_of_keys())
    times = _Times.of(rows.timestamps, rules)
    of_row = _kept(numpy.ones(len(rows.deletes), bool), keys, times, rules)
    of_columns = [
        of_row if column.presence is None else _kept(rows.deletes | column.presence, keys, times, rules)
        for column in rows.columns
    ]
    is_left = numpy.logical_or.reduce([of_row, *{id(each): each for each in of_columns}.values()])
    writes = is_left & ~rows.deletes
    has_older_write = (keys.counts(writes)[keys.numbers] - keys.ranks(writes) - writes) > 0
    is_left &= ~rows.deletes | has_older_write | times.is_major | times.is_young
    numbers = numpy.flatnonzero(is_left)
    left = rows if len(numbers) == len(is_left) else rows.take(numbers)
    columns = [
        _without(column, (kept | rows.deletes)[numbers]) for column, kept in zip(left.columns, of_columns, strict=True)
    ]
    return left._replace(columns=columns)


def merge_deletes(rows: VersionColumns) -> VersionColumns:
    """Return versions that are in order with the oldest alone of deletes that follow one another."""
    is_before_delete = numpy.zeros(len(rows.deletes), bool)
    is_before_delete[:-1] = rows.deletes[1:] & ~rows.first_of_keys()[1:]
    is_left = ~(rows.deletes & is_before_delete)
    return rows if is_left.all() else rows.take(numpy.flatnonzero(is_left))


def check_counts(rows: VersionColumns, shape: SortedShape, versions_max: int) -> None:
    """Refuse versions that are in order where a key has more than a chunk can hold. MergeRefused."""
    if len(rows.deletes) <= versions_max:
        return
    keys = SortedKeys(rows.first_of_keys())
    for kind, mask in (("write", ~rows.deletes), ("delete", rows.deletes)):
        counts = keys.counts(mask)
        worst = int(counts.argmax())
        if counts[worst] > versions_max:
            refusal = TooManyVersions(kind, int(counts[worst]), versions_max)
            key = rows.keys[int(keys.begins[worst])].as_py()
            text = f"{refusal}. Its key is {key_decoder(shape.key_types)(key)}"
            raise MergeRefused("TOO_MANY_VERSIONS", text, refusal.cure)


def _kept(mask: Any, keys: SortedKeys, times: _Times, rules: CleanUp) -> Any:
    """Return which versions stay for a column that those of the mask have."""
    is_old = mask & ~times.is_young
    is_guarded = keys.ranks(is_old) < rules.min_data_versions
    retained = mask & times.is_retained
    is_read = retained & (keys.ranks(retained) == 0)
    is_hidden = (keys.ranks(mask) >= rules.max_data_versions) & ~is_read & times.may_hide
    return mask & ~(is_old & ~is_guarded & (times.is_expired | is_hidden))


def _without(column: ColumnVersions, presence: Any) -> ColumnVersions:
    """Return a column with null where a version leaves it as it was from now on."""
    if presence.all():
        return ColumnVersions(column.values, None)
    if column.presence is not None and (column.presence == presence).all():
        return column
    values = compute.if_else(pyarrow.array(presence), column.values, pyarrow.scalar(None, column.values.type))
    return ColumnVersions(values, presence)


def _milliseconds(timestamps: Any) -> Any:
    """Return the times of timestamps, as `commit_timestamps.milliseconds_of` does."""
    seconds = (timestamps >> numpy.uint64(30)).astype(numpy.int64)
    rest = (timestamps >> numpy.uint64(20)).astype(numpy.int64) & 1023
    return seconds * 1000 + numpy.minimum(rest, 1000)
