"""Times, dates and decimals as texts in decoded values."""

from datetime import UTC, datetime, timedelta
from typing import Final

from pqbroker.registry.undecodable import INVALID_VALUE, Undecodable

DECIMAL_BYTES_MAX: Final = 64
"""Bytes of a decimal: digits are worked out in more than linear time."""
DECIMAL_SCALE_MAX: Final = 1_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_MICROS: Final = 86_400_000_000


def show_moment(micros: int) -> str:
    """Return a timestamp in UTC. Undecodable VALUE_INVALID outside of the years 1 to 9999."""
    return f"{show_local_moment(micros)}Z"


def show_local_moment(micros: int) -> str:
    """Return a timestamp without a time zone. Undecodable VALUE_INVALID."""
    try:
        moment = _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        text = f"a timestamp is {micros} microseconds from 1970, outside of the years 1 to 9999"
        raise Undecodable(INVALID_VALUE, text) from None
    return moment.replace(tzinfo=None).isoformat(timespec="microseconds")


def show_date(days: int) -> str:
    """Return a date. Undecodable VALUE_INVALID."""
    try:
        return (_EPOCH + timedelta(days=days)).date().isoformat()
    except OverflowError:
        text = f"a date is {days} days from 1970, outside of the years 1 to 9999"
        raise Undecodable(INVALID_VALUE, text) from None


def show_time(micros: int) -> str:
    """Return a time of day. Undecodable VALUE_INVALID."""
    if not 0 <= micros < _DAY_MICROS:
        raise Undecodable(INVALID_VALUE, f"a time of day is {micros} microseconds; a day has {_DAY_MICROS}")
    return datetime.fromtimestamp(micros // 1_000_000, UTC).strftime("%H:%M:%S") + f".{micros % 1_000_000:06}"


def show_decimal(stored: bytes, scale: int) -> str:
    """Return a decimal of an integer in two's complement. Undecodable VALUE_INVALID."""
    if len(stored) > DECIMAL_BYTES_MAX:
        text = f"a decimal has {len(stored)} bytes; at most {DECIMAL_BYTES_MAX} are read"
        raise Undecodable(INVALID_VALUE, text)
    number = int.from_bytes(stored, signed=True)
    digits = str(abs(number)).rjust(scale + 1, "0")
    sign = "-" if number < 0 else ""
    return f"{sign}{digits[: len(digits) - scale]}.{digits[len(digits) - scale :]}" if scale else f"{sign}{digits}"
