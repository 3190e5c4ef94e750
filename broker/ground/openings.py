"""Openings of what is opened again after it was lost: each is one object, replaced as a whole."""

from typing import Protocol, TypeVar

T_co = TypeVar("T_co", covariant=True)


class Openings(Protocol[T_co]):
    """`current` is not kept over an await: what it belongs to may be opened again meanwhile."""

    @property
    def current(self) -> T_co: ...
