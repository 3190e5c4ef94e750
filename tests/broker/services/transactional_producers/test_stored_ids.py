"""Transactional ids on their coordinator tablets: what a start reads, and what shares a commit."""

import asyncio
import zlib
from typing import Any

import pytest

from pqbroker.broker.services.coordination.coordinators import COORDINATOR_IDS, COORDINATORS
from pqbroker.broker.services.transactional_producers.rules import (
    LAST_EPOCH,
    NO_CLAIM,
    Addition,
    Claim,
    Initialisation,
)
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.messages.list_transactions import ListTransactionsRequest
from pqbroker.storage.tablets.coordinator_rows import (
    TRANSACTIONAL_ROWS,
    PartitionId,
    TransactionalIdState,
    TransactionalImage,
    transactional_row,
)
from tests.broker.conftest import Node
from tests.broker.kafka.transacting import WireProducer, committed_values
from tests.broker.wire import Client

NUMBER = zlib.crc32(b"x") % COORDINATORS


async def store(node: Node, image: TransactionalImage, **fields: Any) -> None:
    """Store a row of the id x, and have its tablet start with it."""
    row: Any = {**transactional_row(image), **fields}
    coordinator = node.server.node.cell.current.coordinators.tablets[NUMBER]
    await coordinator.store(lambda changes: TRANSACTIONAL_ROWS.put(changes, "x", row), lambda _: None)
    await node.server.node.cell.restart_tablet(COORDINATOR_IDS[NUMBER])


async def test_the_last_epoch_ends_with_a_new_producer_id_in_version_2(node: Node, client: Client) -> None:
    await node.create_topic("t")
    await store(node, TransactionalImage("x", 70, LAST_EPOCH - 1, 60_000, changed_ms=1))
    producer = WireProducer(client)
    producer.claim = (70, LAST_EPOCH - 1)
    claims = []
    for number in range(3):
        assert await producer.produce("t", b"%d" % number, version=12) == "NONE"
        assert await producer.end(is_commit=True, version=5) == "NONE"
        claims.append(producer.claim)
    assert claims[0] == (70, LAST_EPOCH)
    assert claims[1][0] != 70
    assert [epoch for _, epoch in claims[1:]] == [0, 1]
    await producer.until_state("CompleteCommit")
    assert await committed_values(client, "t") == [b"0", b"1", b"2"]


async def test_a_producer_that_begins_behind_the_last_epoch_gets_a_new_id(node: Node, client: Client) -> None:
    await store(node, TransactionalImage("x", 70, LAST_EPOCH, 60_000, changed_ms=1))
    producer = WireProducer(client)
    assert await producer.begin() is ErrorCode.NONE
    assert producer.claim[0] != 70
    assert producer.claim[1] == 0


async def test_a_start_writes_the_markers_of_a_decided_transaction(node: Node, client: Client) -> None:
    topic_id = await node.create_topic("t")
    producer = WireProducer(client)
    await producer.begin()
    await producer.produce("t", b"v", version=12)
    decided = TransactionalImage(
        "x", *producer.claim, 60_000, TransactionalIdState.PREPARE_COMMIT, started_ms=1, changed_ms=1,
        partitions=frozenset({PartitionId(topic_id, 0), PartitionId(b"g" * 16, 0)}),
    )  # fmt: skip
    await store(node, decided)
    await producer.until_state("CompleteCommit")
    assert await committed_values(client, "t") == [b"v"]


async def test_a_transaction_that_timed_out_while_nothing_ran_is_aborted_by_the_start(node: Node) -> None:
    client = await node.connect()
    started_ms = node.clock.now_ms - 60_000
    ongoing = TransactionalImage("x", 70, 0, 60_000, TransactionalIdState.ONGOING, started_ms=started_ms, changed_ms=1)
    await store(node, ongoing)
    found = await WireProducer(client).until_state("CompleteAbort")
    assert found.producer_epoch == 1


async def test_an_unreadable_id_costs_its_coordinator_alone(node: Node, client: Client) -> None:
    await store(node, TransactionalImage("x", 70, 0, 60_000, changed_ms=1), form=9)
    codes = [await WireProducer(client, name).begin() for name in ("x", "some", "other", "ids")]
    assert codes == [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NONE]
    answer = await client.ask(ListTransactionsRequest())
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE, "a list without some would seem whole"


async def test_instances_that_begin_in_one_turn_get_epochs_of_their_own(node: Node) -> None:
    producers = node.server.node.cell.current.transactional_producers
    begun = [producers.initialise("x", Initialisation(60_000, NO_CLAIM, spare_id)) for spare_id in (70, 71, 72)]
    given = [await each for each in begun]
    assert [(image.producer_id, image.epoch) for image in given] == [(70, 0), (70, 1), (70, 2)]
    added = [producers.add("x", Claim(70, epoch), Addition(groups=frozenset({"g"}))) for epoch in (1, 2)]
    with pytest.raises(KafkaError, match="is over"):
        await added[0]
    assert (await added[1]).state == "Ongoing"


async def test_a_time_out_that_cannot_be_stored_yet_is_asked_for_once(node: Node) -> None:
    producers = node.server.node.cell.current.transactional_producers
    await producers.initialise("x", Initialisation(1000, NO_CLAIM, 70))
    await producers.add("x", Claim(70, 0), Addition(groups=frozenset({"g"})))
    engine: Any = node.engine
    engine.faults.hold()
    coordinators = node.server.node.cell.current.coordinators
    for _ in range(20):
        node.clock.now_ms += 1000
        coordinators.advance(1000)
        await asyncio.sleep(0)
    resident = producers._ids[NUMBER].residents["x"]
    assert len(resident.asked) <= 1
    engine.faults.release()
    await WireProducer(await node.connect()).until_state("CompleteAbort")


@pytest.mark.parametrize("count", [50])
async def test_ids_that_change_in_one_turn_share_a_commit(node: Node, count: int) -> None:
    names = [name for number in range(2000) if zlib.crc32(name := b"id-%d" % number) % COORDINATORS == NUMBER][:count]
    producers = [WireProducer(await node.connect(), name.decode()) for name in names]
    assert len(producers) == count
    tablet = node.server.node.cell.current.coordinators.tablets[NUMBER]
    stores: list[object] = []
    known = tablet.store

    def counted(plan: Any, done: Any) -> Any:
        stores.append(plan)
        return known(plan, done)

    tablet.store = counted  # type: ignore[method-assign]
    await asyncio.gather(*(producer.begin() for producer in producers))
    assert {producer.claim[1] for producer in producers} == {0}
    assert len(stores) < count / 3
