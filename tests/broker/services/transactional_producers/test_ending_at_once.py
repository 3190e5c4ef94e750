"""Transactions that are decided and ended in one commit: how many share it, and what has them end in the usual way."""

import asyncio
import zlib

import pytest

from pqbroker.broker.services.coordination.coordinators import COORDINATOR_IDS
from pqbroker.broker.services.transactional_producers import ending_at_once
from pqbroker.broker.services.transactional_producers.rules import Claim, End
from pqbroker.pq.log.blob_cycles import plan_close
from pqbroker.pq.log.consumers import ConsumerOffset
from pqbroker.pq.serving.joint_cycle import JointCycle
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.protocol.errors import KafkaError
from pqbroker.protocol.messages.delete_topics import DeleteTopicsRequest
from pqbroker.storage.outcome import Outcome
from pqbroker.storage.tablets.base_tablet import LOG_BLOBS_MAX
from pqbroker.storage.tablets.coordinator_rows import TransactionalImage
from tests.broker.conftest import Node, until
from tests.broker.kafka.handlers.test_transactional_producers import fetch_offset
from tests.broker.kafka.transacting import WireProducer, committed_values
from tests.broker.services.transactional_producers.test_crashes import until_ended

PARTITIONS = 3
PATIENT_S = 30.0
"""Seconds that partitions are waited for, where a crowded machine may stop the test for longer than `HELD_S`."""


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No round is given up because the machine is busy."""
    monkeypatch.setattr(ending_at_once, "HELD_S", PATIENT_S)


@pytest.fixture
async def topic(node: Node) -> str:
    await node.create_topic("t", PARTITIONS)
    return "t"


def partition_of(node: Node, index: int = 0) -> PartitionServer:
    topic = node.server.node.cell.current.topics.get("t")
    assert topic is not None
    return topic.partitions[index]


def commits_of(node: Node) -> int:
    assert node.engine.faults is not None
    return node.engine.faults.commits


async def begun(node: Node, name: str = "x", partitions: int = PARTITIONS, *, has_offset: bool = True) -> WireProducer:
    """Return a producer with an open transaction over partitions, and an offset of group g."""
    producer = WireProducer(await node.connect(), name)
    await producer.begin()
    for index in range(partitions):
        assert await producer.produce("t", name.encode(), index, version=12) == "NONE"
    if has_offset:
        assert await producer.commit_offset("t", 7, version=5) == "NONE"
    return producer


@pytest.mark.parametrize("is_commit", [False, True])
async def test_an_end_is_one_commit_with_its_markers_and_offsets(node: Node, topic: str, is_commit: bool) -> None:
    producer = await begun(node)
    before = commits_of(node)
    assert await producer.end(is_commit=is_commit, version=5) == "NONE"
    assert commits_of(node) - before == 1
    assert (await producer.state()).transaction_state == ("CompleteCommit" if is_commit else "CompleteAbort")
    values = [b"x"] if is_commit else []
    client = await node.connect()
    assert [await committed_values(client, topic, index) for index in range(PARTITIONS)] == [values] * PARTITIONS
    assert await fetch_offset(client, is_stable=True) == ((7, "NONE") if is_commit else (-1, "NONE"))
    counters = node.server.node.cell.current.transactional_producers.counters
    assert (counters.committed, counters.aborted) == (int(is_commit), int(not is_commit))


async def test_ten_transactions_that_end_in_one_turn_share_a_cycle(node: Node, topic: str) -> None:
    producers = [await begun(node, f"x{number}") for number in range(10)]
    services = node.server.node.cell.current.transactional_producers
    cycles, before = partition_of(node).writer.counters.cycles, commits_of(node)
    for ended in [services.end(each.name, Claim(*each.claim), End(True, True)) for each in producers]:
        assert (await ended).epoch == 1
    assert commits_of(node) - before == 1
    assert partition_of(node).writer.counters.cycles - cycles == 1
    for each in producers:
        assert (await each.state()).transaction_state == "CompleteCommit"
    assert await fetch_offset(await node.connect(), is_stable=True) == (7, "NONE")


async def test_ends_that_come_while_a_round_is_under_way_share_the_next_one(node: Node, topic: str) -> None:
    producers = [await begun(node, f"x{number}") for number in range(10)]
    services = node.server.node.cell.current.transactional_producers
    before, faults = commits_of(node), node.engine.faults
    assert faults is not None
    faults.hold()
    ended = [services.end(producers[0].name, Claim(*producers[0].claim), End(True, True))]
    await until(lambda: partition_of(node).state.is_writing)
    for each in producers[1:]:
        ended.append(services.end(each.name, Claim(*each.claim), End(True, True)))
        await asyncio.sleep(0)
    faults.release()
    for one in ended:
        await one
    assert commits_of(node) - before == 2


async def test_an_end_that_is_decided_when_a_round_is_just_over_has_a_round_too(node: Node, topic: str) -> None:
    first, second = [await begun(node, name) for name in ("x0", "x1")]
    services = node.server.node.cell.current.transactional_producers
    later: list[Outcome[TransactionalImage]] = []
    ended = services.end(first.name, Claim(*first.claim), End(True, True))
    ended.add_done_callback(lambda _: later.append(services.end(second.name, Claim(*second.claim), End(True, True))))
    await ended
    async with asyncio.timeout(20):
        assert (await later[0]).epoch == 1
    assert (await second.state()).transaction_state == "CompleteCommit"


@pytest.mark.parametrize("is_stored", [False, True])
async def test_a_lost_round_ends_all_of_a_transaction_or_leaves_it_open(
    node: Node, topic: str, is_stored: bool
) -> None:
    producer = await begun(node)
    assert node.engine.faults is not None
    node.engine.faults.lose_next(stored=is_stored)
    assert await producer.end(is_commit=True, version=5) in ("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE")
    while (found := await producer.state()).error_code:
        pass
    assert found.transaction_state == ("CompleteCommit" if is_stored else "Ongoing")
    client = await node.connect()
    values = [b"x"] if is_stored else []
    assert [await committed_values(client, topic, index) for index in range(PARTITIONS)] == [values] * PARTITIONS
    assert await producer.end(is_commit=True, version=5) == "NONE"
    assert await committed_values(client, topic) == [b"x"]


async def test_a_round_that_is_refused_ends_in_the_usual_way(node: Node, topic: str) -> None:
    producer = await begun(node)
    assert node.engine.faults is not None
    node.engine.faults.refuse_next()
    before = commits_of(node)
    assert await producer.end(is_commit=True, version=5) == "NONE"
    await until_ended(producer)
    assert commits_of(node) - before > 2
    client = await node.connect()
    assert [await committed_values(client, topic, index) for index in range(PARTITIONS)] == [[b"x"]] * PARTITIONS
    assert await fetch_offset(client, is_stable=True) == (7, "NONE")


async def test_a_partition_that_is_waited_for_in_vain_has_its_markers_later(
    node: Node, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending_at_once, "HELD_S", 0.01)
    producer, other = await begun(node), await begun(node, "y", 1)
    slow = partition_of(node, 2)
    place = JointCycle(slow, lambda now_ms: plan_close(slow.state, now_ms), node.clock)
    held = Outcome[None]()
    place.enter(held.settle)
    await held
    assert await producer.end(is_commit=True, version=5) == "NONE"
    assert (await producer.state()).transaction_state == "PrepareCommit"
    monkeypatch.setattr(ending_at_once, "HELD_S", PATIENT_S)
    client = await node.connect()
    assert await committed_values(client, topic, 2) == []
    before = commits_of(node)
    assert await other.end(is_commit=True, version=5) == "NONE"
    assert commits_of(node) - before == 1
    await until(lambda: not partition_of(node, 1).state.transactions.open)
    assert await committed_values(client, topic, 1) == [b"x"]
    assert await committed_values(client, topic, 2) == []
    place.leave()
    await until_ended(producer)
    assert await committed_values(client, topic, 2) == [b"x"]
    again = await begun(node, "z")
    before = commits_of(node)
    assert await again.end(is_commit=True, version=5) == "NONE"
    await until_ended(again)
    assert commits_of(node) - before > 1  # the partition counts as slow for a while


async def test_a_large_transaction_ends_in_the_usual_way(
    node: Node, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending_at_once, "WRITES_AT_ONCE", PARTITIONS)
    producer = await begun(node)
    before = commits_of(node)
    assert await producer.end(is_commit=True, version=5) == "NONE"
    await until_ended(producer)
    assert commits_of(node) - before > 1
    assert await fetch_offset(await node.connect(), is_stable=True) == (7, "NONE")


async def test_a_round_takes_as_much_as_one_turn_plans(
    node: Node, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending_at_once, "WRITES_AT_ONCE", 2 * PARTITIONS)
    producers = [await begun(node, f"x{number}", has_offset=False) for number in range(4)]
    services = node.server.node.cell.current.transactional_producers
    before = commits_of(node)
    for ended in [services.end(each.name, Claim(*each.claim), End(True, True)) for each in producers]:
        await ended
    assert commits_of(node) - before == 2


async def test_a_deleted_topic_is_left_out_of_the_one_commit(node: Node, topic: str) -> None:
    await node.create_topic("u")
    producer = await begun(node)
    assert await producer.produce("u", b"u", version=12) == "NONE"
    client = await node.connect()
    await client.ask(DeleteTopicsRequest(topic_names=["t"]), 5)
    before = commits_of(node)
    assert await producer.end(is_commit=True, version=5) == "NONE"
    assert (await producer.state()).transaction_state == "CompleteCommit"
    assert await committed_values(client, "u") == [b"u"]
    assert commits_of(node) - before >= 1


async def test_an_abort_of_nothing_is_one_commit(node: Node) -> None:
    producer = WireProducer(await node.connect())
    await producer.begin()
    before = commits_of(node)
    assert await producer.end(is_commit=False, version=5) == "NONE"
    assert (await producer.state()).transaction_state == "CompleteAbort"
    assert commits_of(node) - before == 1


@pytest.mark.parametrize("is_later", [False, True])
async def test_an_offset_that_is_on_its_way_stands_before_the_one_commit(
    node: Node, topic: str, is_later: bool
) -> None:
    if is_later:
        producer = await begun(node)
        node.clock.now_ms += 1
    offsets, faults = node.server.node.cell.current.topics.offsets, node.engine.faults
    assert faults is not None
    faults.hold()
    plain = asyncio.ensure_future(offsets.commit("g", {("t", 0): ConsumerOffset(3, commit_ms=node.clock.now_ms)}))
    if not is_later:
        faults.release()
        node.clock.now_ms += 1
        producer = await begun(node)
        faults.hold()
    services = node.server.node.cell.current.transactional_producers
    ended = services.end("x", Claim(*producer.claim), End(True, True))
    for _ in range(10):
        await asyncio.sleep(0)
    last = asyncio.ensure_future(offsets.commit("h", {("t", 0): ConsumerOffset(9, commit_ms=node.clock.now_ms)}))
    faults.release()
    await asyncio.gather(plain, ended.wait(), last)
    ended.result()
    assert await fetch_offset(await node.connect(), is_stable=True) == (3 if is_later else 7, "NONE")


async def test_a_coordinator_whose_snapshot_is_due_stores_the_decision_by_itself(node: Node, topic: str) -> None:
    producer = await begun(node)
    for number in range(LOG_BLOBS_MAX + 10):
        before = commits_of(node)
        assert await producer.produce("t", b"%d" % number, version=12) == "NONE"
        assert await producer.end(is_commit=True, version=5) == "NONE"
        await until_ended(producer)
        if commits_of(node) - before > 3:
            break
    else:
        raise AssertionError("no snapshot was written")
    assert (await committed_values(await node.connect(), topic))[-1] == b"%d" % number


async def test_the_ends_of_a_coordinator_that_restarts_are_written_once(node: Node, topic: str) -> None:
    producer = await begun(node)
    services, faults = node.server.node.cell.current.transactional_producers, node.engine.faults
    assert faults is not None
    faults.hold()
    ended = services.end("x", Claim(*producer.claim), End(True, True))
    await until(lambda: partition_of(node).state.is_writing)
    number = zlib.crc32(b"x") % len(COORDINATOR_IDS)
    restarting = asyncio.ensure_future(node.server._cell.restart_tablet(COORDINATOR_IDS[number]))
    await until(lambda: node.server.node.cell.current.coordinators.tablets[number].is_closed)
    faults.release()
    await restarting
    with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
        await ended
    assert (await producer.state()).transaction_state == "CompleteCommit"
    assert await producer.end(is_commit=True, version=5) == "NONE"
    assert await committed_values(await node.connect(), topic) == [b"x"]
