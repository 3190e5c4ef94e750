"""An answer still to come, without an event loop's future: settled once, reported to one listener in the same call.

Produce and Fetch settle thousands of these a second; a Future costs a turn of the loop and a copy of the context each.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

R = TypeVar("R")


class Answer(Generic[R]):
    """A response, a further step or an error, once. `hurry`, where set, settles it at once with what there is."""

    __slots__ = ("_listener", "error", "hurry", "pause_ms", "response", "settled", "step")

    def __init__(self, hurry: Callable[[], None] | None = None) -> None:
        self.settled = False
        self.response: R | None = None
        self.step: Callable[[], Any] | None = None
        """Call that makes the response; the dispatcher runs it, and answers with an error if it raises."""
        self.error: BaseException | None = None
        self.hurry = hurry
        self.pause_ms = 0
        """Milliseconds for which the client's connection is not read once the answer is handed over (KIP-219)."""
        self._listener: Callable[[], None] | None = None

    def complete(self, response: R | None) -> None:
        assert not self.settled
        self.response = response
        self._settle()

    def proceed(self, step: Callable[[], Any]) -> None:
        """Settle with a step that returns what a handler may return."""
        assert not self.settled
        self.step = step
        self._settle()

    def fail(self, error: BaseException) -> None:
        assert not self.settled
        self.error = error
        self._settle()

    def when_settled(self, listener: Callable[[], None]) -> None:
        """Call `listener` on settling; one listener, set before the answer is settled."""
        assert not self.settled
        assert self._listener is None
        self._listener = listener

    def _settle(self) -> None:
        self.settled = True
        self.hurry = None
        listener, self._listener = self._listener, None
        if listener is not None:
            listener()
