"""Processes on one simulated loop: each can be stopped, continued and killed, as by signals of the operating system.

What a process does runs in a context of its own, which callbacks, timers and tasks inherit. While it is stopped they
wait; once it is continued they run, in order: it goes on with what it was about to do. One that is killed does nothing.
"""

import asyncio
import signal
from asyncio import events
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from typing import Any

from tests.simulation.loop import VirtualHandle, VirtualLoop, VirtualTimer

PARENT = 0
"""Number of the parent among the nodes."""


class SimulatedProcess:
    """One process of node `number`, from its start to its end; what `asyncio.subprocess.Process` is to the parent."""

    def __init__(self, loop: "ProcessLoop", number: int) -> None:
        self.number = number
        self.context: Context = copy_context()
        self.context.run(CURRENT.set, self)
        self.held: list[Any] = []
        """Handles that were due while it was stopped."""
        self.is_stopped = False
        self.is_dead = False
        self.signals: dict[int, Callable[[], None]] = {}
        self.server: Any = None
        """Server of the node; None until it serves."""
        self.ends: list[Callable[[], None]] = []
        """Called when it dies."""
        self.work: set[asyncio.Task[Any]] = set()
        """Tasks that it was given from outside, so that they are not forgotten."""
        self.kill_delay_s = 0.0
        """Seconds that SIGKILL takes, as where the process waits for its disk."""
        self._loop = loop
        self._status: asyncio.Future[int] = loop.create_future()
        loop.last_pid += 1
        self.pid = loop.last_pid

    async def wait(self) -> int:
        """Return the exit status once it is gone."""
        return await asyncio.shield(self._status)

    def send_signal(self, number: int) -> None:
        """Send a signal; ProcessLookupError for a process that is gone."""
        if self._status.done():
            raise ProcessLookupError
        if number == signal.SIGKILL:
            self._loop.call_later(self.kill_delay_s, self.end, -number)
        else:
            known = self.signals.get(number)
            self.run(known if known is not None else lambda: self.end(-number))

    def run(self, call: Callable[..., object], *arguments: Any) -> None:
        """Have it call something soon; once it is continued where it is stopped."""
        if not self.is_dead:
            self._loop.call_soon(call, *arguments, context=self.context)

    def pause(self) -> None:
        """Stop it, as SIGSTOP does."""
        self.is_stopped = True

    def resume(self) -> None:
        """Continue it, unless it is dead."""
        if not self.is_dead:
            self.is_stopped = False
            self._loop.take_back(self)

    def presume_dead(self) -> None:
        """Have its parent take it for dead, which it is not, as where another machine cannot tell."""
        if not self._status.done():
            self._status.set_result(-signal.SIGKILL)

    def end(self, status: int) -> None:
        """End it at once: nothing of it runs any more."""
        if not self.is_dead:
            self.is_dead = self.is_stopped = True
            for call in self.ends:
                call()
        if not self._status.done():
            self._status.set_result(status)


CURRENT: ContextVar[SimulatedProcess | None] = ContextVar("process", default=None)
"""The process that runs now; None: the parent, clients, or what simulates them."""


def _run_unless_stopped(handle: Any) -> None:
    """Run a call; that of a process that is stopped waits until it continues."""
    process = handle._context.get(CURRENT)
    if process is not None and process.is_stopped:
        process.held.append(handle)
        return
    events.Handle._run(handle)


class _Handle(VirtualHandle):
    __slots__ = ()
    _run = _run_unless_stopped


class _Timer(VirtualTimer):
    __slots__ = ()
    _run = _run_unless_stopped


class ProcessLoop(VirtualLoop):
    """A loop of simulated time for several processes."""

    handle_type = _Handle
    timer_type = _Timer

    def __init__(self, thread_seconds: Callable[[], float], defects: list[str] | None = None) -> None:
        super().__init__(thread_seconds, defects)
        self.processes: list[SimulatedProcess] = []
        self.last_pid = 0
        self.parents_signals: dict[int, Callable[[], None]] = {}
        self.is_over = False
        """True once what the dead left may end."""

    def add_signal_handler(  # type: ignore[override]
        self, sig: int, callback: Callable[..., None], *args: Any
    ) -> None:
        process = CURRENT.get()
        known = self.parents_signals if process is None else process.signals
        known[sig] = lambda: callback(*args)

    def take_back(self, process: SimulatedProcess) -> None:
        """Run what was due while a process was stopped."""
        held, process.held = process.held, []
        self._ready.extend(held)

    def end_all(self) -> None:
        """Let the tasks of dead processes be cancelled: the run is over."""
        self.is_over = True
        for process in self.processes:
            process.is_stopped = False
            self.take_back(process)

    def _note(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not self.is_over:
            super()._note(loop, context)
