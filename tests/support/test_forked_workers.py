"""Forked workers answer and end as executed ones do, and a worker of another command is executed."""

import os
import signal
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from pqbroker.tables.work import process
from pqbroker.tables.work.process import WorkerProcess
from tests.support.forked_workers import executed_workers

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="this system does not fork workers")


def command_of(worker: WorkerProcess) -> list[str]:
    return Path(f"/proc/{worker.pid}/cmdline").read_text(encoding="utf-8").split("\0")


@pytest.mark.parametrize("executed", [False, True])
async def test_a_worker_answers_and_ends(*, executed: bool) -> None:
    with executed_workers() if executed else nullcontext():
        worker = await WorkerProcess.start()
    assert worker.is_alive
    assert await worker.stop() is not None
    assert ("pqbroker.tables.work" in command_of(worker)) is executed
    assert os.getsid(worker.pid) == worker.pid
    assert await worker.end() in {0, -signal.SIGKILL}
    assert not worker.is_alive


async def test_a_worker_that_is_killed_has_ended() -> None:
    worker = await WorkerProcess.start()
    os.kill(worker.pid, signal.SIGKILL)
    assert await worker.end() == -signal.SIGKILL


async def test_a_worker_of_another_command_is_executed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "COMMAND", (sys.executable, "-m", "tests.support.scripted_worker"))
    worker = await WorkerProcess.start()
    assert await worker.stop() is not None
    assert "tests.support.scripted_worker" in command_of(worker)
    await worker.end()
