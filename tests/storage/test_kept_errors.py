"""Errors that are kept and raised again and again keep no frames of those who met them."""

import gc
import weakref
from collections.abc import Callable

import pytest

from pqbroker.storage.engine import ShardLost
from pqbroker.storage.kept_errors import ENTRIES_MAX, raised_again
from pqbroker.storage.outcome import Outcome


class Request:
    """A thing that the frame of a caller holds."""


def meet(raising: Callable[[], object]) -> "weakref.ref[Request]":
    request = Request()
    with pytest.raises(ShardLost):
        raising()
    return weakref.ref(request)


def lost(outcome: Outcome[None]) -> Callable[[], object]:
    outcome.set_exception(LOST)
    return outcome.result


LOST = ShardLost("the cell was lost")


def raise_kept() -> None:
    raise raised_again(LOST)


@pytest.mark.parametrize("is_outcome", [False, True])
def test_what_met_a_kept_error_is_freed(*, is_outcome: bool) -> None:
    met = [meet(lost(Outcome()) if is_outcome else raise_kept) for _ in range(100)]
    gc.collect()
    assert sum(one() is not None for one in met) <= ENTRIES_MAX


def test_an_error_that_is_raised_once_keeps_its_traceback() -> None:
    outcome: Outcome[None] = Outcome()
    try:
        raise ShardLost("lost at a commit")
    except ShardLost as loss:
        outcome.set_exception(loss)
        place = loss.__traceback__
    with pytest.raises(ShardLost, match="lost at a commit") as told:
        outcome.result()
    assert str(told.traceback[-1].path).endswith("test_kept_errors.py")
    assert place is not None
