"""The cell is lost at each commit of a transaction, durable or not: its producer continues, and nothing is torn."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pqbroker.protocol.errors import ErrorCode
from tests.broker.conftest import Node
from tests.broker.kafka.handlers.test_transactional_producers import fetch_offset
from tests.broker.kafka.transacting import WireProducer, committed_values, produced
from tests.broker.wire import Client

COMMITS = 12
"""More than a transaction takes until its end is stored."""
AGAIN = {
    "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "CONCURRENT_TRANSACTIONS", "COORDINATOR_LOAD_IN_PROGRESS",
    "NOT_LEADER_OR_FOLLOWER", "KAFKA_STORAGE_ERROR", "NOT_ENOUGH_REPLICAS",
}  # fmt: skip
"""Errors after which clients send the same request again."""


async def repeat(step: Callable[[], Awaitable[str]]) -> str:
    """Send a request until its answer is final."""
    while (code := await step()) in AGAIN:
        pass
    return code


async def transact(producer: WireProducer, number: int, *, is_second: bool, is_commit: bool = True) -> None:
    """Write a number to two partitions and the next one as an offset, in one transaction."""
    value = b"%d" % number
    if not is_second:
        assert await repeat(lambda: _add(producer)) == "NONE"
    for index in (0, 1):
        request = producer.produce_request("t", value, index)

        async def produce(request: Any = request) -> str:
            return produced(await producer.client.ask(request, 12 if is_second else 11))

        assert await repeat(produce) == "NONE"
    version = 5 if is_second else 3
    if not is_second:
        assert await repeat(producer.add_group) == "NONE"
    assert await repeat(lambda: producer.commit_offset("t", number + 1, version=version)) == "NONE"
    assert await repeat(lambda: producer.end(is_commit=is_commit, version=version)) == "NONE"


async def _add(producer: WireProducer) -> str:
    return next(iter((await producer.add(("t", 0), ("t", 1))).values()))


async def until_ended(producer: WireProducer) -> None:
    while True:
        found = await producer.state()
        if not found.error_code and found.transaction_state.startswith(("Complete", "Empty")):
            return


async def check(client: Client, numbers: list[int]) -> None:
    expected = [b"%d" % number for number in numbers]
    assert [await committed_values(client, "t", index) for index in (0, 1)] == [expected, expected]
    assert await fetch_offset(client, is_stable=True) == (numbers[-1] + 1, "NONE")


@pytest.mark.parametrize("is_second", [False, True])
@pytest.mark.parametrize("is_stored", [False, True])
async def test_a_loss_at_any_commit_tears_no_transaction(node: Node, is_second: bool, is_stored: bool) -> None:
    await node.create_topic("t", 2)
    producer = WireProducer(await node.connect())
    assert await repeat(lambda: _begin(producer)) == "NONE"
    numbers = []
    for after in range(COMMITS):
        for is_commit in (False, True):
            number = 2 * after + is_commit
            openings = node.server.node.metrics.cell_openings
            assert node.engine.faults is not None
            node.engine.faults.lose_next(after=after, stored=is_stored)
            await transact(producer, number, is_second=is_second, is_commit=is_commit)
            numbers += [number] if is_commit else []
            await until_ended(producer)
            node.engine.faults.clear()
        assert node.server.node.metrics.cell_openings > openings or after >= COMMITS - 7
    await check(await node.connect(), numbers)


async def _begin(producer: WireProducer) -> str:
    return (await producer.begin()).name


async def test_refused_commits_are_tried_again_until_the_end_is_written(node: Node) -> None:
    await node.create_topic("t", 2)
    producer = WireProducer(await node.connect())
    await producer.begin()
    numbers = []
    for after in range(COMMITS):
        assert node.engine.faults is not None
        node.engine.faults.refuse_next(after=after)
        await transact(producer, after, is_second=True)
        numbers.append(after)
        await until_ended(producer)
        node.engine.faults.clear()
    await check(await node.connect(), numbers)


async def test_a_start_ends_what_was_decided_and_a_later_instance_aborts_what_was_not(node: Node) -> None:
    await node.create_topic("t", 2)
    producer = WireProducer(await node.connect())
    await producer.begin()
    await producer.produce("t", b"open", version=12)
    assert node.engine.faults is not None
    node.engine.faults.lose_next(stored=True)
    await node.produce("t", b"plain")
    later = WireProducer(await node.connect())
    while (code := await later.begin()) is not ErrorCode.NONE:
        assert code.name in AGAIN
    assert later.claim[0] == producer.claim[0]
    assert await committed_values(await node.connect(), "t") == [b"plain"]


async def test_a_coordinator_tablet_restarts_while_its_transactions_go_on(node: Node) -> None:
    from pqbroker.broker.services.coordination.coordinators import COORDINATOR_IDS

    await node.create_topic("t", 2)
    producer = WireProducer(await node.connect())
    await producer.begin()
    await producer.produce("t", b"0", version=12)
    for tablet_id in COORDINATOR_IDS:
        await node.server._cell.restart_tablet(tablet_id)
    assert (await producer.state()).transaction_state == "Ongoing"
    assert await repeat(lambda: producer.end(is_commit=True, version=5)) == "NONE"
    await until_ended(producer)
    assert await committed_values(await node.connect(), "t") == [b"0"]
