"""Cleaning on command while the clock runs."""

import pytest

from tests.broker.conftest import Clock
from tests.broker.web.conftest import Web
from tests.broker.web.test_cleaning import clean, create, last_of_each, read, write_much


async def test_a_head_that_becomes_a_body_after_the_look_began_is_cleaned(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(web, **{"pq.low.watermark.bytes": 1 << 20})
    await write_much(web)
    before = await read(web)

    def tick(clock: Clock) -> int:
        clock.now_ms += 1
        return clock.now_ms

    monkeypatch.setattr(Clock, "__call__", tick)
    done = await clean(web)
    assert (done["state"], done["cleaned_to"]) == ("clean", len(before))
    assert await read(web) == last_of_each(before)
