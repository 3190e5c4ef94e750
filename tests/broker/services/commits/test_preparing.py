"""Rows that a commit of another node prepares here, as they come over the peer link, and their ends."""

import asyncio
from typing import Any

import pytest

from pqbroker.broker.services.commits import preparing
from pqbroker.broker.services.commits.away import PreparedEnds
from pqbroker.broker.services.commits.commits import Commits
from pqbroker.broker.services.coordination.coordinators import COORDINATOR_IDS
from pqbroker.pq.serving.joint_write import Share
from pqbroker.pq.serving.transacted_batches import BatchesPart
from pqbroker.pq.transactions.participants import SentRows
from pqbroker.pq.transactions.stored_forms import ParticipantId, PreparedHead, TransactionId
from pqbroker.protocol.records import Record, encode_batch, read_header
from pqbroker.storage.engine import CommitRefused
from pqbroker.storage.ids import TabletId
from pqbroker.tables.refusals import TableError
from pqbroker.tables.sorted.rows import encode_rows
from tests.broker.conftest import until
from tests.broker.services.commits.doubt import log_of, right_of
from tests.broker.services.commits.test_crashes import make_tables
from tests.broker.web.conftest import Web, serve, web  # noqa: F401 (fixtures)

TRANSACTION = TransactionId(bytes(range(16)))
HOME = ParticipantId(COORDINATOR_IDS[0])
LIMIT_S = 5.0
LEAST = 7


async def test_rows_wait_for_the_end_that_names_their_try(web: Web) -> None:  # noqa: F811
    await make_tables(web)
    parts = [await log_rows(web), await right_rows(web)]
    assert await preparing.prepare(commits_of(web), head(), parts, LIMIT_S) == [0, 0]
    numbers = [one.participant for one in parts]
    assert await preparing.end(commits_of(web), PreparedEnds(TRANSACTION, None, LEAST + 1, numbers)) == {}
    assert are_prepared(web) == (True, True)
    assert await numbers_in(web) == ([], None)
    ends = PreparedEnds(TRANSACTION, commits_of(web).last_timestamp + 1, LEAST, numbers)
    for _ in range(2):
        assert await preparing.end(commits_of(web), ends) == {}
        assert await numbers_in(web) == ([1], 1)


async def test_rows_that_nobody_ends_are_dropped_once_their_home_knows_nothing_of_them(
    web: Web,  # noqa: F811
) -> None:
    await make_tables(web)
    parts = [await log_rows(web), await right_rows(web)]
    await preparing.prepare(commits_of(web), head(), parts, LIMIT_S)
    assert are_prepared(web) == (True, True)
    await until(lambda: not log_of(web).prepared and not right_of(web).prepared)
    assert await numbers_in(web) == ([], None)


async def test_a_part_that_is_refused_leaves_nothing_and_holds_nothing(web: Web) -> None:  # noqa: F811
    await make_tables(web)
    parts = [await log_rows(web), await right_rows(web)]
    await preparing.prepare(commits_of(web), head(), parts[1:], LIMIT_S)
    other = head()._replace(transaction=TransactionId(bytes(16)))
    with pytest.raises(TableError, match="Row lock conflict"):
        await preparing.prepare(commits_of(web), other, parts, LIMIT_S)
    assert not log_of(web).prepared
    assert (await web.ask("POST", "/v1/tables/log/rows", {"rows": [{"number": 3}]}))[0] == 200
    assert await numbers_in(web) == ([3], None)


async def test_what_is_no_part_of_this_node_is_refused(web: Web) -> None:  # noqa: F811
    await make_tables(web)
    known = [await log_rows(web), await right_rows(web)]
    absent = known[0]._replace(participant=ParticipantId(TabletId(1 << 40)))
    with pytest.raises(CommitRefused, match="is not open at this node"):
        await preparing.prepare(commits_of(web), head(), [absent], LIMIT_S)
    for part in known:
        for stored in (b"", b"\0" * 64, bytes(part.stored)[:-1], bytes(part.stored) + b"\0"):
            with pytest.raises(ValueError, match=r"empty|bytes|batches|checksum|version|entry|without rows"):
                await preparing.prepare(commits_of(web), head(), [part._replace(stored=stored)], LIMIT_S)
    other = known[1]._replace(participant=known[1].participant._replace(partition=1))
    with pytest.raises(ValueError, match="no partition 1"):
        await preparing.prepare(commits_of(web), head(), [other], LIMIT_S)
    assert are_prepared(web) == (False, False)
    left = await preparing.end(commits_of(web), PreparedEnds(TRANSACTION, 9, LEAST, [absent.participant]))
    assert list(left) == [absent.participant]


async def test_a_lookup_waits_for_rows_that_another_node_may_have_committed_before_it(web: Web) -> None:  # noqa: F811
    await make_tables(web)
    rows = await right_rows(web)
    await preparing.prepare(commits_of(web), head(), [rows], LIMIT_S)
    decided = await given_timestamp(web)
    tablet = web.node.server.node.cell.current.sorted_tables.tables["right"].tablets[0]
    looking = asyncio.ensure_future(tablet.settle(decided))
    for _ in range(3):
        await asyncio.sleep(0)
    assert not looking.done()
    await preparing.end(commits_of(web), PreparedEnds(TRANSACTION, decided, LEAST, [rows.participant]))
    await looking
    asked = {"keys": [{"id": 1}], "timestamp": decided}
    assert (await web.ask("POST", "/v1/tables/right/lookup", asked))[1]["rows"] == [{"id": 1, "number": 1}]


def commits_of(web: Web) -> Commits:  # noqa: F811
    return web.node.server.node.cell.current.commits


def are_prepared(web: Web) -> tuple[bool, bool]:  # noqa: F811
    """Return True if rows are prepared in the ordered table, and in the sorted one."""
    return TRANSACTION in log_of(web).prepared, TRANSACTION in right_of(web).prepared


def head() -> PreparedHead:
    """Return what another node prepares rows with."""
    return PreparedHead(TRANSACTION, HOME, LEAST, 1)


async def log_rows(web: Web) -> SentRows:  # noqa: F811
    """Return a row for the ordered table, as another node sends it."""
    topic: Any = web.node.server.node.cell.current.topics.get("log")
    batch = memoryview(encode_batch([Record(0, 1, None, b'{"number": 1}', ())]))
    return await BatchesPart(Share(topic.partitions[0], [(batch, read_header(batch))]), None, lambda: 1).sent()


async def right_rows(web: Web) -> SentRows:  # noqa: F811
    """Return a row for a sorted table, as another node sends it."""
    table = web.node.server.node.cell.current.sorted_tables.tables["right"]
    rows = encode_rows(table.schema, [{"id": 1, "number": 1}], "rows", is_update=False)
    return await table.part(0, rows, None).sent()


async def given_timestamp(web: Web) -> int:  # noqa: F811
    """Return a timestamp that is given now."""
    status, started = await web.ask("POST", "/v1/transactions", {})
    assert status == 201, started
    timestamp: int = started["start_timestamp"]
    return timestamp


async def numbers_in(web: Web) -> tuple[list[int], int | None]:  # noqa: F811
    """Return the numbers in the ordered table, and that of row 1 of the sorted one, at a timestamp below all that is
    prepared."""
    status, logged = await web.ask("GET", "/v1/tables/log/rows")
    assert status == 200, logged
    key = {"keys": [{"id": 1}]}
    if right_of(web).prepared:
        return [row["number"] for row in logged["rows"]], None
    status, found = await web.ask("POST", "/v1/tables/right/lookup", key)
    assert status == 200, found
    row = found["rows"][0]
    return [row["number"] for row in logged["rows"]], None if row is None else row["number"]
