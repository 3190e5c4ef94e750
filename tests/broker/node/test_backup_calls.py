"""A node's part in a backup of the first one: copies that end between two questions, pauses that end too early."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pqbroker.broker.node import backup_calls
from pqbroker.broker.node.backup_calls import BackupCalls, BackupStep, CopyElsewhere, commits_paused
from pqbroker.broker.peers.peer_link import PeerRefused
from pqbroker.storage.copy_steps import CopiedBytes, CopySteps
from pqbroker.storage.engine import BackupRefused
from pqbroker.storage.ids import CellId
from tests.broker.conftest import until

CELL = CellId(3)
TOOK = CopiedBytes(1, 2, 3)
TURNS = 100
"""Turns of the loop in which a copy that does not wait for the others would take its moment."""


class Member:
    """A node with one cell; the test says when the copy of that ends."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.has_ended = False
        self.pauses = 0
        host = SimpleNamespace(cell=SimpleNamespace(lost=asyncio.Future(), copy_into=self._copy))
        opened = SimpleNamespace(
            cells=SimpleNamespace(host=lambda _: host), commits=SimpleNamespace(pause=self._pause)
        )
        self.calls = BackupCalls(lambda: cast(Any, opened))

    async def ask(self, asked: Any) -> Any:
        """Ask as the first node does."""
        try:
            return await self.calls.answer(asked)
        except PeerRefused as refused:
            raise BackupRefused(str(refused)) from refused

    async def _copy(self, name: str, steps: CopySteps) -> CopiedBytes:
        steps.begun.set()
        await steps.may_take.wait()
        steps.taken.set()
        await steps.may_end.wait()
        await self.may_end.wait()
        self.has_ended = True
        return TOOK

    @asynccontextmanager
    async def _pause(self) -> AsyncIterator[bool]:
        self.pauses += 1
        try:
            yield True
        finally:
            self.pauses -= 1


async def test_a_copy_that_ends_between_two_questions_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backup_calls, "ASKED_AGAIN_S", 0)
    member = Member()
    for goal in (BackupStep.BEGUN, BackupStep.TAKEN):
        told = None
        while told is None:
            told = await member.ask([goal, "b", CELL])
    assert await member.ask([BackupStep.ENDED, "b", CELL]) is None
    member.may_end.set()
    await until(lambda: member.has_ended)
    await asyncio.sleep(0)
    assert await member.ask([BackupStep.ENDED, "b", CELL]) == [*TOOK]
    with pytest.raises(BackupRefused, match="no copy of cell 3 is made here"):
        await member.ask([BackupStep.ENDED, "b", CELL])


async def test_a_copy_goes_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backup_calls, "ASKED_AGAIN_S", 0.001)
    member, steps = Member(), CopySteps()
    copying = asyncio.ensure_future(CopyElsewhere(member.ask, CELL).copy("b", steps))
    await steps.begun.wait()
    for _ in range(TURNS):
        await asyncio.sleep(0)
    assert not steps.taken.is_set()
    steps.may_take.set()
    await steps.taken.wait()
    steps.may_end.set()
    member.may_end.set()
    assert await copying == TOOK


@pytest.mark.parametrize("is_early", [False, True])
async def test_a_pause_that_ended_before_all_moments_were_taken_refuses_the_backup(
    monkeypatch: pytest.MonkeyPatch, is_early: bool
) -> None:
    """Else a commit of several cells may be in one copy and not in another."""
    monkeypatch.setattr(backup_calls, "LEFT_S", 0.01 if is_early else 1000)
    members = [Member(), Member()]
    refusals = list[str]()
    try:
        async with commits_paused([each.ask for each in members]):
            assert [each.pauses for each in members] == [1, 1]
            if is_early:
                await until(lambda: not any(each.pauses for each in members))
    except BackupRefused as refused:
        refusals.append(str(refused))
    assert len(refusals) == is_early
    assert [each.pauses for each in members] == [0, 0]


async def test_a_node_that_is_gone_at_the_end_of_a_pause_refuses_the_backup() -> None:
    member = Member()

    async def ask(asked: Any) -> Any:
        if asked == [BackupStep.RESUME]:
            raise BackupRefused("node 2 is not linked")
        return await member.ask(asked)

    with pytest.raises(BackupRefused, match="node 2 is not linked"):
        async with commits_paused([ask]):
            pass
    await member.calls.leave()


async def test_a_copy_that_nobody_asks_for_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backup_calls, "LEFT_S", 0.01)
    member = Member()
    assert await member.ask([BackupStep.BEGUN, "b", CELL])
    await until(lambda: not member.calls._copies)
    with pytest.raises(BackupRefused, match="no copy of cell 3 is made here"):
        await member.ask([BackupStep.TAKEN, "b", CELL])
