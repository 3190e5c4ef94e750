"""A request whose answer is awaited from elsewhere: from another node, or from the check of a token."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from pqbroker.broker.kafka.apis.exchange import Output

AwaitedEnding = tuple[Output | None, bool]
"""The framed response, None where there is none, and True if the connection closes behind it."""


class AwaitedAnswer:
    """An `Exchange` that ends as a coroutine says; it is never parked, and charged to no budget."""

    def __init__(self, frame_bytes: int, ending: Coroutine[Any, Any, AwaitedEnding]) -> None:
        self.frame_bytes = frame_bytes
        self.is_produce = self.is_parked = self.is_charged = False
        self.is_begun = True
        self.is_done = False
        self.must_close = False
        self.pause_ms = 0
        self.hurried_at = 0.0
        self.output: Output | None = None
        self.listener: Callable[[], None] | None = None
        self._task = asyncio.ensure_future(ending)
        self._task.add_done_callback(self._finish)

    def hurry(self) -> None:
        """Do nothing: what is parked elsewhere is answered there."""

    def leave(self) -> None:
        self._task.cancel()

    def _finish(self, task: "asyncio.Future[AwaitedEnding]") -> None:
        self.must_close = True
        try:
            if not task.cancelled():
                self.output, self.must_close = task.result()
        finally:
            self.is_done = True
            if self.listener is not None:
                self.listener()
