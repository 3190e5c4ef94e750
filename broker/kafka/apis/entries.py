"""Entries of an answer, each made when it is encoded and forgotten then: a long answer is never in memory as objects.

A handler's `each(asked, make)` is its `[make(item) for item in asked]`, put off: an answer in slices is then served in
slices too, so what an entry says is what holds when it is made.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar, cast

A = TypeVar("A")
E = TypeVar("E")


class _Entries(Generic[A, E]):
    """The part of a list that the encoder needs: its length, and its items once."""

    __slots__ = ("_asked", "_make")

    def __init__(self, asked: Sequence[A], make: Callable[[A], E]) -> None:
        self._asked = asked
        self._make = make

    def __len__(self) -> int:
        return len(self._asked)

    def __iter__(self) -> Iterator[E]:
        return map(self._make, self._asked)


def each(asked: Sequence[A], make: Callable[[A], E]) -> list[E]:
    """A field of a response: what `make` makes of each item, made as it is sent. `asked` must not change."""
    return cast(list[E], _Entries(asked, make))
