"""Bytes a second that background work writes."""

import asyncio

from pqbroker.tables.serving.share import WriteRate


async def test_what_was_taken_is_paid_for_by_the_next_one() -> None:
    loop, rate = asyncio.get_running_loop(), WriteRate(100_000)
    begin_s = loop.time()
    await rate.take(2_000)
    await rate.take(1_000)
    await rate.take(1)
    assert loop.time() - begin_s >= 0.03
