"""A kind of residents of a coordinator tablet, as the tablet sees it: how they are stored, loaded, woken, ended and
counted."""

from collections.abc import Sequence
from typing import Any, Protocol

from pqbroker.storage.tablets.resident_rows import ResidentRows


class ResidentKind(Protocol):
    """All residents of one kind on one coordinator tablet, such as its groups of the classic protocol.

    It changes what is stored, and sets its timers, through the coordinator that it was made with.
    """

    @property
    def rows(self) -> ResidentRows:
        """Return the form in which residents are stored. Their row set is their kind's alone."""

    def load(self, stored: Sequence[Any]) -> None:
        """Begin with those that are stored, as `rows` reads them, instead of all that were known before."""

    def wake(self, resident: Any) -> None:
        """The timer ran out that was set for the resident."""

    def close(self) -> None:
        """Answer every request that waits with an error to retry: the tablet is stopped or restarted."""

    def __len__(self) -> int:
        """Return the number of residents."""
