"""Classic groups of many members that become groups of KIP-848 in slices."""

import asyncio
from collections import Counter
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from pqbroker.broker.ground.turns import Turns
from pqbroker.broker.services.coordination.classic.group import Group
from pqbroker.broker.services.coordination.classic.leaving import leave
from pqbroker.broker.services.coordination.classic.memory import GroupMemory
from pqbroker.broker.services.coordination.classic.messages import Leaver
from pqbroker.broker.services.coordination.modern.group import ModernGroup
from pqbroker.broker.services.coordination.upgrades import FEW_MEMBERS, Upgrades
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.tablets.coordinator_rows import GroupImage, MemberImage, MemberProtocol
from tests.broker.services.coordination.modern.rig import LIMITS, Topics
from tests.broker.services.coordination.modern.test_migration import assignment, subscription

MANY = FEW_MEMBERS + 10


def group_of(size: int, last: bytes = subscription()) -> Group:
    """Return a stable group; `last`: what its last member says of itself."""
    members = tuple(
        MemberImage(
            f"m{n}", None, "c", "h", 30_000, 30_000,
            (MemberProtocol("range", last if n == size - 1 else subscription()),), assignment(n),
        )
        for n in range(size)
    )  # fmt: skip
    limits = replace(LIMITS, members_max=1000, modern_members_max=1000, memory=GroupMemory(1 << 22))
    return Group.load(GroupImage("g", 7, "consumer", "range", "m0", members), limits, 0)


class Asking:
    """A caller that asks for a group until there is one, or it is refused."""

    def __init__(self, some: Upgrades, group: Group) -> None:
        self._some = some
        self._group = group
        self.end: asyncio.Future[ModernGroup] = asyncio.get_running_loop().create_future()
        self.tries = 0
        self._ask(None)

    def _ask(self, refusal: KafkaError | None) -> None:
        self.tries += 1
        if refusal is not None:
            self.end.set_exception(refusal)
        elif (found := self._some.take(self._group, self._ask)) is not None:
            self.end.set_result(found)


@pytest.fixture
async def some() -> Upgrades:
    """Each step takes a slice."""
    topics = Topics()
    topics.put("t", 1000)
    return Upgrades(topics, Turns(asyncio.get_running_loop(), count().__next__))


async def test_a_group_of_few_is_had_at_once(some: Upgrades) -> None:
    asking = Asking(some, group_of(FEW_MEMBERS))
    assert asking.end.done()
    assert len(asking.end.result().members) == FEW_MEMBERS


async def test_members_have_turns_of_their_own(some: Upgrades, monkeypatch: pytest.MonkeyPatch) -> None:
    loop, add, turns, passed = asyncio.get_running_loop(), ModernGroup.add, Counter[int](), 0

    def pass_turn() -> None:
        nonlocal passed
        passed += 1
        if not asking.end.done():
            loop.call_soon(pass_turn)

    def add_and_count(group: ModernGroup, member: Any) -> None:
        turns[passed] += 1
        add(group, member)

    monkeypatch.setattr(ModernGroup, "add", add_and_count)
    asking = Asking(some, group_of(MANY))
    pass_turn()
    built = await asking.end
    assert (len(built.members), built.epoch, asking.tries) == (MANY, 7, 2)
    assert max(turns.values()) == 1


async def test_a_group_that_changes_meanwhile_moves_as_it_has_become(some: Upgrades) -> None:
    group = group_of(MANY)
    before = group.limits.memory.taken
    asking, other = Asking(some, group), Asking(some, group)
    await asyncio.sleep(0)
    leave(group, [Leaver("m3", None)], 0)
    built = await asking.end
    assert "m3" not in built.members
    assert len(built.members) == MANY - 1
    assert asking.tries == 3
    built.usage.release()
    assert (await other.end) is not built  # no group was hosted that it could have found
    other.end.result().usage.release()
    assert before > group.limits.memory.taken


async def test_all_but_the_first_who_wait_have_later_turns(some: Upgrades) -> None:
    group = group_of(MANY)
    asking = [Asking(some, group) for _ in range(4)]
    done: list[list[bool]] = []
    asking[0].end.add_done_callback(lambda _: done.append([each.end.done() or each.tries > 1 for each in asking]))
    await asking[0].end
    asking[0].end.result().usage.release()
    assert done == [[True, False, False, False]]
    for each in asking[1:]:
        (await each.end).usage.release()


async def test_a_group_that_cannot_move_is_refused_to_all_who_wait(some: Upgrades) -> None:
    group = group_of(MANY, last=b"its own")
    before = group.limits.memory.taken
    for asking in [Asking(some, group), Asking(some, group)]:
        with pytest.raises(KafkaError) as refused:
            await asking.end
        assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert group.limits.memory.taken == before


async def test_all_who_wait_are_refused_at_the_end(some: Upgrades) -> None:
    group = group_of(MANY)
    before = group.limits.memory.taken
    asking = Asking(some, group)
    await asyncio.sleep(0)
    assert group.limits.memory.taken > before
    some.close(KafkaError(ErrorCode.NOT_COORDINATOR, "stopping"))
    with pytest.raises(KafkaError, match="stopping"):
        await asking.end
    await asyncio.sleep(0)
    assert group.limits.memory.taken == before
