import asyncio

from pqbroker.broker.services.producer_ids import ProducerIds


async def test_ids_run_through_the_blocks_without_a_repeat() -> None:
    blocks = iter([range(10, 12), range(20, 23)])

    async def next_block() -> range:
        await asyncio.sleep(0)
        return next(blocks)

    ids = ProducerIds(next_block)
    assert ids.take() is None
    taken = await asyncio.gather(*(ids.take_from_next_block() for _ in range(4)))
    assert sorted(taken) == [10, 11, 20, 21]
    assert ids.take() == 22
    assert ids.take() is None


async def test_a_failed_block_fails_its_caller_and_the_next_asks_again() -> None:
    blocks: list[range] = []

    async def next_block() -> range:
        if not blocks:
            raise OSError("full")
        return blocks.pop()

    ids = ProducerIds(next_block)
    results = await asyncio.gather(ids.take_from_next_block(), return_exceptions=True)
    assert isinstance(results[0], OSError)
    blocks.append(range(1))
    assert await ids.take_from_next_block() == 0
