"""Names what keeps the event loop of a broker for long: a thread looks at its stack while a turn lasts.

A Python that has this folder in PYTHONPATH imports it at its start. Where TURN_STACKS names a file, the stacks of each
long turn of `pqbroker serve` are added to it: files with lines and functions, the last ones of each stack.
"""

import asyncio
import os
import sys
import threading
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final

TICK_S: Final = 0.002
"""Seconds between the looks of the loop at the clock: how early a turn is seen to last."""
LONG_S: Final = 0.018
"""Shortest turn that is reported, in seconds, the tick included."""
SAMPLE_S: Final = 0.003
STACKS: Final = 6
"""Greatest number of stacks that are reported for a turn."""
CHARACTERS: Final = 400
"""Characters of a stack, from its end."""


class Sampler:
    """Samples the thread that makes it, which runs the loop."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._turned_s = 0.0
        self._never = threading.Event()
        self._tick()
        threading.Thread(target=self._sample, name="turn stacks", daemon=True).start()

    def _tick(self) -> None:
        self._turned_s = time.perf_counter()
        self._loop.call_later(TICK_S, self._tick)

    def _sample(self) -> None:
        while True:
            self._never.wait(SAMPLE_S)
            turned_s, stacks = self._turned_s, list[str]()
            while self._turned_s == turned_s and time.perf_counter() - turned_s > 2 * TICK_S + SAMPLE_S:
                stacks.append(self._stack())
                self._never.wait(SAMPLE_S)
            lasted_s = time.perf_counter() - turned_s
            if stacks and lasted_s > LONG_S:
                shown = "".join(f"  {stack}\n" for stack in stacks[:: -(-len(stacks) // STACKS)])
                with self._file.open("a", encoding="utf-8") as file:
                    file.write(f"a turn of {lasted_s * 1000:.0f} ms\n{shown}")

    def _stack(self) -> str:
        frame, places = sys._current_frames().get(self._thread_id), list[str]()
        while frame is not None:
            code = frame.f_code
            places.append(f"{'/'.join(code.co_filename.split('/')[-3:])}:{frame.f_lineno} {code.co_name}")
            frame = frame.f_back
        return " > ".join(reversed(places))[-CHARACTERS:]


def _serve_sampled(file: Path) -> None:
    """Have whatever `asyncio.Runner` runs be sampled."""
    run = asyncio.Runner.run

    def run_sampled(self: asyncio.Runner, coro: Coroutine[Any, Any, Any], **options: Any) -> Any:
        async def sampled() -> Any:
            Sampler(file)
            return await coro

        return run(self, sampled(), **options)

    asyncio.Runner.run = run_sampled  # type: ignore[method-assign]


if "serve" in sys.orig_argv and os.environ.get("TURN_STACKS"):
    _serve_sampled(Path(os.environ["TURN_STACKS"]))
