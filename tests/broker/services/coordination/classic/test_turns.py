"""A large group does not keep the loop: its answers go out over several turns."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

from pqbroker.broker.services.coordination.classic.messages import Join, Joined
from pqbroker.broker.services.coordination.classic_groups import ANSWERS_A_TURN
from pqbroker.protocol.errors import ErrorCode
from tests.broker.conftest import Node, until
from tests.broker.services.coordination.classic.rig import RANGE

MEMBERS = 3 * ANSWERS_A_TURN + 1


async def test_answers_of_a_large_group_go_out_over_several_turns(start: Callable[..., Awaitable[Node]]) -> None:
    node = await start(group_initial_rebalance_delay_ms=1)
    loop = asyncio.get_running_loop()
    turn = 0
    answers: list[tuple[int, Joined]] = []

    def count_turns() -> None:
        nonlocal turn
        turn += 1
        if len(answers) < MEMBERS:
            loop.call_soon(count_turns)

    loop.call_soon(count_turns)
    for number in range(MEMBERS):
        request = Join("", None, "consumer", RANGE, 60_000, 60_000, f"m{number}", requires_known_id=False)
        node.server.node.cell.current.coordinators.join("g", request, lambda joined: answers.append((turn, joined)))
    await until(lambda: len(answers) == MEMBERS)
    assert {joined.error for _, joined in answers} == {ErrorCode.NONE}
    assert max(Counter(turn for turn, _ in answers).values()) <= ANSWERS_A_TURN


async def test_answers_that_wait_for_their_turn_come_when_the_coordinator_closes(
    start: Callable[..., Awaitable[Node]]
) -> None:
    node = await start(group_initial_rebalance_delay_ms=1)
    answers: list[Joined] = []
    coordinators = node.server.node.cell.current.coordinators
    for number in range(MEMBERS):
        request = Join("", None, "consumer", RANGE, 60_000, 60_000, f"m{number}", requires_known_id=False)
        coordinators.join("g", request, answers.append)
    await until(lambda: bool(answers))
    coordinators.close()
    assert len(answers) == MEMBERS
    assert {joined.error for joined in answers} == {ErrorCode.NONE}


async def test_an_earlier_deadline_replaces_the_timer(start: Callable[..., Awaitable[Node]]) -> None:
    node = await start(group_initial_rebalance_delay_ms=1)
    answers: list[Joined] = []
    for member_id in ("", "m"):  # the id given out lasts a minute, the first rebalance a millisecond
        request = Join(member_id, None, "consumer", RANGE, 60_000, 60_000, "m")
        node.server.node.cell.current.coordinators.join("g", request, answers.append)
    await until(lambda: len(answers) == 2)
    assert [joined.error for joined in answers] == [ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.NONE]
