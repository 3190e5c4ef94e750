"""Workers that clean logs in this process, each on a thread that runs only while the loop waits for its next message:
the same way every time. They end on cue."""

import json
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from queue import SimpleQueue
from typing import Any, Final

from pqbroker.tables.work.log_cleaning import CleaningRefused, clean_log
from pqbroker.tables.work.messages import Bytes, Line, Message, Stopped
from pqbroker.tables.work.process import WorkerGone

Meet = Callable[[str], Awaitable[bool]]
_DEFECT: Final = "defect"
PATIENCE_S: Final = 60.0
"""Longest time that a cleaning takes between two messages, with a machine that is busy."""


class _Turns(Line):
    """The end of a worker on its thread."""

    def __init__(self) -> None:
        self.sent: SimpleQueue[Message] = SimpleQueue()
        self.answers: SimpleQueue[Message | None] = SimpleQueue()
        """None: the worker is to stop."""

    def send(self, kind: str, document: Mapping[str, Any], payload: Bytes = b"") -> None:
        self.sent.put(Message(kind, json.loads(json.dumps(document)), bytes(payload)))

    def ask(self, kind: str, document: Mapping[str, Any]) -> Message:
        self.send(kind, document)
        answer = self.answers.get(timeout=PATIENCE_S)
        if answer is None:
            raise Stopped
        return answer


class CleaningWorker:
    """One worker; `meet` is called with the kind of each message before it arrives. True: the worker ends there."""

    def __init__(self, meet: Meet) -> None:
        self._meet = meet
        self._turns: _Turns | None = None
        self.is_new = True
        self.has_ended = False

    async def send(self, kind: str, document: Mapping[str, Any], payload: Sequence[Bytes] = ()) -> None:
        message = Message(kind, json.loads(json.dumps(document)), b"".join(payload))
        if kind == "clean":
            self._turns = _Turns()
            threading.Thread(target=_clean, args=(self._turns, message), daemon=True).start()
        else:
            assert self._turns is not None
            self._turns.answers.put(message)

    async def receive(self) -> Message:
        assert self._turns is not None
        message = self._turns.sent.get(timeout=PATIENCE_S)
        assert message.kind != _DEFECT, message.document["text"]
        if await self._meet(message.kind):
            self.leave()
            self.has_ended = True
            raise WorkerGone(self)  # type: ignore[arg-type]
        return message

    def leave(self) -> None:
        """Have the thread end."""
        if self._turns is not None:
            self._turns.answers.put(None)


class CleaningWorkers:
    """The pool of them, in the place of `WorkerPool`."""

    pids: Sequence[int] = ()

    def __init__(self, meet: Meet) -> None:
        self._meet = meet

    async def take(self) -> CleaningWorker:
        return CleaningWorker(self._meet)

    def give_back(self, worker: CleaningWorker, idle_s: float) -> None: ...

    async def stop(self, worker: CleaningWorker, idle_s: float, memory_bytes_max: int) -> None:
        worker.leave()

    async def end(self, worker: CleaningWorker) -> int:
        worker.leave()
        return -9

    async def close(self) -> None: ...


def _clean(turns: _Turns, message: Message) -> None:
    """Clean a log as the worker's process does, to its end or until the worker is stopped."""
    try:
        turns.send("cleaned", {**clean_log(turns, message), "resident_bytes": 0})
    except CleaningRefused as refusal:
        turns.send("refused", {"message": str(refusal)})
    except Stopped:
        return
    except BaseException as defect:
        turns.send(_DEFECT, {"text": repr(defect)})
        raise
