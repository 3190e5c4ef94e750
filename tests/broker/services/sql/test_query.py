"""A query's end, whatever ends it. The worker is one that never stops; nothing is started."""

import asyncio
from typing import Any, cast
from unittest.mock import MagicMock

import pytest

from pqbroker.broker.services.sql.query import Query, Question
from pqbroker.broker.services.sql.workers import Workers
from pqbroker.conf.broker import BrokerSettings
from pqbroker.tables.work.process import WorkerProcess


class StuckWorker:
    """A worker that answers nothing and does not stop."""

    is_new = False

    async def send(self, kind: str, document: Any, payload: Any = ()) -> None:
        """Take the question."""

    async def receive(self) -> None:
        await asyncio.Event().wait()

    async def stop(self) -> None:
        await asyncio.Event().wait()


def test_a_query_that_is_cancelled_twice_gives_its_slot_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        workers = Workers()

        async def take() -> WorkerProcess:
            return cast(WorkerProcess, StuckWorker())

        monkeypatch.setattr(Workers, "take", lambda _: take())
        question = Question("SELECT 1", "json", "somebody")

        async def ask() -> None:
            async with Query(workers, BrokerSettings(), MagicMock(), question) as query:
                await query.piece()

        asked = asyncio.create_task(ask())
        for _ in range(2):  # amid the question, then amid the stop
            for _ in range(5):
                await asyncio.sleep(0)
            assert workers.slots.running == 1
            asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert workers.slots.running == 0
        assert workers.counters.ended == {"left": 1}
        for each in asyncio.all_tasks() - {asyncio.current_task()}:
            each.cancel()

    asyncio.run(run())
