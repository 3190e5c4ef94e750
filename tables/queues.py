"""Rules of queues over ordered tables (E.13), pure: consumers' places, epochs and row numbers of producers.

    epoch of a push     stored          verdict
    below               the session's   ZOMBIE_EPOCH 3102: a later owner has taken the session
    above               the session's   INVALID_EPOCH 3101: nobody was given it
    the same            the session's   its rows are taken, but for those whose number is not above the stored one
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

from pqbroker.tables.refusals import TableError

SEQUENCE_NUMBER = "$sequence_number"
"""The field of a pushed row that has its number."""
SEQUENCE_MAX: Final = (1 << 63) - 1
QUEUE_NUMBERS: Mapping[str, int] = {
    "CONSUMER_OFFSET_CONFLICT": 3100,
    "INVALID_EPOCH": 3101,
    "ZOMBIE_EPOCH": 3102,
    "INVALID_ROW_SEQUENCE_NUMBERS": 3103,
}
"""YT's numbers of refusals of queues."""


class Disposition(StrEnum):
    """The place of a consumer in a tablet."""

    UP_TO_DATE = "up_to_date"
    PENDING = "pending_consumption"
    EXPIRED = "expired"
    AHEAD = "ahead"


def disposition_of(offset: int, start: int, end: int) -> Disposition:
    """Return where a consumer stands whose first unread row is `offset`, in a tablet with the rows [start, end)."""
    if offset > end:
        return Disposition.AHEAD
    if offset < start:
        return Disposition.EXPIRED
    return Disposition.UP_TO_DATE if offset == end else Disposition.PENDING


def check_epoch(given: int, stored: int) -> None:
    """TableError ZOMBIE_EPOCH, INVALID_EPOCH for an epoch that is not the session's."""
    if given < stored:
        text = f"epoch {given} of the session is over: epoch {stored} has taken it"
        cure = "Stop this producer, or take the session again and push what is missing."
        raise TableError("ZOMBIE_EPOCH", text, cure)
    if given > stored:
        text = f"epoch {given} was never given: the session is in epoch {stored}"
        raise TableError("INVALID_EPOCH", text, "Take the session, and push with the epoch of its answer.")


class NumberedRows(NamedTuple):
    """Rows to write; those taken before are left out. `last`: the session's last number once they are written."""

    rows: Sequence[Any]
    last: int
    skipped: int


def numbered_rows(rows: Sequence[Any], first: int | None, stored: int, where: str) -> NumberedRows:
    """Return the rows above the `stored` number, without their numbers: those in their own field, or from `first` on,
    one after the other. TableError INVALID_ROW_SEQUENCE_NUMBERS."""
    kept: list[Any] = []
    last = -1
    for position, row in enumerate(rows):
        place = f"{where}[{position}]"
        number = _number(row, None if first is None else first + position, place)
        if number <= last:
            raise _wrong(f"{place} has the number {number}, which is not above {last} of the row before")
        last = number
        if number > stored:
            kept.append(row if first is not None else _without_number(row))
    return NumberedRows(kept, max(last, stored), len(rows) - len(kept))


def _without_number(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != SEQUENCE_NUMBER}


def _number(row: Any, implied: int | None, place: str) -> int:
    own = row.get(SEQUENCE_NUMBER) if isinstance(row, dict) else None
    if (own is None) == (implied is None):
        given = "both its own number and one that follows from sequence_number" if own is not None else "no number"
        raise _wrong(f"{place} has {given}")
    number = implied if own is None else own
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= SEQUENCE_MAX:
        raise _wrong(f"{place} has the number {number!r}"[:200])
    return number


def _wrong(message: str) -> TableError:
    cure = f"Give each row a rising {SEQUENCE_NUMBER} from 0 on, or the push a sequence_number, and not both."
    return TableError("INVALID_ROW_SEQUENCE_NUMBERS", message, cure)
