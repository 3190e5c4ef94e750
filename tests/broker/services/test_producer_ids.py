"""Producer ids of one node and of several: each is given once, whatever is lost between node and scheme."""

import asyncio
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pqbroker.broker.services.producer_ids import PRODUCER_ID_MAX, ProducerIdBlock, ProducerIds, allocate
from pqbroker.storage.engine import CommitRefused, ShardLost
from pqbroker.storage.memory import MemoryEngine
from pqbroker.storage.tablets.cell import Cell
from pqbroker.storage.tablets.hosting import TabletHost
from pqbroker.storage.tablets.scheme import PRODUCER_IDS_PER_BLOCK, Scheme
from tests.support.depth import examples


async def test_ids_run_through_the_blocks_without_a_repeat() -> None:
    blocks = iter([ProducerIdBlock(10, 2), ProducerIdBlock(20, 3)])

    async def ask() -> ProducerIdBlock:
        await asyncio.sleep(0)
        return next(blocks)

    ids = ProducerIds(ask)
    assert ids.take() is None
    taken = await asyncio.gather(*(ids.take_from_next_block() for _ in range(4)))
    assert sorted(taken) == [10, 11, 20, 21]
    assert ids.take() == 22
    assert ids.take() is None


async def test_a_failed_block_fails_its_caller_and_the_next_asks_again() -> None:
    blocks: list[ProducerIdBlock] = []

    async def ask() -> ProducerIdBlock:
        if not blocks:
            raise OSError("full")
        return blocks.pop()

    ids = ProducerIds(ask)
    results = await asyncio.gather(ids.take_from_next_block(), return_exceptions=True)
    assert isinstance(results[0], OSError)
    blocks.append(ProducerIdBlock(0, 1))
    assert await ids.take_from_next_block() == 0


@pytest.mark.parametrize(
    "lie",
    [
        ProducerIdBlock(-1, 1),
        ProducerIdBlock(0, 0),
        ProducerIdBlock(0, -5),
        ProducerIdBlock(0, PRODUCER_IDS_PER_BLOCK + 1),
        ProducerIdBlock(PRODUCER_ID_MAX, 1),
    ],
)
async def test_a_block_that_no_scheme_gives_is_refused(lie: ProducerIdBlock) -> None:
    async def ask() -> ProducerIdBlock:
        return lie

    ids = ProducerIds(ask)
    with pytest.raises(ValueError, match="there is no such block"):
        await ids.take_from_next_block()
    assert ids.take() is None


STEPS = ("take", "take", "refuse", "lose the answer", "crash", "restart")


class SchemeNode:
    """The scheme of several nodes, whose node is lost and opened again, and answers that get lost."""

    def __init__(self) -> None:
        self.engine = MemoryEngine(1 << 24)
        self.is_answer_lost = False

    async def open(self) -> None:
        self.engine.faults.clear()
        self.scheme = await Scheme.open(TabletHost(await Cell.open(self.engine)))

    async def ask(self) -> ProducerIdBlock:
        block = await allocate(self.scheme)
        if self.is_answer_lost:
            self.is_answer_lost = False
            raise ShardLost("the answer")
        return block


async def _play(story: list[tuple[str, int]]) -> None:
    node = SchemeNode()
    await node.open()
    nodes = [ProducerIds(node.ask) for _ in range(3)]
    given_ids: list[int] = []
    for step, number in story:
        if step == "refuse":
            node.engine.faults.refuse_next()
        elif step == "lose the answer":
            node.is_answer_lost = True
        elif step == "crash":
            node.engine.crash()
            await node.open()
        elif step == "restart":
            nodes[number] = ProducerIds(node.ask)
        else:
            asked = map(partial(_take, nodes[number]), range(2))
            given_ids += [found for found in await asyncio.gather(*asked) if found is not None]
    assert len(given_ids) == len(set(given_ids))


async def _take(ids: ProducerIds, _: int) -> int | None:
    found = ids.take()
    if found is None:
        try:
            found = await ids.take_from_next_block()
        except (CommitRefused, ShardLost):
            return None
    return found


@settings(max_examples=examples(100))
@given(
    st.lists(
        st.tuples(st.sampled_from(STEPS), st.integers(0, 2)),
        max_size=30,
    )
)
def test_ids_of_several_nodes_never_collide(story: list[tuple[str, int]]) -> None:
    asyncio.run(_play(story))
