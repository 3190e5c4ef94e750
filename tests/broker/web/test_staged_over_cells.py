"""Batches that are staged in tablets of two cells, as Spark's tasks do: each row once, whichever cell is lost amid the
commit. Its pieces appear one after the other: a batch is no transaction."""

import asyncio
from typing import Any

import pytest

from tests.broker.services.commits.test_crashes import settled
from tests.broker.web.conftest import Web
from tests.broker.web.test_inserting import row
from tests.broker.web.test_staged_rows import body, numbers, stage
from tests.broker.web.test_tables import NAME, SCHEMA


async def make_over_cells(web: Web) -> Any:
    """Make a table with a tablet in each of two cells; return the engines of the cells."""
    assert (await web.ask("POST", "/v1/bundles", {"name": "two"}))[0] == 201
    for _ in range(2):
        assert (await web.ask("POST", "/v1/cells", {"bundle": "two"}))[0] == 201
    made = {"path": "//shop/orders", "schema": SCHEMA, "bundle": "two", "tablet_count": 2}
    status, answer = await web.ask("POST", "/v1/tables", made)
    assert status == 201, answer
    topic = web.node.server.node.cell.current.topics.get(NAME)
    assert topic is not None
    assert len(set(topic.record.cells)) == 2
    engine: Any = web.node.engine
    return [engine.sibling(str(cell), must_exist=True) for cell in topic.record.cells]


async def commit_patiently(web: Web, document: dict[str, Any]) -> dict[str, Any]:
    """Ask until the batch is written."""
    async with asyncio.timeout(30):
        while True:
            status, answer = await web.ask("POST", f"/v1/tables/{NAME}/staged-rows/commit", document)
            if status == 200 and answer["done"]:
                done: dict[str, Any] = answer
                return done
            assert status in (200, 503), answer
            await asyncio.sleep(0.01)


def is_loaded(web: Web) -> bool:
    topic = web.node.server.node.cell.current.topics.get(NAME)
    return topic is not None and all(one.is_loaded for one in topic.partitions)


async def staged_pieces(web: Web, sequence: int) -> list[Any]:
    """Stage ten rows in each tablet."""
    rows = [row(number) for number in range(20 * sequence, 20 * sequence + 20)]
    left = await stage(web, *rows[:10], sequence=sequence, hint=0)
    return [*left, *await stage(web, *rows[10:], sequence=sequence, hint=1)]


@pytest.mark.parametrize("cell", [0, 1])
@pytest.mark.parametrize("is_stored", [False, True])
async def test_a_batch_in_tablets_of_two_cells_is_written_once(web: Web, cell: int, is_stored: bool) -> None:
    engines = await make_over_cells(web)
    for sequence, after in enumerate((0, 0, 1, 2)):
        pieces = await staged_pieces(web, sequence)
        if sequence:
            engines[cell].faults.lose_next(after=after, stored=is_stored)
        await commit_patiently(web, body(pieces, sequence))
        engines[cell].faults.clear()
        async with asyncio.timeout(30):
            while not is_loaded(web):  # noqa: ASYNC110 (what is waited for is a state, nobody sets an event)
                await asyncio.sleep(0.01)
        await settled(web)
        assert sorted(await numbers(web, 2)) == list(range(20 * sequence + 20))
        again = await commit_patiently(web, body(await staged_pieces(web, sequence), sequence))
        assert again["duplicate"] is True
    assert sorted(await numbers(web, 2)) == list(range(80))
