"""What has begun is made whole, though whoever asked for it has gone: a change may have its first half on disk already.

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


class Lasting(Generic[T]):
    """Awaits a task for whoever may be cancelled: the task goes on. Several may wait for one task."""

    __slots__ = ("_task",)

    def __init__(self, task: asyncio.Task[T]) -> None:
        self._task = task

    def __await__(self) -> Generator[Any, None, T]:
        try:
            yield from asyncio.wait([self._task]).__await__()
        except asyncio.CancelledError:
            self._task.add_done_callback(_tell_failure)
            raise
        return self._task.result()


def made_whole(change: Coroutine[Any, Any, T]) -> Lasting[T]:
    """Begin a change, which goes on to its end whatever becomes of who awaits it."""
    task = asyncio.get_running_loop().create_task(change)
    _under_way.add(task)
    task.add_done_callback(_under_way.discard)
    return Lasting(task)


def _tell_failure(task: asyncio.Task[Any]) -> None:
    """Who would have been told has gone."""
    error = None if task.cancelled() else task.exception()
    if error is not None:
        log.warning("what was begun for somebody who has gone failed: %s", error, exc_info=error)
