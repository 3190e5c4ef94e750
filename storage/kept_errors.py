"""Errors that are kept and raised again and again, as the reason why a cell is lost or writes are refused.

Each raise adds the frames that it passes to the error's traceback. Those frames keep all that they hold, requests and
their rows among it, for as long as somebody keeps the error.
"""

from typing import Final, TypeVar

ENTRIES_MAX: Final = 20
"""Entries of a traceback above which it is dropped: about those of two or three raises."""

Error = TypeVar("Error", bound=BaseException)


def raised_again(error: Error) -> Error:
    """Return a kept error, to be raised: without its traceback, once that is of several raises."""
    entry, count = error.__traceback__, 0
    while entry is not None and count <= ENTRIES_MAX:
        entry, count = entry.tb_next, count + 1
    return error if entry is None else error.with_traceback(None)
