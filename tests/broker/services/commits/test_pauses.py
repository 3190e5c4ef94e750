"""Backups and commits of several cells: these wait while the moments are taken, and a backup is refused beside what is
unfinished."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from pqbroker.broker.services.commits import commits as commits_module
from pqbroker.storage.engine import BackupFacts
from pqbroker.storage.memory import MemoryShard
from tests.broker.conftest import until
from tests.broker.services.commits.doubt import NUMBER, bring_back, leave_in_doubt
from tests.broker.services.commits.test_crashes import begin, commit, found, make_tables, settled, sibling
from tests.broker.web.conftest import Web, serve, web  # noqa: F401 (fixtures)


@pytest.fixture(autouse=True)
def copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Backups of memory take their moments at once, and copy nothing."""

    async def backup(_: Any, name: str, others: Any, during: AbstractAsyncContextManager[None]) -> BackupFacts:
        async with during:
            return BackupFacts(name, 1, len(others) + 1, 0, 0)

    monkeypatch.setattr(MemoryShard, "backup", backup)


async def test_commits_over_cells_wait_for_a_pause_and_are_refused_after_the_limit(
    serve: Callable[..., Awaitable[Web]]  # noqa: F811
) -> None:
    web = await serve(transaction_prepare_ms_max=50)  # noqa: F811
    await make_tables(web)
    await settled(web)
    opened = web.node.server.node.cell.current
    one = {"writes": [{"table": "left", "rows": [{"id": 1, "number": 1}]}]}
    both = {"writes": [*one["writes"], {"table": "right", "rows": [{"id": 1, "number": 1}]}]}
    async with opened.commits.pause() as is_quiet:
        assert is_quiet
        status, code, text = await web.refusal("POST", f"/v1/transactions/{await begin(web)}/commit", both)
        assert (status, code) == (503, "TRANSACTIONS_PAUSED")
        assert "0.05 s" in text
        assert (await web.ask("POST", f"/v1/transactions/{await begin(web)}/commit", one))[0] == 200
    opened.commits._limit_s = 30
    pause = opened.commits.pause()
    await pause.__aenter__()
    waiting = asyncio.create_task(web.ask("POST", f"/v1/transactions/{await begin(web)}/commit", both))
    await until(lambda: bool(opened.commits._open.open_count))
    assert not opened.commits.under_way
    await pause.__aexit__(None, None, None)
    assert (await waiting)[0] == 200


async def test_a_backup_waits_for_commits_under_way(web: Web) -> None:  # noqa: F811
    await make_tables(web)
    faults = sibling(web, "right").faults
    faults.hold()
    committing = asyncio.create_task(commit(web, await begin(web), NUMBER))
    opened = web.node.server.node.cell.current
    await until(lambda: bool(opened.commits.under_way))
    making = asyncio.create_task(web.ask("POST", "/v1/backups", {"name": "b"}))
    await until(lambda: opened.commits._pause is not None)
    assert not making.done()
    faults.release()
    assert (await making)[0] == 201
    assert await committing == "committed"
    assert await found(web, NUMBER) == [NUMBER] * 3


async def test_a_backup_beside_something_in_doubt_is_refused_with_its_cause(
    web: Web, monkeypatch: pytest.MonkeyPatch  # noqa: F811
) -> None:
    monkeypatch.setattr(commits_module, "PAUSE_S_MAX", 0.05)
    await leave_in_doubt(web, is_stored=True)
    _, code, text = await web.refusal("POST", "/v1/backups", {"name": "b"})
    assert (code, "cell 1 is offline, and a backup holds every cell" in text) == ("BACKUP_REFUSED", True)
    faults = sibling(web, "right").faults
    for number in range(10_000):
        faults.refuse_next(after=number)
    await bring_back(web)
    _, code, text = await web.refusal("POST", "/v1/backups", {"name": "b"})
    assert (code, "`pqbroker transaction list --unfinished`" in text) == ("BACKUP_REFUSED", True)
    faults.clear()
    await settled(web)
    assert (await web.ask("POST", "/v1/backups", {"name": "b"}))[0] == 201
