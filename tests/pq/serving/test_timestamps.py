"""Reservations of commit timestamps: made behind the commits, waited for only where none is left."""

import asyncio

from pqbroker.pq.log.commit_timestamps import RESERVED_AHEAD, timestamp_of
from pqbroker.pq.serving.timestamps import RETRY_MS, BlockTimestamps, NodeTimestamps
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


class Provider:
    """The node with the scheme, which another one asks; gone while `is_gone` is set."""

    def __init__(self, reserved: int = 0) -> None:
        self.row = Row()
        self.timestamps = NodeTimestamps(self.row.reserve, reserved)
        self.blocks: list[tuple[int, int]] = []
        self.is_gone = False

    async def ask(self, after: int) -> tuple[int, int]:
        await asyncio.sleep(0)
        if self.is_gone:
            raise CommitRefused("the first node is not reached")
        self.blocks.append(await self.timestamps.give_block(lambda: NOW_MS, after))
        return self.blocks[-1]


async def _given(some: BlockTimestamps) -> int:
    """Return a timestamp of a commit that begins now."""
    question = some.prepare(NOW_MS)
    assert question is not None
    await question
    assert some.rule.can_give
    given = some.rule.give(NOW_MS)
    await asyncio.sleep(0)
    return given


async def test_a_commit_behind_another_nodes_commit_has_the_greater_timestamp() -> None:
    provider = Provider()
    nodes = [BlockTimestamps(provider.ask), BlockTimestamps(provider.ask)]
    given = [await _given(nodes[number % 2]) for number in range(10)]
    given.append(provider.timestamps.rule.give(NOW_MS))
    given += [await _given(nodes[0]), await _given(BlockTimestamps(Provider(provider.timestamps.rule.reserved).ask))]
    assert given == sorted(set(given))


async def test_commits_of_one_turn_share_a_block_and_later_ones_do_not() -> None:
    provider = Provider()
    node, turns = BlockTimestamps(provider.ask), list[bool]()
    first = node.prepare(NOW_MS)
    assert first is not None
    assert node.prepare(NOW_MS) is first, "it was not asked yet"
    first.add_done_callback(lambda _: turns.append(node.prepare(NOW_MS) is None and node.rule.can_give))
    await asyncio.sleep(0)
    second = node.prepare(NOW_MS)
    assert second is not None
    assert second is not first, "what is asked already may be answered before a commit that has ended since"
    await first
    await second
    assert turns == [True]
    assert len(provider.blocks) == 2
    for _ in range(3):
        await asyncio.sleep(0)
    assert not node.rule.can_give, "what is left of a block is given to nobody"


async def test_without_the_provider_no_timestamp_is_given() -> None:
    provider = Provider()
    node = BlockTimestamps(provider.ask)
    before = await _given(node)
    provider.is_gone = True
    for _ in range(2):
        question = node.prepare(NOW_MS)
        assert question is not None
        await question
        assert not node.rule.can_give
    provider.is_gone, provider.row.refuses = False, True
    provider.timestamps.rule.reserved = provider.timestamps.rule.last
    question = node.prepare(NOW_MS)
    assert question is not None
    await question
    assert not node.rule.can_give, "the provider has none reserved"
    provider.row.refuses = False
    provider.timestamps = NodeTimestamps(provider.row.reserve, provider.row.made[-1])
    assert await _given(node) > before


async def test_a_block_lies_behind_what_its_node_has_seen_in_stored_rows() -> None:
    provider = Provider()
    node = BlockTimestamps(provider.ask)
    seen = timestamp_of(NOW_MS + 3_600_000)
    node.rule.saw(seen)
    assert await _given(node) > seen
    assert await _given(BlockTimestamps(provider.ask)) > seen
