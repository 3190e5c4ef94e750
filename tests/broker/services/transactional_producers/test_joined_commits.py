"""One transaction over records of a producer, offsets of a group, an ordered table and sorted tables in other cells."""

from functools import partial
from typing import Any

import pytest

from pqbroker.protocol.errors import ErrorCode
from tests.broker.kafka.handlers.test_transactional_producers import fetch_offset
from tests.broker.kafka.transacting import WireProducer, committed_values
from tests.broker.services.commits.test_crashes import found, make_tables, settled, sibling
from tests.broker.services.transactional_producers.test_crashes import repeat, until_ended
from tests.broker.web.conftest import Web, serve, web  # noqa: F401 (fixtures)

COMMITS = 6
"""More than a cell makes for one transaction."""
ALL = "/v1/transactions"
GROUP, TOPIC = "g", "t"


async def make_all(web: Web, *, is_away: bool) -> WireProducer:  # noqa: F811
    """Make sorted tables in two cells, an ordered one and a topic in the system cell, or `is_away` in another one, and
    a producer."""
    await make_tables(web)
    configs = {"pq.bundle": "left"} if is_away else {}
    body = {"name": TOPIC, "partitions": 2, "config": configs}
    status, made = await web.ask("POST", "/v1/topics", body)
    assert status == 201, made
    producer = WireProducer(await web.node.connect())
    await producer.begin()
    return producer


async def begin(web: Web, **given: Any) -> str:  # noqa: F811
    while True:
        status, started = await web.ask("POST", ALL, given)
        if status == 201:
            name: str = started["transaction"]
            return name
        assert status == 503, started


def wanted(number: int) -> dict[str, Any]:
    writes = [
        {"table": "left", "rows": [{"id": number, "number": number}]},
        {"table": "right", "rows": [{"id": number, "number": number}]},
        {"table": "log", "rows": [{"number": number}]},
    ]
    return {"writes": writes, "offsets": [{"group": GROUP, "topic": TOPIC, "partition": 0, "offset": number}]}


async def commit(web: Web, name: str, body: dict[str, Any]) -> str:  # noqa: F811
    """Commit until the outcome is known: committed, or the code of the refusal."""
    while True:
        status, answer = await web.ask("POST", f"{ALL}/{name}/commit", body)
        if status == 200:
            return "committed"
        code: str = answer["error"]["code"]
        if code in ("NO_TRANSACTION", "TRANSACTION_ENDED"):
            return "aborted"
        if status != 503:
            return code


async def produced(producer: WireProducer, number: int) -> None:
    for index in (0, 1):
        request = producer.produce_request(TOPIC, b"%d" % number, index)

        async def produce(request: Any = request) -> str:
            answer = await producer.client.ask(request, 12)
            return ErrorCode(answer.responses[0].partition_responses[0].error_code).name

        assert await repeat(produce) == "NONE"


async def values_of(web: Web) -> list[list[bytes]]:  # noqa: F811
    client = await web.node.connect()
    return [await committed_values(client, TOPIC, index) for index in (0, 1)]


@pytest.mark.parametrize("is_away", [False, True])
async def test_records_offsets_and_rows_are_committed_together(web: Web, is_away: bool) -> None:  # noqa: F811
    producer = await make_all(web, is_away=is_away)
    await produced(producer, 1)
    name = await begin(web, transactional_id="x")
    assert await values_of(web) == [[], []]
    assert await commit(web, name, wanted(1)) == "committed"
    await until_ended(producer)
    await settled(web)
    assert await values_of(web) == [[b"1"], [b"1"]]
    assert await found(web, 1) == [1, 1, 1]
    assert await fetch_offset(await web.node.connect(), is_stable=True) == (1, "NONE")
    assert await commit(web, name, wanted(1)) == "committed"
    assert await producer.end(is_commit=True, version=5) == "NONE"  # sent again, as it were
    await produced(producer, 2)
    assert await producer.end(is_commit=False, version=5) == "NONE"
    assert await values_of(web) == [[b"1"], [b"1"]]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("is_away", [False, True])
@pytest.mark.parametrize("cell", ["system", "left", "right"])
async def test_a_loss_at_any_commit_of_any_cell_tears_nothing(web: Web, cell: str, is_away: bool) -> None:  # noqa: F811
    producer = await make_all(web, is_away=is_away)
    engine: Any = web.node.engine
    expected: list[bytes] = []
    number, outcomes = 0, set()
    for is_stored in (False, True):
        for after in range(COMMITS):
            number += 1
            await produced(producer, number)
            name = await begin(web, transactional_id="x")
            faults = engine.faults if cell == "system" else sibling(web, cell).faults
            faults.lose_next(after=after, stored=is_stored)
            outcome = await commit(web, name, wanted(number))
            faults.clear()
            outcomes.add(outcome)
            is_commit = outcome == "committed"
            if is_commit:
                expected.append(b"%d" % number)
            assert await repeat(partial(producer.end, is_commit=is_commit, version=5)) == "NONE"
            await until_ended(producer)
            await settled(web)
            assert await values_of(web) == [expected, expected], (is_stored, after, outcome)
            assert await found(web, number) == [number if is_commit else None] * 3, (is_stored, after, outcome)
            last = int(expected[-1]) if expected else -1
            assert await fetch_offset(await web.node.connect(), is_stable=True) == (last, "NONE")
    assert outcomes >= {"committed"}


@pytest.mark.parametrize("is_away", [False, True])
async def test_offsets_alone_go_along_and_leave_no_transactional_id(web: Web, is_away: bool) -> None:  # noqa: F811
    await make_all(web, is_away=is_away)
    assert await commit(web, await begin(web), wanted(7)) == "committed"
    await settled(web)
    client = await web.node.connect()
    while (found_offset := await fetch_offset(client, is_stable=True)) != (7, "NONE"):
        assert found_offset == (-1, "UNSTABLE_OFFSET_COMMIT")
    assert await found(web, 7) == [7, 7, 7]
    ids = web.node.server.node.cell.current.transactional_producers
    assert [image.transactional_id for image in ids.images()] == ["x"]


async def test_an_abort_of_the_transaction_aborts_its_producer_s(web: Web) -> None:  # noqa: F811
    producer = await make_all(web, is_away=False)
    await produced(producer, 1)
    name = await begin(web, transactional_id="x")
    assert (await web.ask("POST", f"{ALL}/{name}/abort", {}))[0] == 204
    await until_ended(producer)
    assert (await producer.state()).transaction_state == "CompleteAbort"
    assert await producer.end(is_commit=False, version=5) == "NONE"
    assert await values_of(web) == [[], []]


async def test_a_conflict_of_rows_aborts_all_of_it(web: Web) -> None:  # noqa: F811
    producer = await make_all(web, is_away=False)
    await produced(producer, 1)
    name = await begin(web, transactional_id="x")
    status, _ = await web.ask("POST", "/v1/tables/left/rows", {"rows": [{"id": 1, "number": 9}]})
    assert status == 200
    assert await commit(web, name, wanted(1)) == "ROW_LOCK_CONFLICT"
    await until_ended(producer)
    assert (await producer.state()).transaction_state == "CompleteAbort"
    assert await values_of(web) == [[], []]
    assert await fetch_offset(await web.node.connect(), is_stable=True) == (-1, "NONE")


async def test_a_producer_that_was_replaced_since_the_start_is_fenced(web: Web) -> None:  # noqa: F811
    producer = await make_all(web, is_away=False)
    name = await begin(web, transactional_id="x")
    later = WireProducer(await web.node.connect())
    await later.begin()
    await produced(later, 5)
    status, code, _ = await web.refusal("POST", f"{ALL}/{name}/commit", wanted(5))
    assert (status, code) == (409, "PRODUCER_FENCED")
    assert await found(web, 5) == [None, None, None]
    assert (await later.state()).transaction_state == "Ongoing"
    assert await producer.end(is_commit=True) == "PRODUCER_FENCED"


async def test_a_producer_that_has_ended_by_itself_is_refused(web: Web) -> None:  # noqa: F811
    producer = await make_all(web, is_away=False)
    assert await producer.add((TOPIC, 0)) == {(TOPIC, 0): "NONE"}
    name = await begin(web, transactional_id="x")
    web.node.clock.now_ms += 1
    assert await producer.end(is_commit=True, version=3) == "NONE"
    assert (await web.refusal("POST", f"{ALL}/{name}/commit", wanted(1)))[1] == "INVALID_TXN_STATE"
    assert await found(web, 1) == [None, None, None]


@pytest.mark.parametrize(
    ("offset", "code"),
    [
        ({"topic": "missing"}, "UNKNOWN_TOPIC_OR_PARTITION"),
        ({"partition": 9}, "UNKNOWN_TOPIC_OR_PARTITION"),
        ({"offset": -1}, "INVALID_BODY"),
        ({"group": ""}, "INVALID_GROUP_ID"),
        ({"metadata": "x" * 5000}, "OFFSET_METADATA_TOO_LARGE"),
    ],
)
async def test_an_offset_that_no_partition_takes_refuses_all(
    web: Web, offset: dict[str, Any], code: str  # noqa: F811
) -> None:
    await make_all(web, is_away=False)
    body = wanted(1)
    body["offsets"][0] |= offset
    assert (await web.refusal("POST", f"{ALL}/{await begin(web)}/commit", body))[1] == code
    assert await found(web, 1) == [None, None, None]


async def test_a_transaction_with_an_unknown_transactional_id_is_not_started(web: Web) -> None:  # noqa: F811
    assert (await web.refusal("POST", ALL, {"transactional_id": "nobody"}))[1] == "TRANSACTIONAL_ID_NOT_FOUND"


async def test_a_repeated_commit_is_answered_after_a_restart(web: Web) -> None:  # noqa: F811
    producer = await make_all(web, is_away=True)
    await produced(producer, 1)
    name = await begin(web, transactional_id="x")
    assert await commit(web, name, wanted(1)) == "committed"
    engine: Any = web.node.engine
    engine.faults.lose_next(stored=False)
    await web.ask("POST", "/v1/tables/log/rows", {"rows": [{"number": 0}]})
    assert await commit(web, name, wanted(1)) == "committed"
    changed = wanted(1)
    changed["offsets"][0]["offset"] = 5
    assert await commit(web, name, changed) == "TRANSACTION_CHANGED"
    await until_ended(producer)
    assert await values_of(web) == [[b"1"], [b"1"]]
