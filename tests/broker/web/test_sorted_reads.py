"""Queries of sorted tables beside writes, flushes, compactions, restarts and moves: each sees one moment."""

import asyncio
import json
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from pqbroker.broker.services.sql.query import OtherReads, Query, Question
from pqbroker.broker.services.sql.sorted_reads import SortedReads
from pqbroker.broker.services.sql.tablet_reads import TabletsHere
from pqbroker.broker.services.sql.topic_reads import TopicParts, TopicReads
from pqbroker.pq.reading.query import Isolation
from pqbroker.pq.serving.topic import Topic
from pqbroker.tables.refusals import TableError
from pqbroker.tables.serving.open_reads import OpenReads
from pqbroker.tables.serving.stored_inputs import locate_inputs
from pqbroker.tables.serving.table import SortedTable
from tests.broker.conftest import until
from tests.broker.web.conftest import Web
from tests.broker.web.test_sorted_background import flush, holds, set_attributes, tablet_of
from tests.broker.web.test_sorted_tables import PATH, create, insert, reopen, row

TABLE = "shop.stock"
STORES_AHEAD = 5
"""Stores of a tablet above which a writer waits: at ten its writes are refused."""
EVERY: Any = [(b"", None)]


def table(web: Web) -> SortedTable:
    found: SortedTable = web.node.server.node.cell.current.sorted_tables.tables[TABLE]
    return found


class _ReadTargets:
    """The one table of a node."""

    def __init__(self, web: Web) -> None:
        self._web = web

    def is_sorted(self, name: str) -> bool:
        return name == TABLE

    def topic(self, name: str) -> Topic:
        raise AssertionError(name)

    def parts_away(self, names: Sequence[str]) -> dict[int, TopicParts]:
        assert names == []
        return {}

    def parts_here(self, names: Sequence[str]) -> TopicParts:
        assert names == []
        return {}

    def node_of(self, name: str, partition: int) -> int | None:
        raise AssertionError(name)

    def reads_here(self, isolation: Isolation) -> TopicReads:
        return TopicReads(lambda name, _: self.topic(name), isolation)

    def reads_at(self, node: int, isolation: Isolation) -> OtherReads:
        raise AssertionError(node)

    def nodes_of(self, table: SortedTable, indexes: Sequence[int]) -> list[None]:
        return [None for _ in indexes]

    def open_reads(self) -> OpenReads:
        return table(self._web).tablets[0].share.reads

    def sorted_table(self, name: str) -> SortedTable:
        return table(self._web)

    def file(self, name: str) -> None:
        """No name means a file."""

    async def listed(self, after: str, names: Sequence[str] | None, *, has_columns: bool) -> dict[str, Any]:
        raise AssertionError(names)

    def moment(self, names: Sequence[str]) -> AbstractAsyncContextManager[None]:
        raise AssertionError(names)


def sorted_reads(web: Web, timestamp: int | None) -> SortedReads:
    targets = _ReadTargets(web)
    here = TabletsHere(targets.sorted_table, targets.open_reads)
    return SortedReads(targets.sorted_table, here, query(web, "SELECT 1"), timestamp)


def query(web: Web, text: str, timestamp: int | None = None) -> Query:
    node = web.node.server.node
    return Query(node.workers, node.settings, _ReadTargets(web), Question(text, "json", "test", timestamp=timestamp))


async def answered(web: Web, text: str, timestamp: int | None = None) -> list[Any]:
    pieces = []
    async with query(web, text, timestamp) as asked:
        while (piece := await asked.piece()) is not None:
            pieces.append(piece)
    return [json.loads(line) for line in b"".join(pieces).splitlines()]


async def refused_timestamp(web: Web, timestamp: int) -> str:
    body = {"query": f"SELECT count FROM {TABLE}", "timestamp": timestamp}
    return (await web.refusal("POST", "/v1/sql", body))[1]


async def test_clean_up_keeps_what_an_open_query_sees_until_it_ends(web: Web) -> None:
    await create(web, attributes={"min_data_ttl": 0, "max_data_ttl": 0})
    tablet = tablet_of(web)
    at = await insert(web, *(row("a", number, count=1) for number in range(50)))
    reads = sorted_reads(web, at)
    await reads.snapshot(TABLE)
    web.node.clock.now_ms += 1000
    await insert(web, *(row("a", number, count=2) for number in range(50)))
    web.node.clock.now_ms += 1000
    await flush(web)
    await set_attributes(web, forced_compaction_revision=1)
    (before,) = tablet.structure.chunks
    await holds(web, lambda: before not in tablet.structure.chunks)
    total = f"SELECT sum(count) AS n FROM {TABLE}"
    assert tablet.facts.retained_timestamp <= at
    assert await answered(web, total, at) == [{"n": 50}]
    assert await answered(web, total) == [{"n": 100}]
    reads.close()
    web.node.clock.now_ms += 1000
    (before,) = tablet.structure.chunks
    await set_attributes(web, forced_compaction_revision=2)
    await holds(web, lambda: before not in tablet.structure.chunks)
    assert await refused_timestamp(web, at) == "TIMESTAMP_TOO_OLD"
    assert await answered(web, total) == [{"n": 100}]
    assert tablet.share.reads.bound(1 << 63) == 1 << 63


async def test_a_clean_up_that_has_begun_refuses_reads_below_it_at_once(web: Web) -> None:
    await create(web, attributes={"min_data_ttl": 0})
    at = await insert(web, row("a", 1, count=1))
    web.node.clock.now_ms += 1000
    tablet, background = tablet_of(web), web.node.server.node.cell.current.sorted_tables.background
    assert background._retained(tablet) > at
    assert await refused_timestamp(web, at) == "TIMESTAMP_TOO_OLD"
    assert tablet.facts.retained_timestamp == 0


async def test_a_query_keeps_its_timestamp_from_clean_up_and_lets_go_however_it_ends(web: Web) -> None:
    await create(web)
    await insert(web, *(row("a", number, note="x" * 500) for number in range(3000)))
    reads = tablet_of(web).share.reads
    free = 1 << 63
    async with query(web, f"SELECT * FROM {TABLE}") as asked:
        assert await asked.piece()
        assert 0 < reads.bound(free) < free
    assert reads.bound(free) == free
    for text in (f"SELECT missing FROM {TABLE}", f"SELECT error('x') FROM {TABLE}"):
        assert (await web.refusal("POST", "/v1/sql", {"query": text}))[1] == "QUERY_FAILED"
        assert reads.bound(free) == free


def test_the_oldest_of_the_open_timestamps_bounds_clean_up() -> None:
    reads = OpenReads()
    for timestamp in (7, 5, 5):
        reads.open(timestamp)
    assert (reads.bound(9), reads.bound(3)) == (5, 3)
    reads.close(5)
    assert reads.bound(9) == 5
    reads.close(5)
    assert reads.bound(9) == 7
    reads.close(7)
    assert reads.bound(9) == 9


async def test_a_read_waits_for_writes_on_their_way(web: Web) -> None:
    await create(web)
    await insert(web, row("a", 1, count=1))
    web.node.engine.faults.hold()
    writing = asyncio.create_task(insert(web, row("a", 1, count=2)))
    tablet = tablet_of(web)
    await until(lambda: tablet.writes.in_flight is not None)
    assert tablet.writes.in_flight is not None
    reading = asyncio.create_task(answered(web, f"SELECT count FROM {TABLE}"))
    located = asyncio.create_task(locate_inputs(tablet, tablet.writes.in_flight.least_timestamp, EVERY))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not located.done()
    assert not reading.done()
    web.node.engine.faults.release()
    await writing
    assert await reading == [{"count": 2}]
    await located


async def test_queries_beside_transfers_flushes_and_compactions_see_one_moment(web: Web) -> None:
    """Each write moves a count between tablets: a query that saw two moments would find another sum."""
    attributes = {"min_data_ttl": 0, "max_data_ttl": 0, "max_dynamic_store_timestamp_count": 300}
    await create(web, pivot_keys=[[], ["m"]], attributes=attributes)
    await insert(web, *(row(shop, number, count=100) for shop in ("a", "z") for number in range(20)))
    written = 0

    async def write() -> None:
        nonlocal written
        while True:
            await until(lambda: all(len(tablet.stores) <= STORES_AHEAD for tablet in table(web).tablets))
            number = written % 20
            web.node.clock.now_ms += 5
            await insert(web, row("a", number, count=100 + written), row("z", number, count=100 - written))
            written += 1

    writing = asyncio.create_task(write())
    history = web.node.server.node.cell.current.sorted_tables.background.history
    queries = 0
    try:
        while queries < 15 or not {"flush", "compaction"} <= {task.kind for task in history.ended}:
            queries += 1
            if queries % 5 == 0:
                await set_attributes(web, forced_compaction_revision=queries // 5)
            before = written
            (found,) = await answered(web, f"SELECT sum(count) AS total, count(*) AS n FROM {TABLE}")
            assert found == {"total": 4000, "n": 40}
            while written < before + 10:
                await asyncio.sleep(0)
                if writing.done():
                    writing.result()
    finally:
        writing.cancel()
    assert written > 150


async def test_tables_in_other_cells_and_after_a_loss_are_read(web: Web) -> None:
    await create(web, pivot_keys=[[], ["m"]])
    at = await insert(web, row("a", 1, count=1), row("z", 1, count=1))
    await web.ask("POST", f"{PATH}/unmount", {"first_tablet_index": 0, "last_tablet_index": 0})
    _, cell = await web.ask("POST", "/v1/cells", {"bundle": "default"})
    body = {"first_tablet_index": 0, "last_tablet_index": 0, "cell_id": str(cell["id"])}
    assert (await web.ask("POST", f"{PATH}/mount", body))[0] == 200
    reads = sorted_reads(web, None)
    await reads.snapshot(TABLE)
    await insert(web, row("a", 1, count=5))
    await insert(web, row("z", 1, count=5))
    total = f"SELECT sum(count) AS n FROM {TABLE}"
    assert await answered(web, total) == [{"n": 10}]
    await reopen(web)
    assert await answered(web, total) == [{"n": 10}]
    assert await answered(web, total, at) == await answered(web, total, reads.timestamp) == [{"n": 2}]
    located = await reads.inputs({"table": TABLE, "tablet": 0, "ranges": [["", None]]})
    assert located.documents
    assert table(web).tablets[0].share.reads.bound(1 << 63) == reads.timestamp
    reads.close()


async def test_a_tablet_that_is_unmounted_meanwhile_is_refused(web: Web) -> None:
    await create(web)
    await insert(web, row("a", 1))
    tablet = tablet_of(web)
    await web.ask("POST", f"{PATH}/unmount", {})
    with pytest.raises(TableError) as refused:
        await locate_inputs(tablet, 1 << 62, EVERY)
    assert refused.value.code == "WRONG_STATE"
    assert "table mount" in refused.value.cure
