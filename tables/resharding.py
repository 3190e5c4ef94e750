"""Resharding of ordered tables: which tablets a range becomes (E.9)."""

from collections.abc import Sequence
from dataclasses import dataclass

from pqbroker.tables.refusals import TableError


@dataclass(frozen=True, slots=True)
class Reshard:
    """A change of a table's tablets. `origins`: the number that each one had; None: a new one. `first_rows`: where the
    new ones begin, in their order. `removed`: tablets whose rows join those of `survivor`, in order."""

    origins: Sequence[int | None]
    first_rows: Sequence[int] = ()
    removed: Sequence[int] = ()
    survivor: int = 0

    @property
    def is_change(self) -> bool:
        return None in self.origins or bool(self.removed)


def plan_reshard(
    present: int, first: int, last: int, tablet_count: int, trimmed_row_counts: Sequence[int] | None
) -> Reshard:
    """Replace the tablets `first` to `last`, of `present`, by `tablet_count`. TableError INVALID_RESHARD.

    New ones follow the range, so that tablets behind it get later numbers; removed ones are the range's last.
    """
    assert 0 <= first <= last < present
    added = tablet_count - (last - first + 1)
    if tablet_count < 1:
        raise _invalid(f"tablet_count is {tablet_count}", "Give 1 or more.")
    if trimmed_row_counts is not None and len(trimmed_row_counts) != max(added, 0):
        text = f"trimmed_row_counts has {len(trimmed_row_counts)} numbers, and {max(added, 0)} tablets are new"
        raise _invalid(text, "Give one number for each tablet that is new: tablet_count less those of the range.")
    if added >= 0:
        first_rows = trimmed_row_counts if trimmed_row_counts is not None else [0] * added
        return Reshard([*range(last + 1), *[None] * added, *range(last + 1, present)], first_rows)
    survivor = last + added
    removed = range(survivor + 1, last + 1)
    return Reshard([*range(survivor + 1), *range(last + 1, present)], (), removed, survivor)


def affected(reshard: Reshard, present: int, first: int, last: int) -> range:
    """Tablets that must be unmounted: those of the range, and behind it those that get another number."""
    return range(first, present if reshard.is_change else last + 1)


def _invalid(message: str, cure: str) -> TableError:
    return TableError("INVALID_RESHARD", message, cure)
