"""Changes made whole once begun, though the client has gone: a change may have its first half on disk already.

asyncio itself keeps only a weak reference to a task, and has a failure that nobody asked for logged as a defect.
"""

import asyncio
import logging
from collections.abc import Coroutine, Generator
from typing import Any, Generic, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")

_under_way: set[asyncio.Task[Any]] = set()
"""Holds what nobody else may hold, until its end."""


class Uninterrupted(Generic[T]):
    """Wait for a task that continues if the waiter is cancelled. Several callers may wait for one task."""

    __slots__ = ("_task",)

    def __init__(self, task: asyncio.Task[T]) -> None:
        self._task = task

    def __await__(self) -> Generator[Any, None, T]:
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task.add_done_callback(lambda _: None if ended.done() else ended.set_result(None))
        try:
            yield from ended  # its cancellation does not reach the task, and it costs a fourth of asyncio.wait
        except asyncio.CancelledError:
            self._task.add_done_callback(_tell_failure)
            raise
        try:
            return self._task.result()
        finally:
            del self  # a failure keeps this frame, which would keep the task that keeps the failure


def uninterrupted(change: Coroutine[Any, Any, T]) -> Uninterrupted[T]:
    """Begin a change, which continues to its end whatever becomes of its caller."""
    task = asyncio.get_running_loop().create_task(change)
    _under_way.add(task)
    task.add_done_callback(_under_way.discard)
    return Uninterrupted(task)


def _tell_failure(task: asyncio.Task[Any]) -> None:
    """Log the failure, since its client has gone."""
    error = None if task.cancelled() else task.exception()
    if error is not None:
        log.warning("a change failed after its client had gone: %s", error, exc_info=error)
