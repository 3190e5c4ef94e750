"""Reservations of commit timestamps: made behind the commits, waited for only where none is left."""

import asyncio

from pqbroker.pq.log.commit_timestamps import RESERVED_AHEAD, timestamp_of
from pqbroker.pq.serving.timestamps import RETRY_MS, NodeTimestamps
from pqbroker.storage.engine import CommitRefused

NOW_MS = 1_700_000_000_000


class Row:
    """What is durable; refuses while `refuses` is set."""

    def __init__(self) -> None:
        self.made: list[int] = []
        self.refuses = False

    async def reserve(self, reserved: int) -> None:
        await asyncio.sleep(0)
        if self.refuses:
            raise CommitRefused("no room")
        self.made.append(reserved)


async def test_the_first_commit_waits_and_the_next_reservation_is_made_behind_others() -> None:
    row = Row()
    timestamps = NodeTimestamps(row.reserve, 0)
    first = timestamps.prepare(NOW_MS)
    assert first is not None
    assert timestamps.prepare(NOW_MS) is first, "commits wait for one reservation"
    assert not timestamps.rule.can_give, "nothing is given before it is durable"
    await first
    assert timestamps.prepare(NOW_MS) is None
    assert timestamps.prepare(NOW_MS + 6000) is None
    await asyncio.sleep(0.01)
    assert row.made == [timestamp_of(ms) + RESERVED_AHEAD for ms in (NOW_MS, NOW_MS + 6000)]
    jumped = timestamps.prepare(NOW_MS + 3_600_000)
    assert jumped is not None
    await jumped
    assert timestamps.rule.give(NOW_MS + 3_600_000) == timestamp_of(NOW_MS + 3_600_000)


async def test_where_no_reservation_can_be_made_earlier_values_are_used_and_it_is_tried_again() -> None:
    row = Row()
    timestamps = NodeTimestamps(row.reserve, 0)
    row.refuses = True
    failed = timestamps.prepare(NOW_MS)
    assert failed is not None
    await failed
    assert not timestamps.rule.can_give
    row.refuses = False
    again = timestamps.prepare(NOW_MS)
    assert again is not None, "without any, every commit tries"
    await again
    row.refuses = True
    later = NOW_MS + 60_000
    failed = timestamps.prepare(later)
    assert failed is not None
    await failed
    assert timestamps.prepare(later + 1) is None, "with some left, not before a second is over"
    assert timestamps.rule.give(later + 1) < timestamp_of(later)
    row.refuses = False
    again = timestamps.prepare(later + RETRY_MS)
    assert again is not None
    await again
    assert len(row.made) == 2
