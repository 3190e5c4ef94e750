"""The process of a worker is ended if the task that starts it is cancelled."""

import asyncio
import socket
import subprocess
import threading

import pytest

from pqbroker.tables.work import process
from pqbroker.tables.work.process import WorkerProcess


async def test_a_process_whose_starter_was_cancelled_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    spawn, is_asked, may_go_on = process.spawn, threading.Event(), threading.Event()
    started: list[subprocess.Popen[bytes]] = []

    def slow(connection: socket.socket) -> "subprocess.Popen[bytes]":
        is_asked.set()
        may_go_on.wait()
        started.append(spawn(connection))
        return started[0]

    monkeypatch.setattr(process, "spawn", slow)
    starting = asyncio.create_task(WorkerProcess.start())
    await asyncio.to_thread(is_asked.wait)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    may_go_on.set()
    await asyncio.get_running_loop().shutdown_default_executor()
    assert started[0].returncode is not None
