"""Watchers that wait for a partition to move: callbacks at each move of its end or start offset, and at its loss."""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

CALLED_AT_ONCE_MAX: Final = 2_000
"""Callbacks in one turn of the loop where many partitions move at once, each of which thousands may watch."""


class Watchers:
    """The watchers of one partition."""

    __slots__ = ("_callbacks",)

    def __init__(self) -> None:
        self._callbacks: dict[object, Callable[[], None]] | None = None  # most partitions are never watched

    def __len__(self) -> int:
        return len(self._callbacks or ())

    def add(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back once per move, until the returned function is called."""
        callbacks = self._callbacks
        if callbacks is None:
            callbacks = self._callbacks = {}
        token = object()
        callbacks[token] = callback
        return partial(self.forget, token)

    def put(self, watcher: object, callback: Callable[[], None]) -> None:
        """Add a callback as `add` does, until `forget` of the watcher: for one that watches thousands of partitions
        with one callback."""
        if self._callbacks is None:
            self._callbacks = {}
        self._callbacks[watcher] = callback

    def notify(self) -> None:
        if self._callbacks:
            for callback in tuple(self._callbacks.values()):
                callback()

    def forget(self, watcher: object) -> None:
        """Forget a watcher; a second call does nothing."""
        if self._callbacks is not None:
            self._callbacks.pop(watcher, None)
            if not self._callbacks:
                self._callbacks = None  # an empty dict keeps the room of all that it had


def notify_in_slices(moved: deque[Watchers]) -> None:
    """Notify the watchers of partitions that moved together: some in this call, the others in later turns."""
    called = 0
    while moved and called < CALLED_AT_ONCE_MAX:
        watchers = moved.popleft()
        called += len(watchers)
        watchers.notify()
    if moved:
        asyncio.get_running_loop().call_soon(notify_in_slices, moved)
