"""Workers of sorted tables' merges, and of cleanings, that run in this process, on a loop whose time is a number; and
end on cue."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

from pqbroker.broker.services.cleaning import cleaner, cleaning_pass
from pqbroker.pq.log.cleaning_windows import WindowLimits
from pqbroker.tables.work import log_cleaning, pool
from pqbroker.tables.work.messages import Line, Message
from pqbroker.tables.work.process import WorkerGone
from pqbroker.tables.work.sorted import merging
from pqbroker.tables.work.sorted.refusal import MergeRefused
from tests.support.inline_cleaning import CleaningWorkers

PIECE_BYTES = 700
"""Small, so that chunks have several pieces and a merge several commits."""
CLEANING_PAUSE_S = 0.001
"""Time of each message of a cleaning, so that others act between them."""
WINDOW_LIMITS = {"base_bytes": 3_000, "count_max": 4}
"""Such that a log has several windows."""


class _Sent(Line):
    """Keeps the messages of a merge."""

    def __init__(self) -> None:
        self.messages: deque[Message] = deque()

    def send(self, kind: str, document: Any, payload: Any = b"") -> None:
        self.messages.append(Message(kind, dict(document), bytes(payload)))

    def has_unasked(self) -> bool:
        return False


class InlineWorker:
    """One worker; `is_killed` says before each message whether it ends there."""

    def __init__(self, is_killed: Callable[[], bool]) -> None:
        self._is_killed = is_killed
        self._line = _Sent()
        self.is_new = True
        self.is_alive = True
        self.has_ended = False

    async def send(self, kind: str, document: Mapping[str, Any], payload: Sequence[Any] = ()) -> None:
        assert kind == "merge"
        self._line.messages.clear()
        message = Message(kind, dict(document), b"".join(payload))
        try:
            found = merging.merge(self._line, message)
        except MergeRefused as refusal:
            self._line.send("refused", refusal.document())
        else:
            self._line.send("merged", {**found, "resident_bytes": 0})

    async def receive(self) -> Message:
        if self._is_killed():
            self.is_alive, self.has_ended = False, True
            raise WorkerGone(self)  # type: ignore[arg-type]
        return self._line.messages.popleft()


class InlineWorkers:
    """The pool of them, in the place of `WorkerPool`."""

    def __init__(self, is_killed: Callable[[], bool]) -> None:
        self._is_killed = is_killed

    async def take(self) -> InlineWorker:
        return InlineWorker(self._is_killed)

    def give_back(self, worker: InlineWorker, idle_s: float) -> None: ...

    async def stop(self, worker: InlineWorker, idle_s: float, memory_bytes_max: int) -> None: ...

    async def end(self, worker: InlineWorker) -> int:
        return -9

    async def close(self) -> None: ...


@contextmanager
def inline_workers(is_killed: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Have the merges of sorted tables, and cleanings, run in this process."""

    async def meet(_: str) -> bool:
        await asyncio.sleep(CLEANING_PAUSE_S)
        return is_killed()

    with (
        patch.object(cleaner, "WorkerPool", lambda _: CleaningWorkers(meet)),
        patch.object(cleaning_pass, "WindowLimits", partial(WindowLimits, **WINDOW_LIMITS)),
        patch.object(log_cleaning, "BODY_PIECE_BYTES", PIECE_BYTES),
        patch.object(pool, "WorkerPool", lambda _: InlineWorkers(is_killed)),
        patch.object(merging, "CHUNK_PIECE_BYTES", PIECE_BYTES),
    ):
        yield
