"""Places in a topic as users write them, on the command line and over HTTP: an offset, a time, an age, either end."""

import re
from datetime import datetime, tzinfo
from typing import NamedTuple

EARLIEST, LATEST = -2, -1
"""Times that stand for both ends, as in ListOffsets."""

_NAMED = {"beginning": EARLIEST, "earliest": EARLIEST, "end": LATEST, "latest": LATEST}
_AGE = re.compile(r"-?(\d{1,9})(ms|s|m|h|d)", re.ASCII)
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_OFFSET = re.compile(r"\d{1,18}", re.ASCII)


class PositionError(ValueError):
    """Text that is no place in a topic; the text says which forms there are."""


class Position(NamedTuple):
    """An offset, or else a time in ms, EARLIEST and LATEST among them."""

    text: str
    offset: int | None = None
    timestamp: int = LATEST


def parse_position(text: str, now_ms: int, zone: tzinfo | None = None) -> Position:
    """PositionError. `zone`: of a time that names none; None: the zone of this machine."""
    if text in _NAMED:
        return Position(text, timestamp=_NAMED[text])
    if _OFFSET.fullmatch(text):
        return Position(text, offset=int(text))
    if age := _AGE.fullmatch(text):
        return Position(text, timestamp=max(0, now_ms - int(age[1]) * _UNIT_MS[age[2]]))
    try:
        moment = datetime.fromisoformat(text)
        if zone is not None and moment.tzinfo is None:
            moment = moment.replace(tzinfo=zone)
        return Position(text, timestamp=max(0, int(moment.timestamp() * 1000)))
    except (ValueError, OverflowError):
        where = "local" if zone is None else zone
        raise PositionError(
            f"{text!r}: give beginning, end, an offset (42), a time (2026-01-31T12:00, {where} unless it says Z or "
            "+02:00) or an age (90s, 15m, 2h, 7d)"
        ) from None
