"""Looks go on whatever becomes of the question for damaged blobs, which goes to the disk."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from pqbroker.broker.services.health import health as module
from pqbroker.broker.services.health.health import Health
from pqbroker.storage.engine import IndexDamaged, ShardLost
from tests.broker.conftest import until


async def _damaged_index() -> None:
    raise IndexDamaged("index/000012.sst")


async def _lost_cell() -> None:
    raise ShardLost


async def _stalled_disk() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("question", [_damaged_index, _lost_cell, _stalled_disk])
async def test_looks_go_on(monkeypatch: pytest.MonkeyPatch, question: Any) -> None:
    looks, questions = [], []

    async def ask() -> None:
        questions.append(1)
        await question()

    host = SimpleNamespace(cell=SimpleNamespace(inspection=SimpleNamespace(damaged_blobs=ask)))
    cells = SimpleNamespace(hosts=lambda: [(0, host)])
    node: Any = SimpleNamespace(cell=SimpleNamespace(current=SimpleNamespace(cells=cells)))
    monkeypatch.setattr(module, "HEALTH_LOOK_S", 0)
    monkeypatch.setattr(Health, "look", lambda *_: looks.append(1))
    running = asyncio.create_task(Health().run(node))
    await until(lambda: len(looks) > 5 and (question is _stalled_disk or len(questions) > 2))
    assert not running.done()
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()
