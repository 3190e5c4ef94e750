"""A request in work as its connection sees it, whichever road it takes."""

from collections.abc import Callable
from typing import Protocol

from pqbroker.storage.engine import Buffer
from pqbroker.storage.file_regions import FileRegion

Output = list[Buffer | FileRegion]


class Exchange(Protocol):
    """`output` is its framed response once `is_done`: None when there is none to send."""

    listener: Callable[[], None] | None
    """Called when the exchange becomes begun or done, if that is after it was made."""

    @property
    def frame_bytes(self) -> int: ...
    @property
    def is_produce(self) -> bool:
        """Return True for a Produce: what follows may begin while it is in work, if that is a Produce too."""
    @property
    def is_begun(self) -> bool:
        """False while a long request is decoded and handed over; what follows on its connection waits for that."""
    @property
    def is_done(self) -> bool: ...
    @property
    def output(self) -> Output | None: ...
    @property
    def must_close(self) -> bool: ...
    @property
    def pause_ms(self) -> int:
        """Return how long the handler wants nothing read from the connection; known once the exchange is begun."""
    @property
    def is_parked(self) -> bool:
        """Return True if `hurry` has it answered now."""
    @property
    def is_charged(self) -> bool:
        """Return True if the node's budget of answers holds something for it."""

    def hurry(self) -> None:
        """Answer at once with the data that exists; only while the request is parked."""

    @property
    def hurried_at(self) -> float:
        """Return when it was hurried (`perf_counter`); 0: it was not."""

    def leave(self) -> None:
        """Drop the answer: the connection is lost."""
